"""Format of ``CURRENT.json``: the signed list of the files that the pipeline published, with hashes and validity.

``pipeline.publish`` writes it and ``server.policy_reader`` reads it; signing and the check of the signature are theirs.
The pointer is one canonical JSON line. Its signature covers all other fields, including the SHA-256 of each file. Trust
in the key therefore extends to the files. A file name contains the file's hash, so a published file never changes; only
the pointer is replaced. Callers create and verify the signature.

``refuse_older`` rejects a pointer older than the newest one of the same key. This prevents replay of old rules and
scores.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from waystation.core.errors import LocalError, RemoteError
from waystation.core.ids import PublicKey, decode_key_hex
from waystation.rules.lines import decode_line, encode_line

__all__ = [
    "AHEAD_US_MAX",
    "CURRENT_BYTES_MAX",
    "CURRENT_NAME",
    "FILES_MAX",
    "FILE_BYTES_MAX",
    "FORMAT",
    "LASTS_US_MAX",
    "PARQUET_SCHEMA",
    "POLICY_SCHEMA",
    "PREVIOUS_NAME",
    "PUBLISHED_NAME",
    "SCORES_SCHEMA",
    "TABLE_SCHEMA",
    "FileEntry",
    "Snapshot",
    "decode_snapshot",
    "encode_snapshot",
    "file_name",
    "refuse_older",
    "refuse_time",
    "signed_bytes",
]

FORMAT: Final = "waystation-published-1"
POLICY_SCHEMA: Final = "policy-1"
"""Lines of ``rules.policy.encode_rule``, for one node."""
SCORES_SCHEMA: Final = "scores-1"
"""Lines of ``rules.policy.encode_score``."""
TABLE_SCHEMA: Final = "table-1"
"""One JSON object with ``rows``, for human readers."""
PARQUET_SCHEMA: Final = "parquet-1"
"""A table for analysts; nodes do not read it."""
CURRENT_NAME: Final = "CURRENT.json"
PREVIOUS_NAME: Final = "PREVIOUS.json"
"""The pointer that the current one replaced: its files stay for readers that have just opened them."""
CURRENT_BYTES_MAX: Final = 65_536
FILE_BYTES_MAX: Final = 4 * 1_048_576
"""Most bytes of a file that a node reads."""
FILES_MAX: Final = 256
LASTS_US_MAX: Final = 9 * 86_400 * 1_000_000
"""Longest from ``as_of`` to ``expires_at``: the 168 h that the pipeline can be configured to, and a day."""
AHEAD_US_MAX: Final = 86_400 * 1_000_000
"""How far ``as_of`` may be ahead of the reader: a full hour by intent, the rest for clocks."""
_ROWS_MAX: Final = 10_000_000
_TIME_US_MAX: Final = 2**53 - 1
_SIGNATURE_BYTES: Final = 64
_HASH_CHARS: Final = 16  # of the hash, in a file's name
_DOMAIN: Final = b"waystation published snapshot\n"  # so that no other signature of the key is one of these

PUBLISHED_NAME: Final = re.compile(
    r"(?P<stem>[a-z]{1,32}(?:-[0-9a-f]{16})?)-(?P<hash>[0-9a-f]{16})\.(?:jsonl|json|parquet)"
)
"""What files of a snapshot are called; the stem of a node's own ends with the node."""
_NODE_ID: Final = re.compile(r"(?:[0-9a-f]{16})?")
_WORD: Final = re.compile(r"[A-Za-z0-9._-]{1,40}")
_HEX16: Final = re.compile(r"[0-9a-f]{16}")
_HEX64: Final = re.compile(r"[0-9a-f]{64}")
_HEX128: Final = re.compile(r"[0-9a-f]{128}")
_FIELDS: Final = (
    "as_of",
    "expires_at",
    "files",
    "format",
    "key",
    "node_id",
    "rule_version",
    "signature",
    "snapshot",
)
_FILE_FIELDS: Final = {"name", "rows", "schema", "sha256"}


class FileEntry(NamedTuple):
    """One file of a snapshot."""

    name: str
    sha256: str
    """64 hexadecimal digits."""
    rows: int
    """Lines of a file for nodes, else rows that it was made of."""
    schema: str
    """What is in it, and which version of that."""

    @property
    def stem(self) -> str:
        """The name without hash and ending, such as ``policy-0123456789abcdef``."""
        match = PUBLISHED_NAME.fullmatch(self.name)
        return match["stem"] if match is not None else ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The fields of ``CURRENT.json``."""

    snapshot: str
    """Name: 16 hexadecimal digits."""
    node_id: str
    """The only node it is for, or "" for every node."""
    as_of_us: int
    """End of what was looked at, Unix microseconds."""
    rule_version: str
    files: tuple[FileEntry, ...]
    expires_at_us: int
    """When nothing of it holds any more."""
    key: PublicKey
    """Who signed."""
    signature: bytes = bytes(_SIGNATURE_BYTES)
    """64 bytes."""

    def signed(self, signature: bytes) -> "Snapshot":
        """Return the same with its signature."""
        return replace(self, signature=signature)

    def find(self, stem: str, schema: str) -> FileEntry | None:
        """Return the file of this stem and schema, or None."""
        return next((entry for entry in self.files if entry.stem == stem and entry.schema == schema), None)


def file_name(stem: str, sha256_hex: str, suffix: str) -> str:
    """Return what a file with this hash is called."""
    return f"{stem}-{sha256_hex[:_HASH_CHARS]}.{suffix}"


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return the text of ``CURRENT.json``, with its line end."""
    return encode_line(_plain(snapshot) | {"signature": snapshot.signature.hex()}) + b"\n"


def signed_bytes(snapshot: Snapshot) -> bytes:
    """Return what the signature is over: everything but the signature."""
    return _DOMAIN + encode_line(_plain(snapshot))


def decode_snapshot(data: bytes) -> Snapshot:
    """Return the fields of a pointer; its signature has still to be checked.

    Raises:
        RemoteError: It is too long, cut off, of another format, or not well formed.
    """
    if not data.endswith(b"\n"):
        raise RemoteError("has no line end: something is missing" if len(data) <= CURRENT_BYTES_MAX else "is too long")
    fields = decode_line(data[:-1], _FIELDS, CURRENT_BYTES_MAX)
    if fields["format"] != FORMAT:
        raise RemoteError(f"is of a format that is not known here; {FORMAT} is")
    snapshot = Snapshot(
        _text(fields, "snapshot", _HEX16),
        _text(fields, "node_id", _NODE_ID),
        _whole(fields, "as_of", _TIME_US_MAX),
        _text(fields, "rule_version", _WORD),
        _files(fields["files"]),
        _whole(fields, "expires_at", _TIME_US_MAX),
        _key(fields),
        bytes.fromhex(_text(fields, "signature", _HEX128)),
    )
    if not 0 < snapshot.expires_at_us - snapshot.as_of_us <= LASTS_US_MAX:
        raise RemoteError("does not end after it begins, or lasts longer than anything may")
    return snapshot


def refuse_time(snapshot: Snapshot, now_us: int) -> None:
    """Refuse what has ended, or has not begun.

    Raises:
        RemoteError: Names the one.
    """
    if now_us >= snapshot.expires_at_us:
        raise RemoteError("has expired")
    if snapshot.as_of_us > now_us + AHEAD_US_MAX:
        raise RemoteError("is of a time that has not come")


def refuse_older(snapshot: Snapshot, newest_us: int | None) -> None:
    """Refuse what is older than ``newest_us``, the newest ``as_of`` of its key; None for none yet.

    Raises:
        RemoteError: It goes back.
    """
    if newest_us is not None and snapshot.as_of_us < newest_us:
        raise RemoteError("is older than what was taken before: it goes back")


def _plain(snapshot: Snapshot) -> dict[str, object]:
    return {
        "snapshot": snapshot.snapshot,
        "format": FORMAT,
        "node_id": snapshot.node_id,
        "as_of": snapshot.as_of_us,
        "rule_version": snapshot.rule_version,
        "files": [entry._asdict() for entry in snapshot.files],
        "expires_at": snapshot.expires_at_us,
        "key": snapshot.key.hex(),
    }


def _files(value: object) -> tuple[FileEntry, ...]:
    if not isinstance(value, list) or len(value) > FILES_MAX:
        raise RemoteError(f'"files" is a list of at most {FILES_MAX}')
    entries = tuple([_file(each) for each in value])
    if len({entry.name for entry in entries}) < len(entries):
        raise RemoteError("names a file twice")
    if len({(entry.stem, entry.schema) for entry in entries}) < len(entries):
        raise RemoteError("has two files for one purpose")
    return entries


def _file(value: object) -> FileEntry:
    if not isinstance(value, dict) or value.keys() != _FILE_FIELDS:
        raise RemoteError("has an entry in its files that has not the fields that it should")
    entry = FileEntry(
        _text(value, "name", PUBLISHED_NAME),
        _text(value, "sha256", _HEX64),
        _whole(value, "rows", _ROWS_MAX),
        _text(value, "schema", _WORD),
    )
    match = PUBLISHED_NAME.fullmatch(entry.name)
    assert match is not None
    if not entry.sha256.startswith(match["hash"]):
        raise RemoteError(f"calls a file {entry.name}, which is not its hash")
    return entry


def _key(fields: Mapping[str, object]) -> PublicKey:
    try:
        return decode_key_hex(_text(fields, "key", _HEX64))
    except LocalError as error:
        raise RemoteError(str(error)) from error


def _whole(fields: Mapping[str, object], name: str, most: int) -> int:
    value = fields[name]
    if type(value) is not int or not 0 <= value <= most:  # a bool is an int too
        raise RemoteError(f'"{name}" is a whole number from 0 to {most}')
    return value


def _text(fields: Mapping[str, object], name: str, pattern: re.Pattern[str]) -> str:
    value = fields[name]
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise RemoteError(f'"{name}" is not what it may be')
    return value
