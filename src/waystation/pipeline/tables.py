"""Every dataset of the lake: its columns, key, partition, retention and privacy.

Schemas that Spark reads and writes with derive from here; nothing is ever inferred. Columns are only added (nullable)
or widened; anything else is a new version of the dataset in a folder of its own.
"""

from dataclasses import dataclass
from typing import Final

from waystation.core.facts import Outcome
from waystation.journal.archive import ARCHIVE_COLUMNS
from waystation.journal.contract import COLUMNS, Privacy
from waystation.journal.contract import Column as JournalColumn

__all__ = ["BRONZE_ARCHIVE", "BRONZE_EVENTS", "DATASETS", "GOLD_OUTCOMES", "GOLD_VERDICTS", "OPS_RUNS"]
__all__ += ["SILVER_CONNECTIONS", "SILVER_DELIVERIES", "SILVER_PACKETS"]
__all__ += ["OUTCOMES", "UNFINISHED", "Column", "Dataset"]

UNFINISHED: Final = "unfinished"
"""Outcome of attempts that have none yet, in ``gold.delivery_outcomes``."""

OUTCOMES: Final = {
    Outcome.OK.value: "the recipient answered, or was handed what needs no answer",
    Outcome.CACHED.value: "answered from the relay's cache: a retry whose first answer was lost",
    Outcome.OFFLINE.value: "the recipient was not connected; nothing was delivered",
    Outcome.BAD_CAPABILITY.value: "the preimage was unknown or used already; nothing was delivered",
    Outcome.TIMEOUT.value: "the recipient, or a node that was asked for it, did not answer in time",
    Outcome.GONE.value: "the recipient left before it answered, or its lease ended before it had the packet",
    Outcome.REFUSED.value: "a queue was full, a rate or a size exceeded; nothing was delivered",
    UNFINISHED: "no outcome was recorded, as when the node was killed",
}
"""Each outcome and what it means, for the page and the documentation."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a dataset."""

    name: str
    type: str
    """Spark SQL type."""
    nullable: bool
    privacy: Privacy
    meaning: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """One dataset and what is promised about it."""

    layer: str
    name: str
    grain: str
    """What one row is."""
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    retention_days: int
    """How long rows are meant to be kept."""
    version: int = 1

    @property
    def full_name(self) -> str:
        """Layer and name, such as ``silver.deliveries``."""
        return f"{self.layer}.{self.name}"

    @property
    def folder(self) -> str:
        """Where it lies below the root of the lake."""
        return f"{self.layer}/{self.name}/v={self.version}"

    def names(self) -> list[str]:
        """Return the column names in order, without the partition columns."""
        return [column.name for column in self.columns]

    def ddl(self) -> str:
        """Return the Spark schema of the files, partition columns included."""
        columns = [f"`{column.name}` {column.type}" for column in self.columns]
        return ", ".join([*columns, "`event_date` date", "`batch` string"])


def _from_journal(column: JournalColumn) -> Column:
    return Column(column.name, column.lake_type, column.nullable, column.privacy, column.meaning)


_PUBLIC, _OPERATIONAL, _PSEUDONYMOUS = Privacy.PUBLIC, Privacy.OPERATIONAL, Privacy.PSEUDONYMOUS
_NODE: Final = Column("node_id", "string", False, _PUBLIC, "Node that saw it, 16 hexadecimal digits.")
_PROTOCOL: Final = Column("protocol", "string", False, _PUBLIC, "Protocol.")

BRONZE_EVENTS: Final = Dataset(
    "bronze",
    "events",
    "one event of one node",
    (
        Column("event_id", "binary", False, _PUBLIC, "16-byte BLAKE2b of segment and seq: the same for every copy."),
        _NODE,
        Column("segment", "string", False, _PUBLIC, "Segment it was read from."),
        *(_from_journal(column) for column in COLUMNS),
    ),
    ("event_id",),
    14,
)

BRONZE_ARCHIVE: Final = Dataset(
    "bronze",
    "archive",
    "one packet as one node stored it",
    (
        _NODE,
        Column("segment", "string", False, _PUBLIC, "Segment it was read from."),
        Column("seq", "bigint", False, _PUBLIC, "Number of the line in its segment."),
        Column("stored_at", "timestamp", False, _OPERATIONAL, "When the node stored it."),
        _PROTOCOL,
        *(Column(c.name, c.lake_type, c.nullable, c.privacy, c.meaning) for c in ARCHIVE_COLUMNS),
    ),
    ("segment", "seq"),
    14,
)

SILVER_CONNECTIONS: Final = Dataset(
    "silver",
    "connections",
    "one identified connection",
    (
        _NODE,
        Column("conn_ref", "binary", False, _PSEUDONYMOUS, "Reference of the connection."),
        _PROTOCOL,
        Column("peer_ref", "binary", True, _PSEUDONYMOUS, "Keyed hash of the peer's key."),
        Column("opened_at", "timestamp", True, _OPERATIONAL, "When it identified itself; null when that was not kept."),
        Column("closed_at", "timestamp", True, _OPERATIONAL, "When it ended; null while it lives or when not kept."),
        Column("close_reason", "string", True, _OPERATIONAL, "Why it ended."),
        Column("bytes_in", "bigint", True, _OPERATIONAL, "Bytes received."),
        Column("bytes_out", "bigint", True, _OPERATIONAL, "Bytes sent."),
    ),
    ("node_id", "conn_ref"),
    14,
)

SILVER_DELIVERIES: Final = Dataset(
    "silver",
    "deliveries",
    "one delivery attempt, or those of one recipient and second that needed no answer",
    (
        _NODE,
        Column("attempt_ref", "binary", False, _PSEUDONYMOUS, "Reference of the attempt."),
        _PROTOCOL,
        Column("dest_ref", "binary", True, _PSEUDONYMOUS, "Keyed hash of the recipient's key: the journal's peer_ref."),
        Column(
            "accepted_at",
            "timestamp",
            True,
            _OPERATIONAL,
            "When it was handed on; null for immediate outcomes, which have no latency.",
        ),
        Column("finished_at", "timestamp", True, _OPERATIONAL, "When its outcome was known; null without one."),
        Column("outcome", "string", True, _OPERATIONAL, "How it ended; null without an outcome."),
        Column("latency_us", "bigint", True, _OPERATIONAL, "Microseconds from acceptance to outcome."),
        Column("tries", "bigint", True, _OPERATIONAL, "Requests that the outcome answered, or attempts it stands for."),
        Column("bytes", "bigint", True, _OPERATIONAL, "Bytes of request and reply."),
    ),
    ("node_id", "attempt_ref"),
    14,
)

SILVER_PACKETS: Final = Dataset(
    "silver",
    "packets",
    "one packet, however many nodes stored it",
    (
        Column("packet_id", "binary", False, _PUBLIC, "Id that the packet claims, 32 bytes."),
        _PROTOCOL,
        Column("author_id", "string", False, _PUBLIC, "DID of its author."),
        Column("content_type", "string", False, _PUBLIC, "Type of its content, in its author's words."),
        Column("packet_ts", "bigint", False, _PUBLIC, "Its author's clock, Unix seconds; any number."),
        Column("expires_at", "bigint", True, _PUBLIC, "Last second of its life, Unix; null for ever."),
        Column("size", "bigint", False, _PUBLIC, "Bytes of the whole packet."),
        Column("first_received_at", "timestamp", False, _OPERATIONAL, "Earliest time at which any node saw it."),
        Column("n_nodes", "int", False, _PUBLIC, "Nodes that stored it."),
        Column("schema_ok", "boolean", False, _PUBLIC, "Its bytes are a packet and say what its columns say."),
        Column("id_ok", "boolean", False, _PUBLIC, "Its id is the BLAKE3 of what it must cover."),
        Column("sig_ok", "boolean", False, _PUBLIC, "Its signature holds under the key the node names."),
        Column("verdict", "string", False, _PUBLIC, "`valid`, or the first thing that is wrong with it."),
        Column("verified_with", "string", False, _PUBLIC, "Version of the rules that checked it."),
    ),
    ("packet_id",),
    14,
)

GOLD_OUTCOMES: Final = Dataset(
    "gold",
    "delivery_outcomes",
    "one hour, protocol and outcome",
    (
        Column("hour", "timestamp", False, _PUBLIC, "Hour in which the attempts began."),
        _PROTOCOL,
        Column("outcome", "string", False, _PUBLIC, f"Outcome, or `{UNFINISHED}`."),
        Column("n", "bigint", False, _PUBLIC, "Attempts."),
        Column("bytes", "bigint", False, _PUBLIC, "Bytes of requests and replies."),
        Column(
            "histogram", "map<int,bigint>", False, _PUBLIC, "Latency bucket to attempts; docs/tables.md has the edges."
        ),
    ),
    ("hour", "protocol", "outcome"),
    365,
)

GOLD_VERDICTS: Final = Dataset(
    "gold",
    "packet_verdicts",
    "one hour, protocol, verdict and detail",
    (
        Column("hour", "timestamp", False, _PUBLIC, "Hour in which the packets were judged."),
        _PROTOCOL,
        Column("verdict", "string", False, _PUBLIC, "`accepted`, `duplicate`, or the wire code of the refusal."),
        Column("detail", "string", False, _PUBLIC, "Which rule of that code; empty when it says all."),
        Column("n", "bigint", False, _PUBLIC, "Packets."),
        Column("bytes", "bigint", False, _PUBLIC, "Their canonical bytes."),
    ),
    ("hour", "protocol", "verdict", "detail"),
    365,
)

OPS_RUNS: Final = Dataset(
    "ops",
    "runs",
    "one run of the pipeline",
    (
        Column("run_id", "string", False, _PUBLIC, "Name of the run."),
        Column("started_at", "string", False, _PUBLIC, "UTC, ISO 8601."),
        Column("finished_at", "string", False, _PUBLIC, "UTC, ISO 8601."),
        Column("engine", "string", False, _PUBLIC, "Versions of Spark and Java."),
        Column(
            "steps",
            "array<struct<name:string,rows_in:bigint,rows_out:bigint,rows_rejected:bigint,seconds:double>>",
            False,
            _PUBLIC,
            "What each step did.",
        ),
        Column(
            "segments",
            "array<struct<segment:string,problem:string>>",
            False,
            _PUBLIC,
            "What is worth knowing of single segments.",
        ),
        Column(
            "rejections",
            "array<struct<segment:string,reason:string,hash:string>>",
            False,
            _PUBLIC,
            "Rows that were not taken: reason and SHA-256, never the row.",
        ),
    ),
    ("run_id",),
    90,
)

DATASETS: Final = (
    BRONZE_EVENTS,
    BRONZE_ARCHIVE,
    SILVER_CONNECTIONS,
    SILVER_DELIVERIES,
    SILVER_PACKETS,
    GOLD_OUTCOMES,
    GOLD_VERDICTS,
    OPS_RUNS,
)
