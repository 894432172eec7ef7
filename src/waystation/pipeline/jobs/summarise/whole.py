"""Builds the ``Summary``, the complete data of the report, from the tables.

``pipeline.run`` calls it after the steps and gives the result to ``report.page``. Every list in it is bounded, whatever
the size of the tables, so that the page can be drawn without Spark.
"""

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from waystation.pipeline.jobs.step import DateRange
from waystation.pipeline.jobs.summarise import graphs, operations, policy, relays, traffic
from waystation.pipeline.jobs.summarise.reading import Reading
from waystation.pipeline.lake import Lake
from waystation.pipeline.report import Summary
from waystation.pipeline.tables import (
    BRONZE_EVENTS,
    GOLD_ABUSE_FINDINGS,
    GOLD_BSP_GROUPS,
    GOLD_BSP_INVALID,
    GOLD_CAPACITY,
    GOLD_CONSISTENCY,
    GOLD_MESH_TOPOLOGY,
    GOLD_OUTCOMES,
    GOLD_POLICY,
    GOLD_RELAY_SCORES,
    GOLD_RELAY_TRANSITIONS,
    GOLD_VERDICTS,
    OPS_QUARANTINE,
    OPS_RETENTION,
    SILVER_CONNECTIONS,
    SILVER_PACKETS,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["summarise"]

_NEWEST_DAYS: Final = 2
"""Datasets of moments are read this far back: the day may just have begun."""

_Row = TypeVar("_Row")


def summarise(spark: "SparkSession", lake: Lake, dates: DateRange, as_of: datetime.datetime | None = None) -> Summary:
    """Return what the report shows of the chosen dates.

    Args:
        spark: The session.
        lake: What is read.
        dates: Dates to show.
        as_of: Moment for which findings and policy hold or not; None takes all of them as holding.
    """
    lake_rows = Reading(spark, lake, dates)
    events = lake_rows.rows(BRONZE_EVENTS)
    findings = lake_rows.rows(GOLD_ABUSE_FINDINGS)
    mesh = lake_rows.rows(GOLD_MESH_TOPOLOGY)
    hours = _rows_of(mesh, graphs.mesh_hours)
    return Summary(
        outcomes=_rows_of(lake_rows.rows(GOLD_OUTCOMES), traffic.outcomes),
        connections=_rows_of(lake_rows.rows(SILVER_CONNECTIONS), traffic.connections),
        anonymous=_rows_of(events, traffic.anonymous),
        refusals=_rows_of(events, traffic.refusals),
        row_counts=operations.row_counts(lake, dates),
        verdicts=_rows_of(lake_rows.rows(GOLD_VERDICTS), traffic.verdicts),
        checks=_rows_of(lake_rows.rows(SILVER_PACKETS), traffic.checks),
        relays=_rows_of(lake_rows.rows(GOLD_RELAY_SCORES, _NEWEST_DAYS), relays.relays),
        transitions=_rows_of(lake_rows.rows(GOLD_RELAY_TRANSITIONS), relays.transitions),
        findings=_rows_of(findings, policy.findings),
        findings_hourly=_rows_of(findings, policy.findings_hourly),
        policy=_rows_of(lake_rows.rows(GOLD_POLICY, _NEWEST_DAYS), lambda frame: policy.policy(frame, as_of)),
        servers=_rows_of(mesh, lambda frame: graphs.servers(frame, hours)),
        mesh_hours=hours,
        groups=_rows_of(lake_rows.rows(GOLD_BSP_GROUPS), graphs.groups),
        roots=_rows_of(lake_rows.rows(GOLD_BSP_INVALID, 1), graphs.roots),
        consistency=_rows_of(lake_rows.rows(GOLD_CONSISTENCY), relays.consistency),
        capacity=_rows_of(lake_rows.rows(GOLD_CAPACITY), operations.capacity),
        retention=_rows_of(lake_rows.rows(OPS_RETENTION), operations.retention),
        quarantine=_rows_of(lake_rows.rows(OPS_QUARANTINE), operations.quarantine),
        runs=operations.runs(lake),
        as_of_s=None if as_of is None else int(as_of.timestamp()),
    )


def _rows_of(frame: "DataFrame | None", ask: Callable[["DataFrame"], list[_Row]]) -> list[_Row]:
    """Return what a question gives of a dataset: nothing, without asking Spark, when it holds nothing."""
    return [] if frame is None else ask(frame)
