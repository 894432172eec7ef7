"""Computes one row per BSP group (message group that devices synchronise): counts, invalid messages and peers.

``jobs.bsp`` calls it. Input is ``silver.bsp_messages`` and ``silver.bsp_sync`` up to ``as_of``. ``rules.causal_graph``
walks each group once.
"""

import datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.tables import GOLD_BSP_GROUPS, GOLD_BSP_INVALID
from waystation.rules.causal_graph import Cause, Closure, close

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["bsp_groups", "bsp_invalid", "closures"]

_GROUP: Final = ("node_id", "group_ref")
_FACTS: Final = Closure._fields[:-1]
_CAUSE: Final = ("message_ref", "root_ref", "distance")
_TYPES: Final = {
    "node_id": pa.string(),
    "group_ref": pa.binary(),
    **dict.fromkeys(_FACTS, pa.int64()),
    "message_ref": pa.binary(),
    "root_ref": pa.binary(),
    "distance": pa.int64(),
}
_DDL: Final = (
    f"node_id string, group_ref binary, {', '.join(f'{name} bigint' for name in _FACTS)}, "
    "message_ref binary, root_ref binary, distance bigint"
)


def closures(messages: "DataFrame", as_of: datetime.datetime) -> "DataFrame":
    """Walk each group once, by ``rules.causal_graph.close``.

    Takes ``silver.bsp_messages``; messages that came at ``as_of`` or later are left out, the others count with the
    state last known. Gives ``node_id: string``, ``group_ref: binary`` and two kinds of rows: one per group with the
    counts of ``Closure``, all ``bigint``, and one per invalid message whose root is known with ``message_ref``,
    ``root_ref: binary`` and ``distance: bigint``; the columns of the other kind are null. Keep the frame for both
    tables: ``bsp_groups`` and ``bsp_invalid`` take it apart.
    """
    known = messages.where(F.coalesce("stored_at", "changed_at") < F.lit(as_of))
    needed = known.select(*_GROUP, "message_ref", "dependency_refs", "state", "reason")
    return needed.groupBy(*_GROUP).applyInArrow(_close_table, _DDL)


def bsp_groups(closed: "DataFrame", messages: "DataFrame", sync: "DataFrame", as_of: datetime.datetime) -> "DataFrame":
    """Return one row per group, as it is known at ``as_of``.

    Takes what ``closures`` gives, ``silver.bsp_messages`` and ``silver.bsp_sync``. Words of peers at ``as_of`` or later
    are left out. Gives the columns of ``gold.bsp_groups`` and ``event_date: date``, the date of ``as_of``.
    """
    counts = closed.where(F.col("n_messages").isNotNull()).select(*_GROUP, *_FACTS)
    rows = counts.join(_peers(messages, sync, as_of), list(_GROUP), "left").withColumns(
        {"n_peers": F.coalesce("n_peers", F.lit(0)), "as_of": F.lit(as_of)}
    )
    return rows.select(*GOLD_BSP_GROUPS.names(), _date_of(as_of))


def bsp_invalid(closed: "DataFrame", as_of: datetime.datetime) -> "DataFrame":
    """Return one row per invalid message whose root is known.

    Takes what ``closures`` gives. Gives the columns of ``gold.bsp_invalid`` and ``event_date: date``, the date of
    ``as_of``.
    """
    causes = closed.where(F.col("message_ref").isNotNull())
    return causes.select(*GOLD_BSP_INVALID.names(), _date_of(as_of))


def _date_of(as_of: datetime.datetime) -> "Column":
    return F.to_date(F.lit(as_of)).alias("event_date")


def _peers(messages: "DataFrame", sync: "DataFrame", as_of: datetime.datetime) -> "DataFrame":
    """Return by group ``n_peers`` and ``converge_us``, as ``rules.causal_graph.converge_us`` defines it.

    Peers need not have reported a message of the node: one that holds a message of last week's group counts there.
    """
    stored = messages.where(F.col("stored_at") < F.lit(as_of)).select(*_GROUP, "message_ref", "stored_at")
    held = sync.where(F.col("held_at") < F.lit(as_of)).join(stored, [*_GROUP, "message_ref"], "left")
    waited = F.unix_micros("held_at") - F.unix_micros("stored_at")
    return held.groupBy(*_GROUP).agg(
        F.countDistinct("peer_ref").alias("n_peers"),
        F.max(F.when(waited.isNotNull(), F.greatest(waited, F.lit(0)))).alias("converge_us"),
    )


def _close_table(group: pa.Table) -> pa.Table:
    """Turn the messages of one group into its row and the rows of its invalid messages."""
    columns = [group.column(name).to_pylist() for name in ("message_ref", "dependency_refs", "state", "reason")]
    closed = close(list(zip(*columns, strict=True)))
    causes = closed.causes
    nothing = [None] * len(causes)
    rows = {
        "node_id": [group.column("node_id")[0].as_py()] * (len(causes) + 1),
        "group_ref": [group.column("group_ref")[0].as_py()] * (len(causes) + 1),
        **{name: [count, *nothing] for name, count in zip(_FACTS, closed, strict=False)},
        **{name: [None, *values] for name, values in zip(_CAUSE, _turned(causes), strict=True)},
    }
    return pa.table([pa.array(rows[name], kind) for name, kind in _TYPES.items()], names=list(_TYPES))


def _turned(causes: list[Cause]) -> list[list[bytes | int]]:
    return [list(column) for column in zip(*causes, strict=True)] or [[] for _ in _CAUSE]
