"""An independent codec for BSP records, used by the simulator so that its checks do not rely on the device's codec.

Connections, hostile peers and the invariants read records with it. It covers the seed profile's record format and
hashes, and message bodies of format deps_v1. Spec: bsp 1, 4.
"""

import hashlib
from typing import Final, NamedTuple

__all__ = [
    "ACK",
    "KINDS",
    "MESSAGE",
    "OFFER",
    "REQUEST",
    "SeenRecord",
    "dependencies_of",
    "deps_body",
    "group_id_of",
    "ids_record",
    "message_id_of",
    "message_record",
    "read_records",
]

ACK, MESSAGE, OFFER, REQUEST = range(4)
KINDS: Final = ("ACK", "MESSAGE", "OFFER", "REQUEST")
"""Names of the record types, by their number."""
_VERSION: Final = 1
_HEADER: Final = 4
_ID: Final = 32
_HEAD: Final = _ID + 8
_BODY_MAX: Final = 32_768
_IDS_MAX: Final = 2_047
_DEPENDENCIES_MAX: Final = 64


class SeenRecord(NamedTuple):
    """One record as it stands on a wire."""

    kind: int
    """0 to 3; an index of ``KINDS``."""
    ids: tuple[bytes, ...]
    """What it lists; of a MESSAGE, its own identifier."""
    data: bytes
    """All of it, header included."""
    group_id: bytes = b""
    """Of a MESSAGE."""
    timestamp: int = 0
    body: bytes = b""


def _hash(*parts: bytes) -> bytes:
    whole = hashlib.blake2s()
    for part in parts:
        whole.update(len(part).to_bytes(4, "big") + part)
    return whole.digest()


def group_id_of(client_id: bytes, descriptor: bytes) -> bytes:
    """Return the identifier of a group. Spec: seed 2.2."""
    return _hash(b"GROUP_ID", client_id, descriptor)


def message_id_of(group_id: bytes, timestamp: int, body: bytes) -> bytes:
    """Return the identifier of a message. Spec: seed 2.3."""
    return _hash(b"MESSAGE_ID", group_id, timestamp.to_bytes(8, "big"), body)


def ids_record(kind: int, *ids: bytes) -> bytes:
    """Return one record that lists identifiers, whether or not it is allowed to."""
    return bytes([_VERSION, kind]) + (_ID * len(ids)).to_bytes(2, "big") + b"".join(ids)


def message_record(group_id: bytes, timestamp: int, body: bytes) -> bytes:
    """Return one MESSAGE, whether or not its body is too long."""
    payload = group_id + timestamp.to_bytes(8, "big") + body
    return bytes([_VERSION, MESSAGE]) + len(payload).to_bytes(2, "big") + payload


def deps_body(dependencies: list[bytes], content: bytes) -> bytes:
    """Return the body of a message of format deps_v1. Spec: bsp 4."""
    return b"\x01" + len(dependencies).to_bytes(2, "big") + b"".join(dependencies) + content


def dependencies_of(body: bytes) -> tuple[bytes, ...] | None:
    """Return what a body of format deps_v1 depends on, each once; None when no client takes it."""
    count = int.from_bytes(body[1:3], "big")
    if len(body) < 3 or body[0] != 1 or len(body) < 3 + count * _ID:
        return None
    ids = tuple(dict.fromkeys(body[at : at + _ID] for at in range(3, 3 + count * _ID, _ID)))
    return ids if len(ids) <= _DEPENDENCIES_MAX else None


def read_records(data: bytes) -> list[SeenRecord]:
    """Return the records of a stream that ends between two of them, without those of a type that nobody knows.

    Raises:
        ValueError: No device reads this.
    """
    records = []
    at = 0
    while at < len(data):
        if len(data) < at + _HEADER:
            raise ValueError("a header is cut off")
        end = at + _HEADER + int.from_bytes(data[at + 2 : at + 4], "big")
        record = data[at:end]
        if data[at] != _VERSION or len(data) < end:
            raise ValueError(f"not a whole record of version 1: {record[:8].hex()}")
        if data[at + 1] <= REQUEST:
            records.append(_read_message(record) if data[at + 1] == MESSAGE else _read_ids(record))
        at = end
    return records


def _read_ids(record: bytes) -> SeenRecord:
    payload = record[_HEADER:]
    count, rest = divmod(len(payload), _ID)
    if rest or not 1 <= count <= _IDS_MAX:
        raise ValueError(f"{len(payload)} bytes are no list")
    return SeenRecord(record[1], tuple(payload[at : at + _ID] for at in range(0, len(payload), _ID)), record)


def _read_message(record: bytes) -> SeenRecord:
    payload = record[_HEADER:]
    timestamp = int.from_bytes(payload[_ID:_HEAD], "big")
    if not _HEAD <= len(payload) <= _HEAD + _BODY_MAX or timestamp >> 63:
        raise ValueError(f"{len(payload)} bytes are no message")
    group_id, body = payload[:_ID], payload[_HEAD:]
    return SeenRecord(MESSAGE, (message_id_of(group_id, timestamp, body),), record, group_id, timestamp, body)
