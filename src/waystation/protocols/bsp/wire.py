"""Encodes and decodes BSP records.

The session of a stream and bundles read with it, ``sending`` writes with it. A ``RecordReader`` cuts a byte stream into
records, for any chunking. It checks each header before it waits for the payload, and skips records of unknown types. It
buffers at most one record, 65,508 bytes. An illegal record ends the stream; the records before it are valid (BSP-D4,
BSP-D5).

Spec: specs/bsp.md 1.
"""

import struct
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Final, cast

from waystation.protocols.bsp.messages import (
    BODY_BYTES_MAX,
    HEADER_BYTES,
    ID_BYTES,
    MESSAGE_HEAD_BYTES,
    TIMESTAMP_MAX,
    Ack,
    Message,
    Offer,
    Priority,
    Record,
    RecordType,
    Request,
    Versions,
)
from waystation.protocols.bsp.profile import Profile
from waystation.protocols.bsp.refusals import MalformedError, Refusal

__all__ = [
    "IDS_WRITTEN_MAX",
    "PRIORITY_BYTES",
    "VERSIONS_BYTES_MAX",
    "RecordReader",
    "encode",
    "encode_ids",
    "encode_message",
    "read_all",
]

IDS_WRITTEN_MAX: Final = 1_536
"""Identifiers of one record that we write, 48 KiB: as many as both profiles read (BSP-D3)."""
VERSIONS_BYTES_MAX: Final = 10
PRIORITY_BYTES: Final = 16


class RecordReader:
    """Cuts one direction of a stream into records.

    Feed bytes with ``feed``, and call ``finish`` at the end of the stream. Once ``refusal`` is set the stream is
    over: close it, later bytes are ignored.

    Args:
        profile: Version and types of records.
    """

    __slots__ = (
        "_body_bytes_min",
        "_extra_types",
        "_ids_read_max",
        "_needed",
        "_partial",
        "_skip",
        "_version",
        "refusal",
    )

    def __init__(self, profile: Profile) -> None:
        self._version = profile.version
        self._body_bytes_min = profile.body_bytes_min
        self._ids_read_max = profile.ids_read_max
        self._extra_types = profile.extra_types
        self._partial = bytearray()
        self._needed = HEADER_BYTES
        self._skip = 0
        self.refusal: Refusal | None = None
        """Why nothing more is read, or None."""

    @property
    def is_inside(self) -> bool:
        """Whether a record has begun and is not over: its rest is awaited."""
        return bool(self._partial) or self._skip > 0

    @property
    def waiting(self) -> int:
        """Bytes that are kept here, of one record."""
        return len(self._partial)

    def feed(self, data: bytes) -> list[Record]:
        """Return the records that are whole with these bytes, up to the first illegal one."""
        records: list[Record] = []
        if self.refusal is None:
            offset = self._resume(data, records) if self._partial or self._skip else 0
            if self.refusal is None:
                self._cut(data, offset, records)
        return records

    def finish(self) -> Refusal | None:
        """Return why a stream must not end here, None when it ends between two records (BSP-D6)."""
        # Spec 1: the stream may end between two records only.
        if self.refusal is None and self.is_inside:
            self._refuse(Refusal.TRUNCATED)
        return self.refusal

    def _cut(self, data: bytes, offset: int, records: list[Record]) -> None:
        """Take all whole records after ``offset``, and keep the beginning of one that is not whole."""
        end = len(data)
        version, message_bytes_min = self._version, MESSAGE_HEAD_BYTES + self._body_bytes_min
        append = records.append
        while end - offset >= _MESSAGE_PREFIX_BYTES:
            # Nearly all bytes are those of messages, and these few steps are all that one costs.
            read_version, kind, length, group_id, timestamp = _unpack_message(data, offset)
            stop = offset + HEADER_BYTES + length
            if (
                kind == _MESSAGE
                and stop <= end
                and read_version == version
                and message_bytes_min <= length <= _MESSAGE_BYTES_MAX
                and timestamp >= 0
            ):
                append(_make_message((group_id, timestamp, data[offset + _MESSAGE_PREFIX_BYTES : stop])))
                offset = stop
                continue
            offset = self._take(data, offset, records)
            if offset < 0:
                return
        while offset < end:
            offset = self._take(data, offset, records)
            if offset < 0:
                return

    def _take(self, data: bytes, offset: int, records: list[Record]) -> int:
        """Take one record of any kind, and return where the next begins: -1 when that is not here or never comes."""
        if len(data) - offset < HEADER_BYTES:
            return self._keep(data, offset, HEADER_BYTES)
        version, kind, length = _unpack_header(data, offset)
        # Spec 1: the header alone decides, before a byte of the payload is awaited.
        refusal = self._check_header(version, kind, length)
        if refusal is not None:
            return self._refuse(refusal)
        stop: int = offset + HEADER_BYTES + length
        # Spec 1: a type that is not in the table: read past its payload, whatever the length, keep none of it.
        if not self._is_known(kind):
            self._skip = max(0, stop - len(data))
            return stop if stop <= len(data) else -1
        if stop > len(data):
            # Spec 9: one record that waits to be whole, 65,508 bytes at most.
            return self._keep(data, offset, HEADER_BYTES + length)
        record = _decode(kind, data[offset + HEADER_BYTES : stop])
        if isinstance(record, Refusal):
            return self._refuse(record)
        records.append(record)
        return stop

    def _resume(self, data: bytes, records: list[Record]) -> int:
        """Go on with the record that has begun, and return how much of the data belonged to it."""
        # The rest of an unknown record is counted down, never kept.
        used = min(self._skip, len(data))
        self._skip -= used
        while self._partial and used < len(data):
            start, used = used, min(used + self._needed - len(self._partial), len(data))
            self._partial += data[start:used]
            if len(self._partial) == self._needed:
                begun = bytes(self._partial)
                self._partial.clear()
                self._take(begun, 0, records)
                skipped = min(self._skip, len(data) - used)
                self._skip -= skipped
                used += skipped
        return used

    def _keep(self, data: bytes, offset: int, needed: int) -> int:
        self._partial += data[offset:]
        self._needed = needed
        return -1

    def _refuse(self, refusal: Refusal) -> int:
        self.refusal = refusal
        self._partial.clear()
        self._skip = 0
        return -1

    def _is_known(self, kind: int) -> bool:
        return kind <= _REQUEST or kind in self._extra_types

    def _check_header(self, version: int, kind: int, length: int) -> Refusal | None:
        """Return the rule that a header alone breaks. Spec: BSP-D3, BSP-D4, BSP-D5, BSP-D9."""
        # Spec 1: another version: close.
        if version != self._version:
            return Refusal.VERSION
        if not self._is_known(kind):
            return None
        if kind == _MESSAGE:
            # Spec 1: a MESSAGE shorter than 40 or longer than 32,808: close; in profile briar a body is not empty.
            legal = MESSAGE_HEAD_BYTES + self._body_bytes_min <= length <= _MESSAGE_BYTES_MAX
            return None if legal else Refusal.MESSAGE_LENGTH
        # Spec 7: VERSIONS has 1 to 10 bytes, PRIORITY 16; another length closes.
        if kind == RecordType.VERSIONS:
            return None if 1 <= length <= VERSIONS_BYTES_MAX else Refusal.VERSIONS_LENGTH
        if kind == RecordType.PRIORITY:
            return None if length == PRIORITY_BYTES else Refusal.PRIORITY_LENGTH
        return self._check_list(length)

    def _check_list(self, length: int) -> Refusal | None:
        # Spec 1: a list that is empty, not a multiple of 32, or too long: close.
        if not length:
            return Refusal.EMPTY_LIST
        if length % ID_BYTES:
            return Refusal.LIST_LENGTH
        return Refusal.TOO_MANY_IDS if length > self._ids_read_max * ID_BYTES else None


def read_all(profile: Profile, data: bytes) -> list[Record]:
    """Return all records of bytes that hold nothing else.

    Raises:
        MalformedError: One of them is illegal, or the last one is not whole; nothing of the rest counts then.
    """
    reader = RecordReader(profile)
    records = reader.feed(data)
    refusal = reader.finish()
    # Spec 5: a file is whole or nothing; the signature covers all of it.
    if refusal is not None:
        raise MalformedError(refusal, f"after {len(records)} records")
    return records


def encode(profile: Profile, record: Record) -> bytes:
    """Return the bytes of one record that ``profile`` can read.

    A list may have as many identifiers as are read; devices write lists with ``encode_ids``.
    """
    if isinstance(record, Message):
        return encode_message(profile, record.group_id, record.timestamp, record.body)
    if isinstance(record, Versions):
        assert RecordType.VERSIONS in profile.extra_types
        assert 1 <= len(record.versions) <= VERSIONS_BYTES_MAX
        return _framed(profile, RecordType.VERSIONS, record.versions)
    if isinstance(record, Priority):
        assert RecordType.PRIORITY in profile.extra_types
        assert len(record.nonce) == PRIORITY_BYTES
        return _framed(profile, RecordType.PRIORITY, record.nonce)
    return _framed_list(profile, _LIST_TYPES[type(record)], record.ids)


def encode_message(profile: Profile, group_id: bytes, timestamp: int, body: bytes) -> bytes:
    """Return a MESSAGE record without a message object.

    Args:
        profile: Gives the record's version.
        group_id: 32 bytes.
        timestamp: Milliseconds since the Unix epoch, 0 to 2**63 - 1.
        body: ``body_bytes_min`` to 32,768 bytes.
    """
    size = len(body)
    assert profile.body_bytes_min <= size <= BODY_BYTES_MAX
    assert len(group_id) == ID_BYTES
    assert 0 <= timestamp <= TIMESTAMP_MAX
    return _pack_message(profile.version, _MESSAGE, MESSAGE_HEAD_BYTES + size, group_id, timestamp) + body


def encode_ids(profile: Profile, kind: RecordType, ids: Sequence[bytes]) -> list[bytes]:
    """Return the records that list these identifiers, in their order: none for none, else at most 1,536 in each.

    Args:
        profile: Gives the records' version.
        kind: ACK, OFFER or REQUEST.
        ids: 32 bytes each.
    """
    assert kind in _LISTS
    # Spec 1: a device writes at most 1,536 identifiers in one record.
    starts = range(0, len(ids), IDS_WRITTEN_MAX)
    return [_framed_list(profile, kind, ids[start : start + IDS_WRITTEN_MAX]) for start in starts]


def _framed_list(profile: Profile, kind: RecordType, ids: Sequence[bytes]) -> bytes:
    payload = b"".join(ids)
    assert 1 <= len(ids) <= profile.ids_read_max
    assert len(payload) == len(ids) * ID_BYTES
    return _framed(profile, kind, payload)


def _framed(profile: Profile, kind: RecordType, payload: bytes) -> bytes:
    return _HEADER.pack(profile.version, kind, len(payload)) + payload


def _decode(kind: int, payload: bytes) -> Record | Refusal:
    """Return the record of a known type whose header was checked."""
    if kind == _MESSAGE:
        group_id, timestamp = _MESSAGE_HEAD.unpack_from(payload)
        # Spec 1: a MESSAGE with a negative time closes when it is there.
        if timestamp < 0:
            return Refusal.TIMESTAMP
        return _make_message((group_id, timestamp, payload[MESSAGE_HEAD_BYTES:]))
    if kind == RecordType.VERSIONS:
        return Versions(payload)
    if kind == RecordType.PRIORITY:
        return Priority(payload)
    return _LISTS[kind](tuple(chain.from_iterable(_iter_ids(payload))))


_HEADER: Final = struct.Struct(">BBH")
_unpack_header: Final = _HEADER.unpack_from
_MESSAGE_HEAD: Final = struct.Struct(">32sq")
_MESSAGE_PREFIX: Final = struct.Struct(">BBH32sq")  # header and head at once
_unpack_message: Final = _MESSAGE_PREFIX.unpack_from
_pack_message: Final = _MESSAGE_PREFIX.pack
_MESSAGE_PREFIX_BYTES: Final = HEADER_BYTES + MESSAGE_HEAD_BYTES
_MESSAGE_BYTES_MAX: Final = MESSAGE_HEAD_BYTES + BODY_BYTES_MAX
_iter_ids: Final = struct.Struct("32s").iter_unpack

# Plain integers: reading a member off an enum class costs more than comparing it.
_MESSAGE: Final = int(RecordType.MESSAGE)
_REQUEST: Final = int(RecordType.REQUEST)

_LISTS: Final[dict[int, type[Ack | Offer | Request]]] = {
    RecordType.ACK: Ack,
    RecordType.OFFER: Offer,
    RecordType.REQUEST: Request,
}
_LIST_TYPES: Final[dict[type[Ack | Offer | Request], RecordType]] = {
    Ack: RecordType.ACK,
    Offer: RecordType.OFFER,
    Request: RecordType.REQUEST,
}

_make_message: Final = cast("Callable[[tuple[bytes, int, bytes]], Message]", partial(tuple.__new__, Message))
"""Build a ``Message`` from one tuple, past the class's own constructor, which is a Python function."""
