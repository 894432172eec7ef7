"""Merges the events of each BSP message (group message of Bramble Sync) into one row: dependencies and last state.

``jobs.bsp`` calls it: ``bronze.events`` go in, rows of ``silver.bsp_messages`` come out. Ids are keyed references of
one week.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.tables import SILVER_BSP_MESSAGES
from waystation.pipeline.transforms.attributes import attribute, is_well_formed, number_or_none, reference
from waystation.rules.causal_graph import DELETED, DELIVERED, INVALID, WAITING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["bsp_messages", "malformed_message"]

_KINDS: Final = ("message_stored", "message_changed")
_STATES: Final = (DELIVERED, WAITING, INVALID, DELETED)
_HEX: Final = "^[0-9a-f]*$"
_REFERENCE_CHARS: Final = 32


def bsp_messages(events: "DataFrame") -> "DataFrame":
    """Put the events of each message into one row: how it arrived, and its last state.

    Takes ``bronze.events``; events with a malformed attribute or an unknown state fall away. Of several arrivals the
    first counts, of several states the last, by ``ts``, ``seq`` and ``event_id``. A message whose arrival was not kept
    has no dependencies that are known. Gives the columns of ``silver.bsp_messages`` and ``event_date: date``, the date
    on which it was stored, or changed when its arrival was not kept.

    References rotate weekly: a message that depends on one of the week before depends on a reference that no row has,
    and the two weeks of one group are two groups.
    """
    reports = events.where(F.col("kind").isin(*_KINDS) & _is_well_formed()).select(
        "node_id",
        reference("group_ref").alias("group_ref"),
        reference("message_ref").alias("message_ref"),
        (F.col("kind") == "message_stored").alias("arrived"),
        F.struct("ts", "seq", "event_id").alias("at"),
        _dependencies().alias("dependency_refs"),
        number_or_none("created_ms").alias("created_ms"),
        F.col("bytes").alias("size"),
        F.struct(F.col("outcome").alias("state"), "reason", F.col("ts").alias("changed_at")).alias("last"),
        F.nullif(number_or_none("order"), F.lit(0)).alias("delivery_order"),
    )
    arrival = F.struct("dependency_refs", "created_ms", F.col("at.ts").alias("stored_at"), "size")
    rows = reports.groupBy("node_id", "group_ref", "message_ref").agg(
        F.min_by(F.when(F.col("arrived"), arrival), F.when(F.col("arrived"), F.col("at"))).alias("arrival"),
        F.max_by("last", "at").alias("last"),
        F.max("delivery_order").alias("delivery_order"),
    )
    named = rows.select(
        "node_id",
        "group_ref",
        "message_ref",
        F.coalesce("arrival.dependency_refs", F.array().cast("array<binary>")).alias("dependency_refs"),
        *(f"arrival.{name}" for name in ("created_ms", "stored_at", "size")),
        "last.state",
        F.when(F.col("last.state") == INVALID, F.col("last.reason")).alias("reason"),
        "last.changed_at",
        "delivery_order",
    )
    dated = F.to_date(F.coalesce("stored_at", "changed_at")).alias("event_date")
    return named.select(*SILVER_BSP_MESSAGES.names(), dated)


def malformed_message() -> "Column":
    """Return whether a row of ``bronze.events`` is about a message, and ``bsp_messages`` turns it down; never null."""
    return F.col("kind").isin(*_KINDS) & ~_is_well_formed()


def _is_well_formed() -> "Column":
    """Return whether an event names a group, a message, a known state, and whole references it depends on."""
    arrived = F.col("kind") == "message_stored"
    text = attribute("dependency_refs")
    whole = F.coalesce(text.rlike(_HEX) & (F.length(text) % _REFERENCE_CHARS == 0), F.lit(False))
    state = F.coalesce(F.col("outcome").isin(*_STATES), F.lit(False))
    numbers = is_well_formed("created_ms") & is_well_formed("order")
    named = reference("group_ref").isNotNull() & reference("message_ref").isNotNull()
    return named & state & numbers & (~arrived | whole)


def _dependencies() -> "Column":
    """Return the references that an event says its message depends on, each once and sorted; null for a change."""
    one = F.lit(f"[0-9a-f]{{{_REFERENCE_CHARS}}}")
    texts = F.regexp_extract_all(attribute("dependency_refs"), one, F.lit(0))
    return F.transform(F.array_sort(F.array_distinct(texts)), F.unhex)
