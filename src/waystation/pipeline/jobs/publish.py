"""Step that publishes the policy, relay scores and console tables as of one moment, with a signed pointer.

``pipeline.run`` executes it on gold tables; ``pipeline.publish`` writes the files, which nodes and the console read.
Every table has a row limit, because nodes and the console read files of a few megabytes. A single attempt in one hour
might identify its user. Counts below ``suppress_below`` therefore become null, and delivery outcomes with a smaller
total are omitted. References remain keyed hashes; names of relays and nodes are public.
"""

import datetime
import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from waystation.core.errors import HostError, LocalError
from waystation.journal.contract import Privacy
from waystation.pipeline.jobs.step import Context, Counts
from waystation.pipeline.publish import Part, publish_parts, table_part
from waystation.pipeline.tables import (
    GOLD_BSP_GROUPS,
    GOLD_CAPACITY,
    GOLD_CONSISTENCY,
    GOLD_MESH_TOPOLOGY,
    GOLD_OUTCOMES,
    GOLD_POLICY,
    GOLD_RELAY_SCORES,
    GOLD_RELAY_TRANSITIONS,
    OPS_RUNS,
    Dataset,
)
from waystation.pipeline.transforms.publish import plain_rows, ranked_policy, within
from waystation.rules.abuse import RULE_VERSION
from waystation.rules.policy import (
    SCORES_MAX,
    Action,
    Mode,
    PolicyRule,
    RelayScore,
    decode_rules,
    decode_scores,
    encode_rule,
    encode_score,
)
from waystation.rules.relay_state import State
from waystation.rules.snapshot import FILE_BYTES_MAX, FILES_MAX, PARQUET_SCHEMA, POLICY_SCHEMA, SCORES_SCHEMA

__all__ = ["NODES_MAX", "RULES_PER_NODE_MAX", "publish"]

RULES_PER_NODE_MAX: Final = 20_000
"""Rules of one node that are looked at: about as many as its file of 4 MiB has room for."""
POLICY_ROWS_MAX: Final = 200_000
"""Rules of all nodes together."""
_OTHER_FILES: Final = 16
NODES_MAX: Final = FILES_MAX - _OTHER_FILES
"""Nodes that get a file of rules."""
RUNS_MAX: Final = 50
_DAY: Final = datetime.timedelta(days=1)
_HOUR: Final = datetime.timedelta(hours=1)
_NOW: Final = datetime.timedelta(0)
_STORE_EXIT_CODE: Final = 5


class _Table(NamedTuple):
    """One table for the console."""

    stem: str
    dataset: Dataset
    moment: str
    """Column that says when."""
    span: datetime.timedelta
    """How long before ``as_of`` it begins; nothing for rows of exactly that moment."""
    rows_max: int
    counts: tuple[str, ...] = ()
    """Columns whose small counts are left out."""
    adds_up: bool = False
    """Whether one count follows from the others: then one that is small takes all with it."""
    needs: str = ""
    """Column whose small count leaves the whole row out."""
    newest_first: bool = False
    is_local: bool = False


_SCORES: Final = _Table("scores", GOLD_RELAY_SCORES, "as_of", _NOW, SCORES_MAX, ("n_obs",), is_local=True)
_TABLES: Final = (
    _Table("outcomes", GOLD_OUTCOMES, "hour", 7 * _DAY, 10_000, needs="n", newest_first=True),
    _Table(
        "transitions",
        GOLD_RELAY_TRANSITIONS,
        "at",
        35 * _DAY,
        2_000,
        ("n_obs",),
        newest_first=True,
        is_local=True,
    ),
    _Table("topology", GOLD_MESH_TOPOLOGY, "hour", _HOUR, 2_000, ("n_queries", "n_found")),
    _Table(
        "consistency",
        GOLD_CONSISTENCY,
        "day",
        7 * _DAY,
        2_000,
        ("n_expected", "n_served", "n_missing"),
        adds_up=True,
        newest_first=True,
        is_local=True,
    ),
    _Table(
        "capacity",
        GOLD_CAPACITY,
        "day",
        35 * _DAY,
        5_000,
        ("peak_connections", "messages", "pow_accepted", "pow_turned_down"),
        newest_first=True,
    ),
    _Table(
        "bsp",
        GOLD_BSP_GROUPS,
        "as_of",
        _NOW,
        2_000,
        ("n_messages", "n_delivered", "n_waiting", "n_invalid_root", "n_invalid_transitive", "n_deleted", "n_peers"),
    ),
)


def publish(context: Context) -> Counts:
    """Write policy, scores and the console's tables of ``context.as_of``, then move the pointer.

    A lake in an object store publishes into the ``lake`` folder beside the journal: nodes read files, and scores do
    not leave the operator's machines.

    Raises:
        LocalError: There is no such folder.
        HostError: The disk refused (exit code 5); what was published before stands.
    """
    root = _local_root(context)
    try:
        parts, left_out = _parts(context)
        publish_parts(
            root,
            parts,
            as_of=context.as_of,
            expires_at=context.as_of + datetime.timedelta(hours=context.settings.policy_hours),
            rule_version=RULE_VERSION,
        )
    except OSError as error:
        raise HostError(f"cannot publish: {error.strerror}", exit_code=_STORE_EXIT_CODE) from error
    rows = sum(part.rows for part in parts)
    return Counts(rows + left_out, rows, left_out)


def _local_root(context: Context) -> Path:
    local = context.lake.storage.local
    if local is None and context.journal is not None:
        return context.journal.parent / "lake"
    if local is None:
        raise LocalError(f"the lake {context.lake.root} is no folder, and no journal names the node to publish for")
    return local


def _parts(context: Context) -> tuple[list[Part], int]:
    """Return every file, and how many rows were left out."""
    policy, cut = _policy_parts(context)
    scores = _rows(context, _SCORES)
    parts = [*policy, *_score_parts(context, scores), _runs_part(context)]
    for table in _TABLES:
        rows = _rows(context, table)
        shown = _suppressed(rows, table, context.settings.suppress_below)
        cut += len(rows) - len(shown)
        parts.append(_fitting(partial(_table_of, context, table), shown))
    return parts, cut


# Policy


def _policy_parts(context: Context) -> tuple[list[Part], int]:
    """Return the file of each node that has rules, and how many rules had no room."""
    if not context.lake.manifest(GOLD_POLICY).batches:
        return [], 0
    policy = context.read(GOLD_POLICY, [context.as_of.date()])
    rows = ranked_policy(policy, context.as_of, RULES_PER_NODE_MAX).limit(POLICY_ROWS_MAX).collect()
    parts: list[Part] = []
    taken = 0
    for node_id, of_node in groupby(rows, key=lambda row: str(row["node_id"])):
        lines = list(_as_fit(encode_rule(_rule_of(row)) for row in of_node))
        if len(parts) < NODES_MAX:
            data = b"".join(lines)
            decode_rules(data)  # what a node would refuse must not get as far as a node
            parts.append(Part(f"policy-{node_id}", "jsonl", POLICY_SCHEMA, len(lines), data))
            taken += len(lines)
    return parts, len(rows) - taken


def _rule_of(row: Any) -> PolicyRule:
    return PolicyRule(
        row["kind"],
        bytes(row["ref"]),
        Action(row["action"]),
        row["amount"],
        row["rule"],
        row["from_us"],
        row["until_us"],
        row["rule_version"],
        Mode(row["mode"]),
    )


def _as_fit(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines with their ends while the file has room."""
    size = 0
    for line in lines:
        size += len(line) + 1
        if size <= FILE_BYTES_MAX:
            yield line + b"\n"


# Scores


def _score_parts(context: Context, rows: list[dict[str, Any]]) -> list[Part]:
    """Return the scores for nodes, for analysts and for the console; none of them leaves the lake's folder."""
    lines = b"".join([encode_score(_score_of(row)) + b"\n" for row in rows])
    decode_scores(lines)
    table = _table_of(context, _SCORES, _suppressed(rows, _SCORES, context.settings.suppress_below))
    return [
        Part("scores", "jsonl", SCORES_SCHEMA, len(rows), lines, is_local=True),
        Part("scores", "parquet", PARQUET_SCHEMA, len(rows), _parquet(rows), is_local=True),
        table,
    ]


def _score_of(row: dict[str, Any]) -> RelayScore:
    state, score = State(row["state"]), round(row["score"], 6)
    return RelayScore(row["relay_id"], score, state, row["since"], row["reason"], row["as_of"])


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 - part of an extra
    import pyarrow.parquet as pq  # noqa: PLC0415

    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, GOLD_RELAY_SCORES.arrow_schema()), buffer, compression="zstd")
    return buffer.getvalue()


# Tables for the console


def _rows(context: Context, table: _Table) -> list[dict[str, Any]]:
    """Return at most ``rows_max`` rows as JSON values."""
    if not context.lake.manifest(table.dataset).batches:
        return []
    first = context.as_of - table.span
    days = (context.as_of.date() - first.date()).days
    frame = context.read(table.dataset, {first.date() + number * _DAY for number in range(days + 1)})
    inside = within(frame, table.moment, first, context.as_of)
    chosen = plain_rows(inside, table.dataset, table.moment if table.newest_first else "").limit(table.rows_max)
    return [row.asDict() for row in chosen.collect()]


def _suppressed(rows: list[dict[str, Any]], table: _Table, least: int) -> list[dict[str, Any]]:
    """Leave out counts of fewer than ``least``: as null, out of histograms, and with them rows that say no more."""
    kept = [dict(row) for row in rows if not table.needs or row[table.needs] >= least]
    for row in kept:
        small = [name for name in table.counts if row[name] is not None and 0 < row[name] < least]
        row.update(dict.fromkeys(table.counts if small and table.adds_up else small))
        if "histogram" in row:
            row["histogram"] = [[bucket, n] for bucket, n in row["histogram"] if n >= least]
    return kept


def _table_of(context: Context, table: _Table, rows: list[dict[str, Any]]) -> Part:
    return table_part(table.stem, context.as_of, [_dated(row, table.dataset) for row in rows], is_local=table.is_local)


def _dated(row: dict[str, Any], dataset: Dataset) -> dict[str, Any]:
    """Return the row with its timestamps as texts, and without references and ids, which are not published."""
    hidden = {each.name for each in dataset.columns if each.privacy is Privacy.PSEUDONYMOUS or "binary" in each.type}
    row = {name: value for name, value in row.items() if name not in hidden}
    times = [column.name for column in dataset.columns if column.type == "timestamp" and row[column.name] is not None]
    return row | {name: _text_of(row[name]) for name in times}


def _text_of(moment_us: int) -> str:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (epoch + datetime.timedelta(microseconds=moment_us)).isoformat()


def _fitting(made: Callable[[list[dict[str, Any]]], Part], rows: list[dict[str, Any]]) -> Part:
    """Return the table with as many of its first rows as a node reads."""
    part = made(rows)
    while len(part.data) > FILE_BYTES_MAX:
        rows = rows[: len(rows) * 3 // 4]
        part = made(rows)
    return part


def _runs_part(context: Context) -> Part:
    """Return the last runs without anything that names a place on this machine."""
    if context.lake.storage.local is None:
        return table_part("runs", context.as_of, [])
    paths = sorted(context.lake.folder(OPS_RUNS).glob("event_date=*/*.json"))[-RUNS_MAX:]
    rows = []
    for path in reversed(paths):
        try:
            document = json.loads(path.read_bytes())
            shown = {name: document[name] for name in ("run_id", "started_at", "finished_at", "engine", "steps")}
            rows.append(shown | {name: len(document[name]) for name in ("segments", "rejections")})
        except (ValueError, TypeError, KeyError) as error:
            raise HostError(f"{path} is no run report: {error!r}", exit_code=_STORE_EXIT_CODE) from error
    return _fitting(lambda some: table_part("runs", context.as_of, some), rows)
