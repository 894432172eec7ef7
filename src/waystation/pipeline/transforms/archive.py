"""Parses archive lines of signed packets into rows of ``bronze.archive``, with a rejection reason per bad line.

``jobs.taking`` calls it with lines of archive segments. The signature is not checked here; ``transforms.packets`` does.
"""

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.journal.archive import ARCHIVE_COLUMNS, PACKET_KIND, archive_line_ddl
from waystation.journal.contract import NODE_PROTOCOL, TS_US_END
from waystation.pipeline.tables import BRONZE_ARCHIVE
from waystation.pipeline.transforms.ingest import any_of, parse_with

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["accept_packets", "parse_packet_lines"]

_KINDS: Final = (PACKET_KIND, "segment_opened", "segment_sealed", "refused")
_NODE_ID_CHARS: Final = 16
_NUMBERS: Final = ("ts", "seq", "received_at", "size")


def parse_packet_lines(lines: "DataFrame") -> "DataFrame":
    """Read JSON lines of an archive and say of each why it cannot be taken.

    Takes ``value: string`` (the line) and ``segment: string``; blank lines fall away. Adds the columns as lines carry
    them, and ``rejection: string``, null for a good line. Unknown fields are never read.
    """
    return parse_with(lines, archive_line_ddl(), _rejection)


def accept_packets(parsed: "DataFrame") -> "DataFrame":
    """Return the good packets as ``bronze.archive`` has them, each line once.

    Takes what ``parse_packet_lines`` gives. Adds ``node_id: string``, ``stored_at: timestamp`` and ``event_date: date``
    (of ``received_at``); turns times into timestamps and hexadecimal text into binary; drops ``value``, ``rejection``
    and lines that are no packets.
    """
    good = parsed.where(F.col("rejection").isNull() & (F.col("kind") == PACKET_KIND))
    typed = good.dropDuplicates(["segment", "seq"]).select(
        F.substring("segment", 1, _NODE_ID_CHARS).alias("node_id"),
        "segment",
        "seq",
        F.timestamp_micros("ts").alias("stored_at"),
        "protocol",
        *(_lake_value(column.name, column.lake_type) for column in ARCHIVE_COLUMNS),
    )
    return typed.select(*BRONZE_ARCHIVE.names(), F.to_date("received_at").alias("event_date"))


def _rejection(bad: str) -> "Column":
    is_packet = F.col("kind") == PACKET_KIND
    common = [F.col(name).isNull() for name in ("ts", "seq", "protocol")]
    required = [is_packet & F.col(column.name).isNull() for column in ARCHIVE_COLUMNS if not column.nullable]
    hexes = [(column.name, column.size_bytes) for column in ARCHIVE_COLUMNS if column.size_bytes is not None]
    wrong_size = is_packet & (F.col("size") != F.octet_length("signed_bytes"))
    too_late = (F.col("ts") >= TS_US_END) | (F.col("received_at") >= TS_US_END // MICROSECONDS_PER_SECOND)
    return (
        F.when(F.col(bad).isNotNull(), "unparsable")
        .when(F.col("kind").isNull(), "missing_kind")
        .when(~F.col("kind").isin(*_KINDS) | (is_packet & (F.col("protocol") == NODE_PROTOCOL)), "unknown_kind")
        .when(any_of([*common, *required]), "missing_column")
        .when(any_of([*(F.col(name) < 0 for name in _NUMBERS), too_late, wrong_size]), "bad_number")
        .when(any_of([~F.col(name).rlike(rf"^[0-9a-f]{{{2 * size}}}\z") for name, size in hexes]), "bad_bytes")
    )


def _lake_value(name: str, lake_type: str) -> "Column":
    if lake_type == "timestamp":
        return F.timestamp_seconds(name).alias(name)
    if name == "signed_bytes":
        return F.col(name).cast("binary").alias(name)
    return F.unhex(name).alias(name) if lake_type == "binary" else F.col(name)
