"""Encodes and decodes message contents: raw bytes, text, JSON, a file, and our own extended form.

``sealing`` puts the bytes into frames; the SDK makes and reads the values. A content is a type byte and a body.
``Extended`` is our addition: it adds a time and an id to a content, so receivers can detect replays. It also carries
the parts of files that are too large for one frame. Clients of the reference implementation show it as raw bytes.

``encode_signed_content`` and ``decode_signed_content`` are the form inside SIGNED_DATA, where raw bytes have no type
byte. Raw bytes could then be mistaken for typed content or for the answer to a relay's 32-byte challenge. Such bytes
are not signed unchanged (MERK-RAW).

Layout of 0x10: ``10 | u64 ms | id[16] | u8 kind | body``; kinds 0 to 3 have the bodies of those types, kind 4 is a file
part: ``transfer[16] | digest[32] | u32 index | u32 count | u64 total | u8 name_len | name | data``; kind 5 is a
receipt: ``u8 what | n x id[16]``, 1 <= n <= 64; kind 6 is an answer: ``id[16] | u8 kind | body`` of a kind 0 to 2.

Spec: specs/merk.md 3, 7.
"""

import json
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from waystation.core.errors import LocalError
from waystation.protocols.merk.messages import CHALLENGE_BYTES, MESSAGE_ID_BYTES
from waystation.protocols.merk.refusals import MalformedError, Refusal

__all__ = [
    "DIGEST_BYTES",
    "FILE_BYTES_MAX",
    "FILE_NAME_BYTES_MAX",
    "RECEIPT_IDS_MAX",
    "TRANSFER_ID_BYTES",
    "Answer",
    "Content",
    "ContentType",
    "Extended",
    "File",
    "FilePart",
    "Json",
    "Plain",
    "Raw",
    "Receipt",
    "Text",
    "decode_content",
    "decode_signed_content",
    "encode_content",
    "encode_signed_content",
    "is_signable",
]

TRANSFER_ID_BYTES: Final = 16  # spec 3, EXTENDED kind 4
RECEIPT_IDS_MAX: Final = 64  # spec 3, EXTENDED kind 5
DIGEST_BYTES: Final = 32  # SHA-256 of the whole file
FILE_NAME_BYTES_MAX: Final = 255  # its length is a u8; a longer one overflows in the original (specs/merk.md 3)
FILE_BYTES_MAX: Final = 2**40  # ours: a tebibyte
"""Largest file that goes in parts (MERK-PARTS): 1 TiB, far above use, far below what overflows a JavaScript number."""


class ContentType(IntEnum):
    """First byte of a content."""

    RAW = 0
    TEXT = 1
    JSON = 2
    FILE = 3
    EXTENDED = 0x10


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes that only the application understands."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Text:
    """A text."""

    text: str


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value as it was written."""

    text: str

    @classmethod
    def of(cls, value: Any) -> "Json":
        """Return the content that says ``value``, without spaces.

        Raises:
            LocalError: The value has no JSON.
        """
        try:
            return cls(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
        except (TypeError, ValueError, RecursionError) as error:
            raise LocalError(f"no JSON for this value: {error}") from error

    def value(self) -> Any:
        """Return what it says.

        Raises:
            MalformedError: BAD_CONTENT when the text is no JSON, which decoded contents never are.
        """
        return _parse_json(self.text)


@dataclass(frozen=True, slots=True)
class File:
    """A whole file."""

    name: str
    """At most 255 bytes of UTF-8; chosen by the sender, so no path to write to unseen."""
    data: bytes


@dataclass(frozen=True, slots=True)
class FilePart:
    """A piece of a file that does not fit into one frame."""

    transfer_id: bytes
    """16 bytes, the same in all parts of one file."""
    digest: bytes
    """SHA-256 of the whole file."""
    index: int
    """u32, from 0."""
    count: int
    """u32: how many parts there are, at least one."""
    total_bytes: int
    """Size of the whole file, at most ``FILE_BYTES_MAX``."""
    name: str
    """As in ``File``."""
    data: bytes
    """The parts' data in order of their index are the file."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """States that the sender's program has taken messages; it counts only in the bound form of encryption."""

    message_ids: tuple[bytes, ...]
    """16 bytes each, 1 to ``RECEIPT_IDS_MAX`` of them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A content that answers a message; it counts as its answer only in the bound form of encryption (MERK-ANSWER)."""

    message_id: bytes
    """16 bytes: the id of the message that it answers, which the sender of the answer was sent."""
    content: Raw | Text | Json


Plain = Raw | Text | Json | File
"""Contents that clients of the original know."""


@dataclass(frozen=True, slots=True)
class Extended:
    """A content with a time and an id."""

    time_ms: int
    """When it was said, Unix milliseconds by the sender's clock; u64."""
    message_id: bytes
    """16 bytes, never used twice by the sender."""
    content: Plain | FilePart | Receipt | Answer


Content = Plain | Extended
"""Whatever a frame can say."""


def encode_content(content: Content) -> bytes:
    """Return a content with its type byte.

    Raises:
        LocalError: A file's name is too long, a text has lone surrogates, JSON is none, or a part's numbers make no
            sense.
    """
    return b"".join(_parts(content))


def encode_signed_content(content: Content) -> bytes:
    """Return a content in the form that SIGNED_DATA signs: as ``encode_content``, but raw bytes without a type byte.

    Raises:
        LocalError: As ``encode_content``, and for raw bytes that are not ``is_signable``; send them as ``Extended``.
    """
    if not isinstance(content, Raw):
        return encode_content(content)
    if not is_signable(content.data):
        raise LocalError("these raw bytes could be mistaken for something else once signed; send them as Extended")
    return content.data


def is_signable(data: bytes) -> bool:
    """Return whether raw bytes may be signed without a type byte (MERK-RAW).

    Not those that receivers would take for a typed content, for an answer to a challenge (32 bytes) or for one of the
    statements that begin with ``merk-`` (specs/merk.md 7).
    """
    # Spec 2: the handshake signs 32 bytes that a relay chose, so content of that length could be an answer to it.
    return data[:1] not in _TYPED and len(data) != CHALLENGE_BYTES and not data.startswith(_CONTEXTS)


def decode_content(data: bytes) -> Content:
    """Return the content that a type byte and a body say.

    Raises:
        MalformedError: BAD_CONTENT.
    """
    if not data:
        raise _bad("empty")
    # Spec 3: 0x10 alone has a layout around the inner content.
    if data[0] == ContentType.EXTENDED:
        return _extended(data)
    return _plain(data[0], data, 1)


def decode_signed_content(data: bytes) -> Content:
    """Return the content of a SIGNED_DATA, where whatever begins with no type byte is raw.

    Bytes that begin like ``Extended`` and are none are raw too: a client of the original may sign them.

    Raises:
        MalformedError: BAD_CONTENT.
    """
    # Spec 3: inside SIGNED_DATA RAW has no type byte.
    if data[:1] not in _TYPED:
        return Raw(data)
    if data[0] != ContentType.EXTENDED:
        return decode_content(data)
    try:
        return _extended(data)
    except MalformedError:
        return Raw(data)


def _parts(content: Content) -> tuple[bytes, ...]:
    if not isinstance(content, Extended):
        return _plain_parts(content)
    assert len(content.message_id) == MESSAGE_ID_BYTES
    if not 0 <= content.time_ms <= _U64_MAX:
        raise LocalError(f"no time in milliseconds: {content.time_ms}")
    inner = content.content
    return _EXTENDED.pack(ContentType.EXTENDED, content.time_ms, content.message_id), *_inner_parts(inner)


def _inner_parts(inner: Plain | FilePart | Receipt | Answer) -> tuple[bytes, ...]:
    # Spec 3: kinds 4 to 6 exist only inside EXTENDED, whose id marks a repetition.
    match inner:
        case FilePart():
            return _file_part_parts(inner)
        case Receipt():
            return _receipt_parts(inner)
        case Answer(message_id, content):
            assert len(message_id) == MESSAGE_ID_BYTES
            return bytes((_ANSWER,)), message_id, *_plain_parts(content)
        case _:
            return _plain_parts(inner)


def _plain_parts(content: Plain) -> tuple[bytes, ...]:
    match content:
        case Raw(data):
            return bytes((ContentType.RAW,)), data
        case Text(text):
            return bytes((ContentType.TEXT,)), _encode_text(text)
        case Json(text):
            try:
                _parse_json(text)
            except MalformedError as error:
                raise LocalError("this text is no JSON") from error
            return bytes((ContentType.JSON,)), _encode_text(text)
        case File(name, data):
            return bytes((ContentType.FILE,)), _encode_name(name), data


def _file_part_parts(part: FilePart) -> tuple[bytes, ...]:
    assert len(part.transfer_id) == TRANSFER_ID_BYTES
    assert len(part.digest) == DIGEST_BYTES
    if max(part.index, part.count) > _U32_MAX or not _is_sensible(part):
        raise LocalError(f"no part {part.index} of {part.count} of a file of {part.total_bytes} bytes")
    numbers = _PART.pack(_FILE_PART, part.transfer_id, part.digest, part.index, part.count, part.total_bytes)
    return numbers, _encode_name(part.name), part.data


def _receipt_parts(receipt: Receipt) -> tuple[bytes, ...]:
    assert all(len(each) == MESSAGE_ID_BYTES for each in receipt.message_ids)
    if not 1 <= len(receipt.message_ids) <= RECEIPT_IDS_MAX:
        raise LocalError(f"a receipt names 1 to {RECEIPT_IDS_MAX} messages, this {len(receipt.message_ids)}")
    return bytes((_RECEIPT, _TAKEN)), *receipt.message_ids


def _extended(data: bytes) -> Extended:
    # Spec 3: type, time, id and at least the byte of the kind.
    if len(data) <= _EXTENDED.size:
        raise _bad(f"extended content of {len(data)} bytes")
    _, time_ms, message_id = _EXTENDED.unpack_from(data)
    kind = data[_EXTENDED.size]
    if kind == _FILE_PART:
        return Extended(time_ms, message_id, _file_part(data))
    if kind == _RECEIPT:
        return Extended(time_ms, message_id, _receipt(data, _EXTENDED.size + 1))
    if kind == _ANSWER:
        return Extended(time_ms, message_id, _answer(data, _EXTENDED.size + 1))
    return Extended(time_ms, message_id, _plain(kind, data, _EXTENDED.size + 1))


def _plain(kind: int, data: bytes, at: int) -> Plain:
    """Return the content of a type whose body begins at ``at``."""
    if kind == ContentType.RAW:
        return Raw(data[at:])
    if kind == ContentType.TEXT:
        return Text(_decode_text(data[at:]))
    if kind == ContentType.JSON:
        text = _decode_text(data[at:])
        _parse_json(text)
        return Json(text)
    # Spec 3: ``u8 name length, name, data``; the data reach to the end of the frame.
    if kind == ContentType.FILE:
        name, data_at = _decode_name(data, at)
        return File(name, data[data_at:])
    raise _bad(f"type {kind:#04x}")


def _file_part(data: bytes) -> FilePart:
    name_at = _EXTENDED.size + _PART.size
    if len(data) < name_at:
        raise _bad(f"file part of {len(data)} bytes")
    _, transfer_id, digest, index, count, total_bytes = _PART.unpack_from(data, _EXTENDED.size)
    name, data_at = _decode_name(data, name_at)
    part = FilePart(transfer_id, digest, index, count, total_bytes, name, data[data_at:])
    # The numbers are the sender's: a receiver reserves room by them, so they are checked here once.
    if not _is_sensible(part):
        raise _bad(f"part {index} of {count} of a file of {total_bytes} bytes")
    return part


def _receipt(data: bytes, at: int) -> Receipt:
    body = data[at + 1 :]
    count, rest = divmod(len(body), MESSAGE_ID_BYTES)
    if data[at : at + 1] != bytes((_TAKEN,)) or rest or not 1 <= count <= RECEIPT_IDS_MAX:
        raise _bad(f"receipt of {len(body)} bytes")
    return Receipt(tuple(body[first : first + MESSAGE_ID_BYTES] for first in range(0, len(body), MESSAGE_ID_BYTES)))


def _answer(data: bytes, at: int) -> Answer:
    kind_at = at + MESSAGE_ID_BYTES
    if len(data) <= kind_at:
        raise _bad(f"answer of {len(data)} bytes")
    content = _plain(data[kind_at], data, kind_at + 1)
    if isinstance(content, File):
        raise _bad("an answer is no file")
    return Answer(data[at:kind_at], content)


def _is_sensible(part: FilePart) -> bool:
    # Spec 3 and 10.11: indexes count from 0, and no part is larger than its file.
    return 0 <= part.index < part.count and len(part.data) <= part.total_bytes <= FILE_BYTES_MAX


def _encode_text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise LocalError("a text with lone surrogates has no UTF-8") from error


def _decode_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _bad("no UTF-8") from error


def _encode_name(name: str) -> bytes:
    """Return a name with its length in front."""
    encoded = _encode_text(name)
    if len(encoded) > FILE_NAME_BYTES_MAX:
        raise LocalError(f"a file name has at most {FILE_NAME_BYTES_MAX} bytes, this has {len(encoded)}")
    return bytes((len(encoded),)) + encoded


def _decode_name(data: bytes, at: int) -> tuple[str, int]:
    """Return the name whose length stands at ``at``, and where the file's data begin."""
    end = at + 1 + (data[at] if len(data) > at else 0)
    if not at < end <= len(data):
        raise _bad("file name reaches past the end")
    return _decode_text(data[at + 1 : end]), end


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _bad("no JSON") from error


def _refuse_constant(name: str) -> Any:
    # Python reads NaN and the infinities; JSON has none of them, and no browser does.
    raise ValueError(name)


def _bad(detail: str) -> MalformedError:
    return MalformedError(Refusal.BAD_CONTENT, detail)


_FILE_PART: Final = 4  # spec 3, EXTENDED
"""Kind of a file part; only inside ``Extended``."""
_RECEIPT: Final = 5  # spec 3, EXTENDED
"""Kind of a receipt; only inside ``Extended``."""
_ANSWER: Final = 6  # spec 3, EXTENDED
"""Kind of an answer; only inside ``Extended``."""
_TAKEN: Final = 1  # spec 3, what a receipt says of its messages
_TYPED: Final = frozenset(bytes((kind,)) for kind in (1, 2, 3, ContentType.EXTENDED))
_CONTEXTS: Final = b"merk-"  # of every other statement that these keys sign: specs/merk.md 7
_U32_MAX: Final = 2**32 - 1
_U64_MAX: Final = 2**64 - 1
_EXTENDED: Final = struct.Struct(">BQ16s")
_PART: Final = struct.Struct(">B16s32sIIQ")
