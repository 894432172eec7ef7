"""Bronze (raw) datasets: journal events and archived packets, typed and validated but not combined.

``jobs.ingest`` and ``jobs.stream`` write them, later steps read them. Everything else can be computed again from these
two.
"""

from typing import Final

from waystation.journal.archive import ARCHIVE_COLUMNS
from waystation.journal.contract import COLUMNS
from waystation.journal.contract import Column as JournalColumn
from waystation.pipeline.tables.columns import NODE, OPERATIONAL, PROTOCOL, PUBLIC
from waystation.pipeline.tables.dataset import Column, Dataset

__all__ = ["BRONZE_ARCHIVE", "BRONZE_EVENTS"]


def _from_journal(column: JournalColumn) -> Column:
    return Column(column.name, column.lake_type, column.nullable, column.privacy, column.meaning)


BRONZE_EVENTS: Final = Dataset(
    "bronze",
    "events",
    "one event of one node",
    (
        Column("event_id", "binary", False, PUBLIC, "16-byte BLAKE2b of segment and seq: the same for every copy."),
        NODE,
        Column("segment", "string", False, PUBLIC, "Segment it was read from."),
        *(_from_journal(column) for column in COLUMNS),
    ),
    ("event_id",),
    "ts",
    14,
)

BRONZE_ARCHIVE: Final = Dataset(
    "bronze",
    "archive",
    "one packet as one node stored it",
    (
        NODE,
        Column("segment", "string", False, PUBLIC, "Segment it was read from."),
        Column("seq", "bigint", False, PUBLIC, "Number of the line in its segment."),
        Column("stored_at", "timestamp", False, OPERATIONAL, "When the node stored it."),
        PROTOCOL,
        *(Column(c.name, c.lake_type, c.nullable, c.privacy, c.meaning) for c in ARCHIVE_COLUMNS),
    ),
    ("segment", "seq"),
    "received_at",
    14,
)
