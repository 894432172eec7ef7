"""Laws of protocols.bsp.orders: what is left is carried out once, in the order of time."""

import pytest

from waystation.core.errors import HostError, LocalError
from waystation.core.instant import Instant, after_ms
from waystation.core.records import Record
from waystation.protocols.bsp.device.orders import (
    LOOK_MS,
    AddMessage,
    DeleteMessage,
    Join,
    Leave,
    Meet,
    Order,
    OrderTaker,
    Part,
    ShareGroup,
    ShareMessage,
    queue_order,
    read_orders,
)
from waystation.store.memory import MemoryStore

GROUP, MESSAGE, PEER = b"g" * 32, b"m" * 32, b"p" * 32
ORDERS = [
    AddMessage(GROUP, (1 << 63) - 1, b""),
    AddMessage(GROUP, 0, b"\x00body"),
    DeleteMessage(GROUP, MESSAGE),
    ShareMessage(GROUP, MESSAGE),
    Join(b"c" * 32, b"", "deps_v1", "我们"),
    Leave(GROUP),
    Meet(PEER, "bsp+tls://relay.example:7443", ""),
    Part(PEER),
    ShareGroup(GROUP, PEER, "visible"),
]


class Desk:
    """A store with an order taker, and what it did."""

    def __init__(self, *orders: Order) -> None:
        self.store = MemoryStore()
        self.done: list[Order] = []
        self.refused: list[tuple[Order | None, str]] = []
        self.kept: list[Record] = []
        self.taker = OrderTaker(
            self.store, self.carry_out, self.kept.append, lambda order, why: self.refused.append((order, why))
        )
        self.store.commit([queue_order(order, 1_000 + number) for number, order in enumerate(orders)])

    def carry_out(self, order: Order, _now: Instant) -> None:
        if isinstance(order, Part):
            raise LocalError("who is that?")
        self.done.append(order)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_order_reads_back_as_it_was_left(order):
    """Every kind, with every field at an edge, comes back equal."""
    store = MemoryStore()

    store.commit([queue_order(order, 7)])

    assert [read for _, read in read_orders(store)] == [order]


def test_orders_are_taken_in_the_order_of_time():
    """The key is the time, whatever the kinds."""
    store = MemoryStore()
    store.commit([queue_order(order, 900 - number) for number, order in enumerate(ORDERS)])

    assert [read for _, read in read_orders(store)] == ORDERS[::-1]


def test_order_is_carried_out_once_though_its_row_stands():
    """The removal rides in a commit that may take long; the order is not taken again meanwhile."""
    desk = Desk(ORDERS[2])

    desk.taker.wake(Instant(0))
    desk.taker.wake(desk.taker.deadline())

    assert desk.done == [ORDERS[2]]
    assert [record.value for record in desk.kept] == [None]


def test_removal_names_the_row_that_was_left():
    """What is kept for the commit removes exactly this order."""
    desk = Desk(ORDERS[2], ORDERS[3])

    desk.taker.wake(Instant(0))
    desk.store.commit(desk.kept)

    assert read_orders(desk.store) == []


def test_order_left_again_behind_its_removal_is_new():
    """A row of the same key that comes back later is another order."""
    desk = Desk(ORDERS[2])
    desk.taker.wake(Instant(0))
    desk.store.commit(desk.kept)
    desk.taker.wake(after_ms(Instant(0), LOOK_MS))

    desk.store.commit([queue_order(ORDERS[2], 1_000)])
    desk.taker.wake(after_ms(Instant(0), 2 * LOOK_MS))

    assert desk.done == [ORDERS[2], ORDERS[2]]


def test_refused_order_is_told_and_removed():
    """What cannot be carried out does not stand in the way of others, nor is it tried for ever."""
    desk = Desk(Part(PEER), ORDERS[2])

    desk.taker.wake(Instant(0))

    assert desk.refused == [(Part(PEER), "who is that?")]
    assert desk.done == [ORDERS[2]]
    assert len(desk.kept) == 2


def test_damaged_row_is_told_and_removed():
    """A row that holds no order stands in nobody's way."""
    desk = Desk(ORDERS[2])
    desk.store.commit([Record("bsp_orders", b"a", b"\xff")])

    desk.taker.wake(Instant(0))
    desk.store.commit(desk.kept)

    assert [order for order, _ in desk.refused] == [None]
    assert desk.done == [ORDERS[2]]
    assert read_orders(desk.store) == []


def test_early_wake_looks_at_nothing():
    """Between two looks the store is not read."""
    desk = Desk()
    desk.taker.wake(Instant(0))
    desk.store.commit([queue_order(ORDERS[2], 5)])

    desk.taker.wake(Instant(desk.taker.deadline() - 1))
    before = list(desk.done)
    desk.taker.wake(desk.taker.deadline())

    assert before == []
    assert desk.done == [ORDERS[2]]


@pytest.mark.parametrize("cut", range(1, 50))
def test_damaged_row_is_refused_as_the_stores_fault(cut):
    """A row that is not one of ours ends in HostError, never in a wrong order."""
    value = queue_order(ORDERS[1], 1).value
    assert value is not None
    store = MemoryStore()
    store.commit([Record("bsp_orders", b"k", value[:cut])])

    with pytest.raises(HostError, match="damaged"):
        read_orders(store)


@pytest.mark.parametrize("value", [b"\xff", b"\x05" + bytes(4) + b"x", b"\x06" + bytes(4) + b"\x00\x00\x00\x01\xff"])
def test_unknown_kinds_and_trailing_bytes_are_refused(value):
    """An unknown kind, bytes behind the last field, text that is no UTF-8."""
    store = MemoryStore()
    store.commit([Record("bsp_orders", b"k", value)])

    with pytest.raises(HostError, match="damaged"):
        read_orders(store)
