"""Parses journal lines into rows of ``bronze.events``, with a rejection reason and hash for each bad line.

``jobs.taking`` calls it with the lines of journal segments. ``parse_lines`` adds the reason, ``accept`` keeps the good
rows, and ``quarantine`` lists the bad ones without text.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType

from waystation.journal.contract import COLUMNS, TS_US_END, allowed_attributes, line_ddl
from waystation.journal.segment import NOT_A_WORD, event_id
from waystation.pipeline.tables import BRONZE_EVENTS, OPS_QUARANTINE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["accept", "any_of", "parse_lines", "parse_with", "quarantine", "reject"]

_BAD: Final = "_bad"
_NODE_ID_CHARS: Final = 16
# As journal.segment writes them. Shorter than an id52 (52) or a key in hexadecimal (64): no identity passes for a word.
_WORD: Final = r"^[A-Za-z0-9_.+\-]{1,48}\z"
_WORDS: Final = ("protocol", "outcome", "reason")
AMOUNT_END: Final = 10**15
"""First number of a column or attribute that is not believed: thirty years, a petabyte (PIPE-NUMBER)."""
_HUGE: Final = r"^[0-9]{16,}\z"
_REFERENCE: Final = r"^[0-9a-f]{32}\z"
_RELAY: Final = r"^[0-9a-f]{16}\z"
_REFERENCE_LIST: Final = r"^([0-9a-f]{32})*\z"
_REFERENCE_LISTS: Final = ("dependency_refs",)


def parse_lines(lines: "DataFrame") -> "DataFrame":
    """Read JSON lines by the contract and say of each why it cannot be taken.

    Takes ``value: string`` (the line) and ``segment: string``; blank lines fall away. Adds the contract's columns as
    lines carry them, and ``rejection: string``, null for a good line. Unknown fields are never read.
    """
    return parse_with(lines, line_ddl(), _rejection)


def parse_with(lines: "DataFrame", ddl: str, rejection: "Callable[[str], Column]") -> "DataFrame":
    """Read JSON lines of any kind of segment.

    Takes and gives what ``parse_lines`` does, with the columns of ``ddl``; other columns of ``lines`` are kept.

    Args:
        lines: What to read.
        ddl: Spark schema of a line.
        rejection: Returns the reason why a row is not taken, given the name of the column that is not null when the
            line could not be parsed.
    """
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    parsed = F.from_json("value", f"{ddl}, `{_BAD}` string", options)
    rows = lines.where(F.length(F.trim("value")) > 0).withColumn("row", parsed)
    return rows.select(*lines.columns, "row.*").withColumn("rejection", rejection(_BAD)).drop(_BAD)


def accept(parsed: "DataFrame") -> "DataFrame":
    """Return the good rows as ``bronze.events`` has them, each event once.

    Takes what ``parse_lines`` gives. Adds ``event_id: binary``, ``node_id: string`` and ``event_date: date``; turns
    ``ts`` into a timestamp and references into binary; drops ``value``, ``rejection`` and attributes the kind does not
    allow. A value that should be a word and is none is a phrase of a peer: it is replaced by ``not_a_word``.
    """
    good = parsed.where(F.col("rejection").isNull()).dropDuplicates(["segment", "seq"])
    typed = good.select("segment", *(_lake_value(column.name, column.lake_type) for column in COLUMNS))
    named = typed.withColumn("event_id", _event_ids("segment", "seq")).withColumn(
        "node_id", F.substring("segment", 1, _NODE_ID_CHARS)
    )
    return named.select(*BRONZE_EVENTS.names(), F.to_date("ts").alias("event_date"))


def reject(parsed: "DataFrame") -> "DataFrame":
    """Return the lines that were not taken, without their text.

    Takes what ``parse_lines`` gives. Leaves ``segment: string``, ``reason: string`` and ``hash: string``, the SHA-256
    of the line in hexadecimal; ``quarantine`` gives the same as rows of ``ops.quarantine``.
    """
    bad = parsed.where(F.col("rejection").isNotNull())
    return bad.select("segment", F.col("rejection").alias("reason"), F.sha2("value", 256).alias("hash"))


def quarantine(parsed: "DataFrame", dataset: str) -> "DataFrame":
    """Return the lines that were not taken as ``ops.quarantine`` has them, equal lines of a segment once.

    Takes what ``parse_lines`` gives. Adds ``dataset: string`` and ``event_date: date``, the date on which the segment
    began; leaves ``segment``, ``reason`` and ``hash`` as ``reject`` does.
    """
    began = F.timestamp_micros(F.split_part("segment", F.lit("-"), F.lit(2)).cast("bigint"))
    named = reject(parsed).withColumn("dataset", F.lit(dataset)).withColumn("event_date", F.to_date(began))
    rows = named.groupBy("dataset", "segment", "hash", "event_date").agg(F.min("reason").alias("reason"))
    return rows.select(*OPS_QUARANTINE.names(), "event_date")


def any_of(conditions: "list[Column]") -> "Column":
    """Return whether one of the conditions holds; one that is null does not."""
    found = F.lit(False)
    for condition in conditions:
        found = found | F.coalesce(condition, F.lit(False))
    return found


def _rejection(bad: str) -> "Column":
    kinds = sorted(allowed_attributes())
    required = [column.name for column in COLUMNS if not column.nullable]
    numbers = [column.name for column in COLUMNS if column.line_type == "bigint"]
    references = [(column.name, column.size_bytes) for column in COLUMNS if column.size_bytes is not None]
    return (
        F.when(F.col(bad).isNotNull(), "unparsable")
        .when(F.col("kind").isNull(), "missing_kind")
        .when(~F.col("kind").isin(kinds), "unknown_kind")
        .when(any_of([F.col(name).isNull() for name in required]), "missing_column")
        .when(any_of([F.col(name) < 0 for name in numbers]) | (F.col("ts") >= TS_US_END), "bad_number")
        .when(any_of([F.col(name) >= AMOUNT_END for name in numbers if name != "ts"]), "bad_number")
        .when(any_of([~F.col(name).rlike(rf"^[0-9a-f]{{{2 * size}}}\z") for name, size in references]), "bad_reference")
    )


def _lake_value(name: str, lake_type: str) -> "Column":
    if lake_type == "timestamp":
        return F.timestamp_micros(name).alias(name)
    if lake_type == "binary":
        return F.unhex(name).alias(name)
    if lake_type.startswith("map"):
        return _words_only(_allowed_only(name)).alias(name)
    if name == "relay_id":
        return F.when(F.col(name).rlike(_RELAY), F.col(name)).alias(name)
    return _word(F.col(name)).alias(name) if name in _WORDS else F.col(name)


def _word(value: "Column") -> "Column":
    return F.when(value.isNull() | value.rlike(_WORD), value).otherwise(NOT_A_WORD)


def _words_only(attributes: "Column") -> "Column":
    def worded(key: "Column", value: "Column") -> "Column":
        is_list = key.isin(*_REFERENCE_LISTS) & value.rlike(_REFERENCE_LIST)
        is_huge = value.rlike(_HUGE) & ~value.rlike(_REFERENCE)
        return F.when(is_list, value).when(is_huge, NOT_A_WORD).otherwise(_word(value))

    return F.transform_values(attributes, worded)


def _allowed_only(name: str) -> "Column":
    allowed = F.create_map(
        *(
            item
            for kind, keys in sorted(allowed_attributes().items())
            for item in (F.lit(kind), F.array(*map(F.lit, keys)).cast("array<string>"))
        )
    )
    keys_of_kind = F.element_at(allowed, F.col("kind"))
    return F.map_filter(name, lambda key, _: F.array_contains(keys_of_kind, key))


@arrow_udf(BinaryType())  # type: ignore[call-overload, untyped-decorator]
def _event_ids(segments: pa.Array, seqs: pa.Array) -> pa.Array:
    pairs = zip(segments.to_pylist(), seqs.to_pylist(), strict=True)
    return pa.array([event_id(segment, seq) for segment, seq in pairs], pa.binary())
