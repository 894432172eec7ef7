"""Encodes and decodes the commands of a mailbox's owner, and the mailbox's answers.

Owner and mailbox share the control group. A command is a message of that group in the format ``deps_v1``. It depends on
the owner's earlier commands, so commands are executed in the order in which they were given. An answer is a message
that depends on its command alone. Both are the *content* of such a body; integers are big-endian::

    every content   version 01 (1), kind (1), then by kind:

    01 host         group id 32, keep_ms 8, format 1 (00 opaque, 01 deps_v1),
                    n 1, client id n (1..100), n 2, descriptor n (0..16384), n 2, member keys n x 32 (0..256)
    02 members      group id 32, n 2, keys to add n x 32 (0..256), n 2, keys to remove n x 32 (0..256)
    03 drop         group id 32
    04 status       group id 32: rows begin after this one; zeros for the first

    80 done         status 1 (``AnswerStatus``)
    81 state        allows  groups 4, live bytes 8, live messages 4, tombstones 4  (the owner's quota)
                    uses    the same four                                          (control group included)
                    more 1 (01: ask again after the last row, else 00)
                    n 2, rows n x 70 (0..256), ascending by group id:
                      group id 32, members 2, keep_ms 8, live bytes 8, live messages 4, tombstones 4, next order 8,
                      oldest body 4 (seconds since it came here)

``keep_ms`` is how long a body is kept for members that did not connect, 1 s to 365 days; 0 means the mailbox's default
of 14 days. Bytes after the last field are illegal. A key may occur twice; it counts once. A key that no device can own
(no point of Ed25519's main subgroup, or not canonical) may be removed, but neither hosted nor added: ``WEAK_KEY``.

Commands may be given at any rate; the mailbox executes them one by one at its own rate.

A command must fit into a body with its dependencies: 32,768 bytes - 3 - 2 x 32. Hence the limits above; the longest
``host`` has 24,724 bytes. A group with a longer descriptor cannot be hosted (BSP-HOST).
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from waystation.core.cursor import Cursor, ShortError
from waystation.core.ids import KEY_BYTES, PublicKey
from waystation.protocols.bsp.messages import ID_BYTES
from waystation.protocols.bsp.refusals import MalformedError, Refusal

__all__ = [
    "CLIENT_ID_BYTES_MAX",
    "COMMANDS",
    "HOSTED_DESCRIPTOR_BYTES_MAX",
    "KEEP_DEFAULT_MS",
    "KEEP_MAX_MS",
    "KEEP_MIN_MS",
    "MEMBERS_MAX",
    "ROWS_MAX",
    "START",
    "Amounts",
    "Answer",
    "AnswerStatus",
    "ChangeMembers",
    "Command",
    "Done",
    "Drop",
    "Host",
    "HostedRow",
    "State",
    "Status",
    "decode",
    "encode",
    "is_answer",
]

HOSTED_DESCRIPTOR_BYTES_MAX: Final = 16_384
"""Briar's own bound, and what fits into a command."""
CLIENT_ID_BYTES_MAX: Final = 100
"""Of profile briar; the seed's has 32."""
MEMBERS_MAX: Final = 256
"""Members of one hosted group, the mailbox not counted."""
ROWS_MAX: Final = 256
"""Groups in one answer to ``Status``: 17,920 bytes."""
KEEP_DEFAULT_MS: Final = 14 * 86_400_000
"""14 days, as Briar's mailbox keeps files (bsp 6)."""
KEEP_MIN_MS: Final = 1_000
KEEP_MAX_MS: Final = 365 * 86_400_000
START: Final = bytes(ID_BYTES)
"""Where the rows of ``Status`` begin."""

_VERSION: Final = 1
_FORMATS: Final = ("opaque", "deps_v1")
_HIGHEST_U32: Final = 0xFFFF_FFFF


class Host(NamedTuple):
    """Host a group, or change the members and time of one that is hosted already."""

    group_id: bytes
    """32 bytes; must be what client identifier and descriptor give."""
    client_id: bytes
    """32 bytes; in profile briar 1 to 100."""
    descriptor: bytes
    """At most 16,384 bytes."""
    members: tuple[PublicKey, ...]
    """Keys that the mailbox serves, at most 256. The owner is one only if it is listed."""
    format: str = "opaque"
    """opaque or deps_v1."""
    keep_ms: int = 0
    """1 s to 365 days, 0 for the mailbox's own 14 days."""


class ChangeMembers(NamedTuple):
    """Serve other members from now on. A key in both lists is not served."""

    group_id: bytes
    add: tuple[PublicKey, ...] = ()
    remove: tuple[PublicKey, ...] = ()


class Drop(NamedTuple):
    """Forget a group with all its messages."""

    group_id: bytes


class Status(NamedTuple):
    """Return the hosted groups and how much room they take."""

    after: bytes = START
    """32 bytes: rows begin with the first group after this one."""


Command = Host | ChangeMembers | Drop | Status
COMMANDS: Final = (Host, ChangeMembers, Drop, Status)


class AnswerStatus(IntEnum):
    """The result of a command; the number is the byte of the answer."""

    DONE = 0
    UNREADABLE = 1
    """Another version, an unknown kind, a length that lies, a number out of bounds, or bytes after the end."""
    WRONG_GROUP_ID = 2
    """Client identifier and descriptor give another group, or are not allowed."""
    GROUPS_FULL = 3
    """The owner has as many groups as it may."""
    MEMBERS_FULL = 4
    """The group would have more than 256 members, or more than the owner's messages allow."""
    NOT_HOSTED = 5
    """No such group is hosted for this owner; whether it is for another owner is not shown."""
    TAKEN = 6
    """The mailbox is in this group already, for another owner."""
    SERVED = 7
    """As ``TAKEN``, and this owner is one of its members: nothing needs to be done."""
    OTHER_FORMAT = 8
    """The group is hosted with another format; drop it first."""
    WEAK_KEY = 9
    """One of the keys cannot be held by a device: such a member would keep every body to its ``keep_ms``."""

    @property
    def refusal(self) -> Refusal | None:
        """Return the reason under which the mailbox counts it, None for a command that was done."""
        if self is AnswerStatus.DONE:
            return None
        return _REFUSALS.get(self, Refusal.MAILBOX_COMMAND)


class Done(NamedTuple):
    """The answer to every command but ``Status``, and to those that cannot be read."""

    status: AnswerStatus


class Amounts(NamedTuple):
    """The amounts that a quota allows, or that are used of it."""

    groups: int
    live_bytes: int
    """Of bodies."""
    live_messages: int
    """Those that have their body."""
    tombstones: int
    """Those that have none any more."""


class HostedRow(NamedTuple):
    """One hosted group."""

    group_id: bytes
    members: int
    keep_ms: int
    live_bytes: int
    live_messages: int
    tombstones: int
    next_order: int
    """Number that the next message to be delivered gets: one more than were delivered."""
    oldest_s: int
    """Seconds since the oldest body came, 0 without any."""


class State(NamedTuple):
    """The answer to ``Status``."""

    allows: Amounts
    uses: Amounts
    more: bool
    """Whether there are groups after the last row."""
    rows: tuple[HostedRow, ...]


Answer = Done | State

_REFUSALS: Final = {
    AnswerStatus.WRONG_GROUP_ID: Refusal.MAILBOX_GROUP_ID,
    AnswerStatus.GROUPS_FULL: Refusal.MAILBOX_GROUPS_FULL,
}


class _Kind(Enum):
    HOST = 0x01
    MEMBERS = 0x02
    DROP = 0x03
    STATUS = 0x04
    DONE = 0x80
    STATE = 0x81


def is_answer(content: bytes) -> bool:
    """Return whether a content claims to be an answer: no mailbox replies to one."""
    # Spec 6: answers have kinds from 80 on; an answer to an answer would go round for ever.
    return len(content) > 1 and content[0] == _VERSION and content[1] >= _Kind.DONE.value


# Writing


def encode(message: Command | Answer) -> bytes:
    """Return the content of a command or answer; every field is within its bounds, or it is our bug."""
    match message:
        case Host():
            return _head(_Kind.HOST) + _host_fields(message)
        case ChangeMembers(group_id, add, remove):
            assert len(group_id) == ID_BYTES
            return _head(_Kind.MEMBERS) + group_id + _keys(add) + _keys(remove)
        case Drop(group_id):
            assert len(group_id) == ID_BYTES
            return _head(_Kind.DROP) + group_id
        case Status(after):
            assert len(after) == ID_BYTES
            return _head(_Kind.STATUS) + after
        case Done(status):
            return _head(_Kind.DONE) + _u8(status)
        case State(allows, uses, more, rows):
            assert len(rows) <= ROWS_MAX
            head = _head(_Kind.STATE) + _amounts(allows) + _amounts(uses) + _u8(int(more)) + _u16(len(rows))
            return head + b"".join(map(_row, rows))


def _head(kind: _Kind) -> bytes:
    return bytes((_VERSION, kind.value))


def _host_fields(host: Host) -> bytes:
    assert len(host.group_id) == ID_BYTES
    assert 0 < len(host.client_id) <= CLIENT_ID_BYTES_MAX
    assert len(host.descriptor) <= HOSTED_DESCRIPTOR_BYTES_MAX
    return b"".join(
        (
            host.group_id,
            _u64(host.keep_ms),
            _u8(_FORMATS.index(host.format)),
            _u8(len(host.client_id)) + host.client_id,
            _u16(len(host.descriptor)) + host.descriptor,
            _keys(host.members),
        )
    )


def _keys(keys: Sequence[PublicKey]) -> bytes:
    assert len(keys) <= MEMBERS_MAX
    assert all(len(key) == KEY_BYTES for key in keys)
    return _u16(len(keys)) + b"".join(keys)


def _amounts(amounts: Amounts) -> bytes:
    return _u32(amounts.groups) + _u64(amounts.live_bytes) + _u32(amounts.live_messages) + _u32(amounts.tombstones)


def _row(row: HostedRow) -> bytes:
    return b"".join(
        (
            row.group_id,
            _u16(row.members),
            _u64(row.keep_ms),
            _u64(row.live_bytes),
            _u32(row.live_messages),
            _u32(row.tombstones),
            _u64(row.next_order),
            _u32(min(row.oldest_s, _HIGHEST_U32)),
        )
    )


def _u8(value: int) -> bytes:
    return value.to_bytes(1, "big")


def _u16(value: int) -> bytes:
    return value.to_bytes(2, "big")


def _u32(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _u64(value: int) -> bytes:
    return value.to_bytes(8, "big")


# Reading


def decode(content: bytes) -> Command | Answer:
    """Return the command or answer of a content.

    Raises:
        MalformedError: It has none of the forms in this module's docstring (MAILBOX_COMMAND).
    """
    cursor = Cursor(content)
    try:
        version, kind = cursor.take_u8(), _Kind(cursor.take_u8())
        message = _READERS[kind](cursor)
    except ShortError as error:
        raise _malformed(str(error)) from error
    except ValueError as error:  # a number that no Enum has
        raise _malformed(str(error)) from error
    # Spec 6: every content begins with version 01.
    if version != _VERSION:
        raise _malformed(f"version {version}")
    # Spec 6: a content ends with its last field.
    if cursor.left:
        raise _malformed(f"{cursor.left} bytes after the end")
    return message


def _read_host(cursor: Cursor) -> Host:
    group_id, keep_ms, form = cursor.take(ID_BYTES), _take_u64(cursor), cursor.take_u8()
    # Spec 6: 1 s to 365 days; 0 means 14 days.
    if keep_ms and not KEEP_MIN_MS <= keep_ms <= KEEP_MAX_MS:
        raise _malformed(f"keep_ms {keep_ms}")
    # Spec 6: 00 opaque, 01 deps_v1.
    if form >= len(_FORMATS):
        raise _malformed(f"format {form}")
    # Spec 6: client 1 to 100 bytes, descriptor 0 to 16,384.
    client_id = cursor.take(_bounded(cursor.take_u8(), CLIENT_ID_BYTES_MAX, "bytes of client id", at_least=1))
    descriptor = cursor.take(_bounded(cursor.take_u16(), HOSTED_DESCRIPTOR_BYTES_MAX, "bytes of descriptor"))
    return Host(group_id, client_id, descriptor, _read_keys(cursor), _FORMATS[form], keep_ms)


def _read_members(cursor: Cursor) -> ChangeMembers:
    return ChangeMembers(cursor.take(ID_BYTES), _read_keys(cursor), _read_keys(cursor))


def _read_drop(cursor: Cursor) -> Drop:
    return Drop(cursor.take(ID_BYTES))


def _read_status(cursor: Cursor) -> Status:
    return Status(cursor.take(ID_BYTES))


def _read_done(cursor: Cursor) -> Done:
    return Done(AnswerStatus(cursor.take_u8()))


def _read_state(cursor: Cursor) -> State:
    allows, uses, more = _read_amounts(cursor), _read_amounts(cursor), cursor.take_u8()
    # Spec 6: at most 256 rows; ``more`` says that others follow.
    count = _bounded(cursor.take_u16(), ROWS_MAX, "rows")
    if more > 1:
        raise _malformed(f"more {more}")
    return State(allows, uses, bool(more), tuple(_read_row(cursor) for _ in range(count)))


def _read_keys(cursor: Cursor) -> tuple[PublicKey, ...]:
    count = _bounded(cursor.take_u16(), MEMBERS_MAX, "keys")
    # A key that is listed twice counts once.
    return tuple(dict.fromkeys(PublicKey(cursor.take(KEY_BYTES)) for _ in range(count)))


def _read_amounts(cursor: Cursor) -> Amounts:
    return Amounts(cursor.take_u32(), _take_u64(cursor), cursor.take_u32(), cursor.take_u32())


def _read_row(cursor: Cursor) -> HostedRow:
    return HostedRow(
        cursor.take(ID_BYTES),
        cursor.take_u16(),
        _take_u64(cursor),
        _take_u64(cursor),
        cursor.take_u32(),
        cursor.take_u32(),
        _take_u64(cursor),
        cursor.take_u32(),
    )


def _take_u64(cursor: Cursor) -> int:
    return int.from_bytes(cursor.take(8), "big")


def _bounded(count: int, at_most: int, what: str, *, at_least: int = 0) -> int:
    if not at_least <= count <= at_most:
        raise _malformed(f"{count} {what}")
    return count


def _malformed(detail: str) -> MalformedError:
    return MalformedError(Refusal.MAILBOX_COMMAND, f"a mailbox command or answer: {detail}")


_READERS: Final[Mapping[_Kind, Callable[[Cursor], Command | Answer]]] = {
    _Kind.HOST: _read_host,
    _Kind.MEMBERS: _read_members,
    _Kind.DROP: _read_drop,
    _Kind.STATUS: _read_status,
    _Kind.DONE: _read_done,
    _Kind.STATE: _read_state,
}
