"""Gold (result) datasets on graphs: Bramble Sync groups and the mesh of MERK nodes.

``jobs.bsp`` and ``jobs.mesh`` write them; report and publication read them.
"""

from typing import Final

from waystation.pipeline.tables.columns import NODE, OPERATIONAL, PSEUDONYMOUS, PUBLIC
from waystation.pipeline.tables.dataset import Column, Dataset

__all__ = ["GOLD_BSP_GROUPS", "GOLD_BSP_INVALID", "GOLD_MESH_TOPOLOGY"]

GOLD_BSP_GROUPS: Final = Dataset(
    "gold",
    "bsp_groups",
    "one group at one node and moment",
    (
        NODE,
        Column("group_ref", "binary", False, PSEUDONYMOUS, "Keyed hash of the group's id."),
        Column("as_of", "timestamp", False, OPERATIONAL, "Moment."),
        Column("n_messages", "bigint", False, OPERATIONAL, "Messages that are known."),
        Column("n_delivered", "bigint", False, OPERATIONAL, "Delivered ones."),
        Column("n_waiting", "bigint", False, OPERATIONAL, "Ones that wait for others."),
        Column("n_invalid_root", "bigint", False, OPERATIONAL, "Invalid by themselves."),
        Column("n_invalid_transitive", "bigint", False, OPERATIONAL, "Invalid because of another."),
        Column("n_deleted", "bigint", False, OPERATIONAL, "Deleted ones."),
        Column("missing_deps", "bigint", False, OPERATIONAL, "Messages that others depend on and no node has seen."),
        Column("depth", "bigint", False, OPERATIONAL, "Longest chain of dependencies, in messages."),
        Column("n_components", "bigint", False, OPERATIONAL, "Parts that no dependency joins."),
        Column("fork_width", "bigint", False, OPERATIONAL, "Delivered messages that nothing depends on."),
        Column("n_peers", "bigint", False, OPERATIONAL, "Peers that are known to hold something of it."),
        Column(
            "converge_us",
            "bigint",
            True,
            OPERATIONAL,
            "Longest time from storing a message to a peer's word that it holds it; null without one.",
        ),
    ),
    ("node_id", "group_ref", "as_of"),
    "as_of",
    30,
)

GOLD_BSP_INVALID: Final = Dataset(
    "gold",
    "bsp_invalid",
    "one invalid message at one node",
    (
        NODE,
        Column("group_ref", "binary", False, PSEUDONYMOUS, "Keyed hash of the group's id."),
        Column("message_ref", "binary", False, PSEUDONYMOUS, "Keyed hash of the message's id."),
        Column(
            "root_ref",
            "binary",
            False,
            PSEUDONYMOUS,
            "The nearest message that is invalid by itself; of several the smallest.",
        ),
        Column("distance", "bigint", False, OPERATIONAL, "Dependencies between the two; 0 for a root."),
    ),
    ("node_id", "group_ref", "message_ref"),
    "as_of",
    30,
)

GOLD_MESH_TOPOLOGY: Final = Dataset(
    "gold",
    "mesh_topology",
    "one server of the mesh and hour",
    (
        Column("server", "string", False, PUBLIC, "Node, 16 hexadecimal digits."),
        Column("hour", "timestamp", False, PUBLIC, "Hour."),
        Column("neighbours", "array<string>", False, PUBLIC, "Nodes it was linked with, sorted."),
        Column("degree", "bigint", False, OPERATIONAL, "How many."),
        Column("component", "string", False, OPERATIONAL, "Smallest node of its part of the mesh."),
        Column("component_size", "bigint", False, OPERATIONAL, "Nodes of that part."),
        Column("is_articulation", "boolean", False, OPERATIONAL, "Whether its loss would split that part."),
        Column("n_queries", "bigint", False, OPERATIONAL, "Look-ups it began."),
        Column("n_found", "bigint", False, OPERATIONAL, "Look-ups that found the client."),
        Column(
            "p95_us",
            "bigint",
            True,
            OPERATIONAL,
            "Upper edge of the bucket that holds 95 of 100 times to find one; null without one.",
        ),
    ),
    ("server", "hour"),
    "hour",
    90,
)
