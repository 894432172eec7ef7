"""Orders: commands that other programs queue for a device in its store, such as the command line beside a running node.

The command line and the SDK write them; the relay and ``protocols.bsp.home`` execute them on the device. An order is a
row. The device looks for orders every second and at its start. It removes the row in the commit that executes the
order, so each is executed once. An order that cannot be executed is removed and reported.

Layout of a value: number of the kind 1, then each field after its length (4, big-endian); texts in UTF-8, integers in 8
bytes. The key is the time 8 (Unix ms) and 8 bytes of the value's hash, so orders are read in the order of time.
"""

import struct
from collections.abc import Callable
from typing import Final, NamedTuple, get_type_hints

from waystation.core.cursor import Cursor, ShortError
from waystation.core.errors import HostError, LocalError
from waystation.core.instant import Instant, after_ms
from waystation.core.records import Record, Store
from waystation.crypto.hashing import blake2b_256
from waystation.protocols.bsp.device.sync import BspDevice

__all__ = [
    "LOOK_MS",
    "AddMessage",
    "DeleteMessage",
    "Join",
    "Leave",
    "Meet",
    "Order",
    "OrderTaker",
    "Part",
    "ShareGroup",
    "ShareMessage",
    "carry_out_on_message",
    "queue_order",
    "read_orders",
]

LOOK_MS: Final = 1_000
"""How often a running device looks; clarification 1 of bsp 11 allows 2 s from order to offer."""
_TABLE: Final = "bsp_orders"
_PAGE: Final = 256
_STORE_EXIT_CODE: Final = 5
_NUMBER: Final = struct.Struct(">Q")
_LENGTH: Final = struct.Struct(">I")
_HASH_BYTES: Final = 8


class AddMessage(NamedTuple):
    """Create a message of our own, and share it."""

    group_id: bytes
    timestamp: int
    body: bytes


class DeleteMessage(NamedTuple):
    """Remove a message's body."""

    group_id: bytes
    message_id: bytes


class ShareMessage(NamedTuple):
    """Share a delivered message."""

    group_id: bytes
    message_id: bytes


class Join(NamedTuple):
    """Become a member of a group."""

    client_id: bytes
    descriptor: bytes
    format: str
    name: str


class Leave(NamedTuple):
    """Forget a group."""

    group_id: bytes


class Meet(NamedTuple):
    """Take a peer into the table."""

    peer: bytes
    url: str
    name: str


class Part(NamedTuple):
    """Forget a peer."""

    peer: bytes


class ShareGroup(NamedTuple):
    """Share a group with a peer, or stop."""

    group_id: bytes
    peer: bytes
    visibility: str
    """Value of ``links.Visibility``."""


Order = AddMessage | DeleteMessage | ShareMessage | Join | Leave | Meet | Part | ShareGroup
"""Every kind of order."""

_KINDS: Final[tuple[type[Order], ...]] = (
    AddMessage,
    DeleteMessage,
    ShareMessage,
    Join,
    Leave,
    Meet,
    Part,
    ShareGroup,
)


def queue_order(order: Order, wall_ms: int) -> Record:
    """Return the row of an order; the program that commits it has queued it.

    Args:
        order: The change that is asked for.
        wall_ms: Unix milliseconds; orders are taken by it.
    """
    parts = [bytes((_KINDS.index(type(order)),))]
    for field in order:
        value = _to_bytes(field)
        parts += (_LENGTH.pack(len(value)), value)
    data = b"".join(parts)
    # Keys sort by time: orders are carried out as they were given; the hash keeps two of one millisecond apart.
    return Record(_TABLE, _NUMBER.pack(wall_ms) + blake2b_256(data)[:_HASH_BYTES], data)


def read_orders(store: Store) -> list[tuple[bytes, Order]]:
    """Return the orders that wait, each with the key of its row, in the order of time; at most 256.

    Raises:
        HostError: A row is not one of ours (exit code 5).
    """
    return [(key, _order(value)) for key, value in store.scan(_TABLE, b"", _PAGE)]


def carry_out_on_message(device: BspDevice, order: AddMessage | DeleteMessage | ShareMessage, now: Instant) -> None:
    """Do what an order asks of a message; raises LocalError when that is impossible."""
    if isinstance(order, AddMessage):
        device.add(order.group_id, order.timestamp, order.body, now)
    elif isinstance(order, DeleteMessage):
        device.delete(order.group_id, order.message_id)
    else:
        device.share_message(order.group_id, order.message_id, now)


class OrderTaker:
    """Looks for orders once a second, and has them carried out."""

    def __init__(
        self,
        store: Store,
        carry_out: Callable[[Order, Instant], None],
        keep: Callable[[Record], None],
        refused: Callable[[Order | None, str], None],
    ) -> None:
        """Look in ``store``.

        Args:
            store: Holds the queued orders.
            carry_out: Carries one out, or raises LocalError.
            keep: Takes the removal of a row into the commit that makes its effect durable.
            refused: Called with an order that could not be carried out, and why; None is a row that holds none.
        """
        self._store = store
        self._carry_out = carry_out
        self._keep = keep
        self._refused = refused
        self._taken_keys: set[bytes] = set()
        self._look_at = Instant(0)

    def deadline(self) -> Instant:
        """Return when to look next."""
        return self._look_at

    def wake(self, now: Instant) -> None:
        """Carry out the queued orders, if it is time to look; early calls do nothing."""
        if now < self._look_at:
            return
        # Spec 11.1: what another program adds is offered within 2 s.
        self._look_at = after_ms(now, LOOK_MS)
        waiting = list(self._store.scan(_TABLE, b"", _PAGE))
        self._taken_keys &= {key for key, _ in waiting}  # the others are gone from the disk
        for key, value in waiting:
            # The row leaves the disk with its effect, one commit later: until then it is read again and skipped.
            if key not in self._taken_keys:
                self._taken_keys.add(key)
                self._take(value, now)
                # BSP-ORDERS: effect and removal are one commit, so each order is carried out once, also over a crash.
                self._keep(Record(_TABLE, key, None))

    def _take(self, value: bytes, now: Instant) -> None:
        try:
            order = _order(value)
        except HostError as error:
            self._refused(None, str(error))
            return
        try:
            self._carry_out(order, now)
        except LocalError as error:
            # BSP-ORDERS: an order that cannot be carried out is removed too, and reported.
            self._refused(order, str(error))


def _to_bytes(field: bytes | str | int) -> bytes:
    if isinstance(field, str):
        return field.encode()
    return _NUMBER.pack(field) if isinstance(field, int) else field


def _order(value: bytes) -> Order:
    cursor = Cursor(value)
    try:
        kind = _KINDS[cursor.take_u8()]
        fields = [_from_bytes(hint, cursor.take(cursor.take_u32())) for hint in get_type_hints(kind).values()]
    except (ShortError, IndexError, ValueError, struct.error) as error:
        raise HostError(f"the store's table {_TABLE} is damaged", exit_code=_STORE_EXIT_CODE) from error
    # Bytes after the last field belong to no order that we know.
    if cursor.left:
        raise HostError(f"the store's table {_TABLE} is damaged", exit_code=_STORE_EXIT_CODE)
    return kind._make(fields)


def _from_bytes(hint: type, data: bytes) -> bytes | str | int:
    if hint is int:
        return int(_NUMBER.unpack(data)[0])
    return data.decode() if hint is str else data
