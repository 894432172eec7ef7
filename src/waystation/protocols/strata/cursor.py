"""Encodes and decodes cursors: a reader's position in a relay's packet history.

The relay's ``subscription`` makes them and ``machine`` reads what a client sends back. History grows at its end and, by
late copies of old packets, before it. A reader still needs ``{seq <= h and K > k}`` in history order, then ``{seq >
s}`` in order of arrival, where K is ``(order_at, seq)``. ``k`` is None once the first part is done (END). Clients see
an opaque text: msgpack with the store's epoch and a hash of the filters. A cursor of another store or filter is
refused.

Spec: RFC-0004 3.1; specs/strata.md 13.1, clarification 4.
"""

import binascii
import struct
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from waystation.crypto.hashing import sha256
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.refusals import Code, Refusal, RefusedError

__all__ = ["FILTER_HASH_BYTES", "Cursor", "decode_cursor", "encode_cursor", "filter_hash", "first_part_encoder"]

FILTER_HASH_BYTES: Final = 8
_VERSION: Final = 1
_CHECKSUM_BYTES: Final = 4
_INTEGER_MAX: Final = 2**63 - 1
_PLACE: Final = struct.Struct(">BQBQ")
_U64: Final = 0xCF  # msgpack's mark of an unsigned integer of 8 bytes
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_STANDARD: Final = bytes.maketrans(b"-_", b"+/")


class Cursor(NamedTuple):
    """A position in one relay's history."""

    k: tuple[int, int] | None
    """Last ``(order_at, seq)`` delivered of the first part; None when that part is over."""
    h: int
    """Newest ``seq`` when the first page was asked for."""
    s: int
    """Last ``seq`` delivered of the second part."""


class _Body(msgspec.Struct, array_like=True):
    v: int
    epoch: bytes
    f: bytes
    o: bool
    k: list[int]
    h: int
    s: int


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Body).decode


def filter_hash(filters: Filters) -> bytes:
    """Return 8 bytes that name a filter without its limit, cursor and order; lists count as sets."""
    # Spec 24.4: limit may change, lists are sets, absent, null and [] are the same.
    fields: tuple[object, ...] = (filters.authors, filters.types, filters.since, filters.until)
    if filters.ids:  # left out otherwise, so that cursors from before they were known stay good
        fields = (*fields, filters.ids)
    return sha256(_encode(fields))[:FILTER_HASH_BYTES]


def encode_cursor(cursor: Cursor, epoch: bytes, filters: bytes, *, descending: bool) -> bytes:
    """Return the text of a cursor, ASCII without characters that JSON escapes.

    Args:
        cursor: The place.
        epoch: 8 bytes that name the store.
        filters: From ``filter_hash``.
        descending: Order of the history it belongs to.
    """
    body = _encode((_VERSION, epoch, filters, descending, cursor.k or (), cursor.h, cursor.s))
    text = binascii.b2a_base64(body + zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "big"), newline=False)
    return text.translate(_URL_SAFE).rstrip(b"=")


def first_part_encoder(
    h: int, s: int, epoch: bytes, filters: bytes, *, descending: bool
) -> Callable[[int, int], bytes]:
    """Return the function that encodes ``Cursor((order_at, seq), h, s)`` from its first two numbers.

    A page has hundreds of cursors that differ in nothing else, and most of the work is the same for all of them.
    """
    whole = _encode((_VERSION, epoch, filters, descending, (0, 0), h, s))
    tail = _encode(h) + _encode(s)
    head = whole[: -len(tail) - 2]  # (0, 0) is a byte each, after the byte that says two
    pack, crc32, b2a = _PLACE.pack, zlib.crc32, binascii.b2a_base64

    def encode(order_at: int, seq: int) -> bytes:
        body = head + pack(_U64, order_at, _U64, seq) + tail
        text = b2a(body + crc32(body).to_bytes(_CHECKSUM_BYTES, "big"), newline=False)
        return text.translate(_URL_SAFE).rstrip(b"=")

    return encode


def decode_cursor(text: str, epoch: bytes, filters: bytes, *, descending: bool) -> Cursor:
    """Return the position of a client's cursor.

    Raises:
        RefusedError: ``invalid_cursor``: unreadable, or of another store, filter or order.
    """
    try:
        raw = binascii.a2b_base64(text.encode("ascii").translate(_STANDARD) + b"=" * (-len(text) % 4), strict_mode=True)
        body, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
        # A checksum, no signature: a forged cursor reads only what its filters allow anyway.
        if zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "big") != checksum:
            raise _invalid("checksum")
        found = _decode(body)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise _invalid("unreadable") from error
    # Spec 13.1: invalid_cursor: another store.
    if found.v != _VERSION or found.epoch != epoch:
        raise _invalid("other_store")
    # Spec 13.1: invalid_cursor: other filters or another order.
    if found.f != filters or found.o != descending:
        raise _invalid("other_filter")
    # A client can write any numbers: those that the store cannot hold are refused here.
    numbers = (*found.k, found.h, found.s)
    if len(found.k) not in (0, 2) or not all(0 <= number <= _INTEGER_MAX for number in numbers):
        raise _invalid("unreadable")
    return Cursor((found.k[0], found.k[1]) if found.k else None, found.h, found.s)


def _invalid(detail: str) -> RefusedError:
    return RefusedError(Refusal(Code.INVALID_CURSOR, detail))
