"""Packet archive format: stored packets with their signed bytes, which the pipeline verifies again.

``engine.recorder`` makes an ``ArchivedPacket`` of each stored Strata packet, ``store.segments`` writes it,
``pipeline.jobs.ingest`` reads it. Archive segments use the names, opening and sealing of journal segments
(``segment``), in a separate folder. Their first line names another format, so the two cannot be confused. Each line
between the first and the last is one packet. Packets are public to every subscriber; MESSAGE packets contain ciphertext
only. No line names the peer that delivered or read a packet.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from waystation.core.errors import LocalError
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.journal.contract import FORMAT_VERSION, NODE_PROTOCOL, TS_US_END, Privacy
from waystation.journal.events import Event
from waystation.journal.segment import encode_lines

__all__ = [
    "ARCHIVE_COLUMNS",
    "ARCHIVE_FORMAT",
    "PACKET_KIND",
    "ArchiveColumn",
    "ArchiveRow",
    "ArchivedPacket",
    "archive_line_ddl",
    "encode_archive",
    "read_packets",
]

ARCHIVE_FORMAT: Final = f"archive-{FORMAT_VERSION}"
"""The format that an archive segment's first line names."""

PACKET_KIND: Final = "packet"
"""``kind`` of a line that is a packet."""


class ArchivedPacket(NamedTuple):
    """One packet on its way to the disk."""

    ts_us: int
    """When the node stored it, microseconds UTC since 1970."""
    protocol: str
    packet_id: bytes
    """32 bytes."""
    received_at: int
    """Earliest time at which a credible witness saw it, Unix seconds."""
    author_id: str
    """DID."""
    content_type: str
    packet_ts: int
    """The author's clock, Unix seconds."""
    expires_at: int | None
    """Last second at which it may be served, None for ever."""
    pubkey: bytes
    """32-byte Ed25519 key under which the node found it valid."""
    canonical: bytes
    """The whole packet in canonical JSON, id and signature included."""


ArchiveRow = ArchivedPacket | Event
"""What an archive's writer takes: packets, its first and last line, and ``Refused`` for packets that are missing."""


class ArchiveColumn(NamedTuple):
    """One column of a packet's line."""

    name: str
    line_type: str
    """Spark SQL type as a JSON line carries it."""
    lake_type: str
    """Spark SQL type in ``bronze.archive``."""
    nullable: bool
    privacy: Privacy
    meaning: str
    size_bytes: int | None = None
    """Length of bytes that a line carries as hexadecimal text."""


_PUBLIC: Final = Privacy.PUBLIC
_OPERATIONAL: Final = Privacy.OPERATIONAL

ARCHIVE_COLUMNS: Final = (
    ArchiveColumn("packet_id", "string", "binary", False, _PUBLIC, "Id that the packet claims, 32 bytes.", 32),
    ArchiveColumn("received_at", "bigint", "timestamp", False, _OPERATIONAL, "Earliest time at which it was seen."),
    ArchiveColumn("author_id", "string", "string", False, _PUBLIC, "DID of its author."),
    ArchiveColumn("content_type", "string", "string", False, _PUBLIC, "Type of its content, in its author's words."),
    ArchiveColumn("packet_ts", "bigint", "bigint", False, _PUBLIC, "Its author's clock, Unix seconds; any number."),
    ArchiveColumn("expires_at", "bigint", "bigint", True, _PUBLIC, "Last second of its life, Unix; null for ever."),
    ArchiveColumn("pubkey", "string", "binary", False, _PUBLIC, "Ed25519 key that the node found it signed with.", 32),
    ArchiveColumn("sig", "string", "binary", False, _PUBLIC, "Its Ed25519 signature, 64 bytes.", 64),
    ArchiveColumn("signed_bytes", "string", "binary", False, _PUBLIC, "The whole packet in canonical JSON (RFC 8785)."),
    ArchiveColumn("size", "bigint", "bigint", False, _PUBLIC, "Bytes of `signed_bytes`."),
)
"""What a packet's line carries besides ``ts``, ``seq``, ``protocol`` and ``kind``."""

_COMMON: Final = (("ts", "bigint"), ("seq", "bigint"), ("protocol", "string"), ("kind", "string"))


def archive_line_ddl() -> str:
    """Return the Spark schema of one line of an archive, all columns nullable; ``reason`` and ``attrs`` are gaps'."""
    columns = [*_COMMON, *((column.name, column.line_type) for column in ARCHIVE_COLUMNS)]
    columns += [("reason", "string"), ("attrs", "map<string,string>")]
    return ", ".join(f"`{name}` {line_type}" for name, line_type in columns)


def encode_archive(rows: Iterable[ArchiveRow], first_seq: int) -> bytes:
    """Return JSON lines, each ended by a newline, numbered from ``first_seq``.

    Raises:
        LocalError: The bytes of a packet are no packet.
    """
    return b"".join([_line(row, seq) for seq, row in enumerate(rows, first_seq)])


def read_packets(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the good packet lines of a segment as dictionaries of line columns; all others are passed over.

    This is the plain reading the pipeline is compared with.
    """
    for line in data.split(b"\n"):
        try:
            row = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(row, dict) and _is_packet(row):
            yield {name: row.get(name) for name in _COLUMN_NAMES}


class _Signed(msgspec.Struct):
    """The one member of a packet that its line repeats."""

    signature: str


def _line(row: ArchiveRow, seq: int) -> bytes:
    if not isinstance(row, ArchivedPacket):
        return encode_lines([row], seq)
    try:
        signed = _SIGNED.decode(row.canonical)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LocalError("the bytes to archive are no packet") from error
    line: dict[str, Any] = {
        "ts": row.ts_us,
        "seq": seq,
        "protocol": row.protocol,
        "kind": PACKET_KIND,
        "packet_id": row.packet_id.hex(),
        "received_at": row.received_at,
        "author_id": row.author_id,
        "content_type": row.content_type,
        "packet_ts": row.packet_ts,
        "pubkey": row.pubkey.hex(),
        "sig": signed.signature.removeprefix("0x"),
        "signed_bytes": row.canonical.decode(),
        "size": len(row.canonical),
    }
    if row.expires_at is not None:
        line["expires_at"] = row.expires_at
    return _ENCODER.encode(line) + b"\n"


def _is_packet(row: dict[str, Any]) -> bool:
    if row.get("kind") != PACKET_KIND or row.get("protocol") in (None, NODE_PROTOCOL):
        return False
    if not (_is_count(row.get("ts"), TS_US_END) and _is_count(row.get("seq"), 1 << 63)):
        return False
    received_at = row.get("received_at")
    return _is_count(received_at, TS_US_END // MICROSECONDS_PER_SECOND) and all(
        _fits(column, row.get(column.name)) for column in ARCHIVE_COLUMNS
    )


def _is_count(value: object, end: int) -> bool:
    return type(value) is int and 0 <= value < end


def _fits(column: ArchiveColumn, value: object) -> bool:
    if value is None:
        return column.nullable
    if column.line_type == "bigint":
        return type(value) is int and -(1 << 63) <= value < 1 << 63
    digits = column.size_bytes and 2 * column.size_bytes
    return isinstance(value, str) and (digits is None or (len(value) == digits and not set(value) - _HEX_DIGITS))


_HEX_DIGITS: Final = frozenset("0123456789abcdef")
_COLUMN_NAMES: Final = (*(name for name, _ in _COMMON), *(column.name for column in ARCHIVE_COLUMNS))
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder()
_SIGNED: Final = msgspec.json.Decoder(_Signed)
