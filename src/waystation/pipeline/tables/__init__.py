"""List of all datasets: columns, key, partition, retention and privacy class of each table."""

from typing import Final

from waystation.pipeline.tables.bronze import BRONZE_ARCHIVE, BRONZE_EVENTS
from waystation.pipeline.tables.columns import OUTCOMES, UNFINISHED
from waystation.pipeline.tables.dataset import Column, Dataset
from waystation.pipeline.tables.gold import GOLD_CAPACITY, GOLD_OUTCOMES, GOLD_VERDICTS
from waystation.pipeline.tables.gold_graphs import GOLD_BSP_GROUPS, GOLD_BSP_INVALID, GOLD_MESH_TOPOLOGY
from waystation.pipeline.tables.gold_policy import GOLD_ABUSE_FINDINGS, GOLD_POLICY
from waystation.pipeline.tables.gold_relays import (
    GOLD_CONSISTENCY,
    GOLD_RELAY_DAY,
    GOLD_RELAY_HISTO,
    GOLD_RELAY_SCORES,
    GOLD_RELAY_TRANSITIONS,
)
from waystation.pipeline.tables.ops import OPS_QUARANTINE, OPS_RETENTION, OPS_RUNS
from waystation.pipeline.tables.silver import (
    SILVER_BSP_MESSAGES,
    SILVER_BSP_SYNC,
    SILVER_CONNECTIONS,
    SILVER_DELIVERIES,
    SILVER_MESH_LINKS,
    SILVER_MESH_QUERIES,
    SILVER_PACKET_SEEN,
    SILVER_PACKETS,
    SILVER_POW,
    SILVER_PROBES,
)

__all__ = [
    "BRONZE_ARCHIVE",
    "BRONZE_EVENTS",
    "DATASETS",
    "GOLD_ABUSE_FINDINGS",
    "GOLD_BSP_GROUPS",
    "GOLD_BSP_INVALID",
    "GOLD_CAPACITY",
    "GOLD_CONSISTENCY",
    "GOLD_MESH_TOPOLOGY",
    "GOLD_OUTCOMES",
    "GOLD_POLICY",
    "GOLD_RELAY_DAY",
    "GOLD_RELAY_HISTO",
    "GOLD_RELAY_SCORES",
    "GOLD_RELAY_TRANSITIONS",
    "GOLD_VERDICTS",
    "OPS_QUARANTINE",
    "OPS_RETENTION",
    "OPS_RUNS",
    "OUTCOMES",
    "SILVER_BSP_MESSAGES",
    "SILVER_BSP_SYNC",
    "SILVER_CONNECTIONS",
    "SILVER_DELIVERIES",
    "SILVER_MESH_LINKS",
    "SILVER_MESH_QUERIES",
    "SILVER_PACKETS",
    "SILVER_PACKET_SEEN",
    "SILVER_POW",
    "SILVER_PROBES",
    "UNFINISHED",
    "Column",
    "Dataset",
]

DATASETS: Final = (
    BRONZE_EVENTS,
    BRONZE_ARCHIVE,
    SILVER_CONNECTIONS,
    SILVER_DELIVERIES,
    SILVER_PACKETS,
    SILVER_POW,
    SILVER_PACKET_SEEN,
    SILVER_BSP_MESSAGES,
    SILVER_BSP_SYNC,
    SILVER_MESH_QUERIES,
    SILVER_MESH_LINKS,
    SILVER_PROBES,
    GOLD_OUTCOMES,
    GOLD_VERDICTS,
    GOLD_CAPACITY,
    GOLD_RELAY_HISTO,
    GOLD_RELAY_DAY,
    GOLD_RELAY_SCORES,
    GOLD_RELAY_TRANSITIONS,
    GOLD_CONSISTENCY,
    GOLD_ABUSE_FINDINGS,
    GOLD_POLICY,
    GOLD_BSP_GROUPS,
    GOLD_BSP_INVALID,
    GOLD_MESH_TOPOLOGY,
    OPS_RUNS,
    OPS_QUARANTINE,
    OPS_RETENTION,
)
