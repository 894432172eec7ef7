"""Rows of mailboxes and kept frames in the store, and their encoding.

``mailboxes`` writes and reads them. Two tables (integers big-endian):

``merk_mailboxes``: client key[32] -> version 1, u64 when the owner came last, u8 length and text of the network that
opened it, the owner's presence[145] as in PRESENCE without its subtype, and where the owner has said its agreement key
its advert[136] as in KEY_ADVERT without its subtype.
``merk_mail``: client key[32], u64 number -> version 1, u64 kept at, u64 until, frame hash[16], u8 length and text of
the source, the frame.

Times are Unix milliseconds. A row that is damaged is absent (NODE-ROT); one of another layout stops the node, because a
newer waystation has written it.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from waystation.core.errors import HostError
from waystation.core.records import Store
from waystation.protocols.merk.messages import HASH_BYTES, HEADER_BYTES, KEY_BYTES

__all__ = [
    "ADVERT_BYTES",
    "BOXES",
    "MAIL",
    "PRESENCE_BYTES",
    "BoxRow",
    "MailRow",
    "box_rows",
    "decode_mail",
    "encode_box",
    "encode_mail",
    "lost_boxes",
    "mail_key",
    "mail_rows",
    "next_number",
]

BOXES: Final = "merk_mailboxes"
MAIL: Final = "merk_mail"
PRESENCE_BYTES: Final = 145  # specs/merk.md 7, PRESENCE without its subtype
ADVERT_BYTES: Final = 136  # specs/merk.md 7, KEY_ADVERT without its subtype
_VERSION: Final = 1
_STORE_EXIT_CODE: Final = 5
_NUMBER: Final = struct.Struct(">Q")
_BOX: Final = struct.Struct(">BQB")
_MAIL: Final = struct.Struct(f">BQQ{HASH_BYTES}sB")
_MAIL_KEY_BYTES: Final = KEY_BYTES + _NUMBER.size
_BOXES_PAGE: Final = 256
_MAIL_PAGE: Final = 16  # each row may have a frame of megabytes


class BoxRow(NamedTuple):
    """One mailbox as it is on disk."""

    presence: bytes
    """145 bytes that the owner signed."""
    came_ms: int
    """When the owner came last."""
    network: str
    """Network it was opened from, "" for none."""
    advert: bytes = b""
    """136 bytes that the owner signed, b"" where it has not said its agreement key."""


class MailRow(NamedTuple):
    """One kept frame as it is on disk."""

    kept_ms: int
    until_ms: int
    frame_hash: bytes
    """16 bytes."""
    source: str
    """Network or node that brought it, "" for none."""
    frame: bytes


def mail_key(owner: bytes, number: int) -> bytes:
    """Return the key of a kept frame."""
    return owner + _NUMBER.pack(number)


def encode_box(row: BoxRow) -> bytes:
    """Return the value of a mailbox's row."""
    assert len(row.presence) == PRESENCE_BYTES
    assert len(row.advert) in {0, ADVERT_BYTES}
    network = row.network.encode()
    return b"".join((_BOX.pack(_VERSION, row.came_ms, len(network)), network, row.presence, row.advert))


def encode_mail(row: MailRow) -> bytes:
    """Return the value of a kept frame's row."""
    source = row.source.encode()
    head = _MAIL.pack(_VERSION, row.kept_ms, row.until_ms, row.frame_hash, len(source))
    return b"".join((head, source, row.frame))


def decode_mail(value: bytes) -> MailRow:
    """Return a kept frame.

    Raises:
        HostError: The row has another layout (exit code 5).
    """
    if len(value) < _MAIL.size:
        raise _foreign(MAIL)
    version, kept_ms, until_ms, frame_hash, length = _MAIL.unpack_from(value)
    begin = _MAIL.size + length
    if version != _VERSION or len(value) < begin + HEADER_BYTES + KEY_BYTES:
        raise _foreign(MAIL)
    return MailRow(kept_ms, until_ms, frame_hash, value[_MAIL.size : begin].decode(errors="replace"), value[begin:])


def box_rows(store: Store) -> Iterator[tuple[bytes, BoxRow]]:
    """Yield every mailbox by its owner's key.

    Raises:
        HostError: A row has another layout (exit code 5).
    """
    for key, value in _scan(store, BOXES, _BOXES_PAGE):
        if len(key) != KEY_BYTES or len(value) < _BOX.size:
            raise _foreign(BOXES)
        version, came_ms, length = _BOX.unpack_from(value)
        begin = _BOX.size + length
        end = begin + PRESENCE_BYTES
        if version != _VERSION or len(value) - end not in {0, ADVERT_BYTES}:
            raise _foreign(BOXES)
        network = value[_BOX.size : begin].decode(errors="replace")
        yield key, BoxRow(value[begin:end], came_ms, network, value[end:])


def mail_rows(store: Store) -> Iterator[tuple[bytes, int, MailRow]]:
    """Yield every kept frame with its owner's key and its number, the oldest of each owner first.

    Raises:
        HostError: A row has another layout (exit code 5).
    """
    for key, value in _scan(store, MAIL, _MAIL_PAGE):
        if len(key) != _MAIL_KEY_BYTES:
            raise _foreign(MAIL)
        yield key[:KEY_BYTES], _number_of(key), decode_mail(value)


def lost_boxes(store: Store) -> list[bytes]:
    """Return the owners whose mailbox's row is damaged, as far as the key can be read."""
    return [row.key for row in store.damaged(BOXES) if row.key_is_good and len(row.key) == KEY_BYTES]


def next_number(store: Store, newest: int) -> int:
    """Return a number above ``newest`` and above that of every damaged row: none is used twice."""
    damaged = [row.key for row in store.damaged(MAIL) if row.key_is_good and len(row.key) == _MAIL_KEY_BYTES]
    return max([newest, *map(_number_of, damaged)]) + 1


def _number_of(key: bytes) -> int:
    (number,) = _NUMBER.unpack_from(key, KEY_BYTES)
    return int(number)


def _scan(store: Store, table: str, page_rows: int) -> Iterator[tuple[bytes, bytes]]:
    start = b""
    while True:
        page = list(store.scan(table, start, page_rows))
        yield from page
        if len(page) < page_rows:
            return
        start = page[-1][0] + b"\x00"


def _foreign(table: str) -> HostError:
    return HostError(f"the store's table {table} was written by a newer waystation", exit_code=_STORE_EXIT_CODE)
