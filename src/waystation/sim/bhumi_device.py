"""A device of the simulated town: gives preimages out, answers requests, and has bad habits.

The device is honest about its commits: it offers a preimage again only as long as it has not seen a request with it. So
whatever the relay delivers twice is the relay's doing.
"""

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.client_base import commit_of
from waystation.protocols.bhumi.device_client import Delivered as DeliveredEvent
from waystation.protocols.bhumi.device_client import DeviceClient, Registered
from waystation.protocols.bhumi.envelope import hint_of
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES, Ack, RecentResponse
from waystation.sim.actor import Driver
from waystation.sim.bhumi_commons import PROTOCOL, Commons
from waystation.sim.chance import spread
from waystation.sim.observations import AnswerArrived, Delivered, Offered

__all__ = ["Device"]

ISSUED_MAX: Final = 256  # given out and not seen yet; older ones are given up
HINTS_MAX: Final = 8_192
CARRIED_MAX: Final = 16


@dataclass(slots=True)
class _Task:
    """One request that the device has seen."""

    driver: Driver[DeviceClient]
    message_id: int
    preimage: bytes
    sender: bytes


class Device:
    """One identity and its connections."""

    def __init__(self, commons: Commons, rng: random.Random, host: str) -> None:
        """Make a device; ``come`` brings it online."""
        self._commons = commons
        self._rng = rng
        self._host = host
        self._key_pair = KeyPair.from_seed(rng.randbytes(32))
        self.identity = self._key_pair.public
        """32 bytes."""
        self._driver: Driver[DeviceClient] | None = None
        self._connection = 0
        self._connections: dict[Driver[DeviceClient], int] = {}
        self._issued: OrderedDict[bytes, bytes] = OrderedDict()
        """Preimages without a request yet, with the sender they were given to, or empty."""
        self._given: OrderedDict[bytes, bytes] = OrderedDict()
        """To whom each preimage was given, seen or not: a request may come once more, on a connection that offered its
        commit before the first one was seen."""
        self._ready: OrderedDict[bytes, None] = OrderedDict()
        """Preimages on offer that nobody has."""
        self._hints: OrderedDict[bytes, bytes] = OrderedDict()
        self._answers: OrderedDict[bytes, bytes] = OrderedDict()
        self._elsewhere: list[_Task] = []
        self._is_leaving = False

    # What the town does with it

    def come(self) -> None:
        """Connect, unless a connection stands."""
        if self._driver is None and not self._is_leaving:
            self._issue(self._commons.plan.spares - len(self._ready))
            self._connect()

    def come_twice(self) -> None:
        """Connect once more without closing what stands."""
        if not self._is_leaving:
            self._connect()

    def go(self, *, abort: bool) -> None:
        """Close the connection; the device comes back after a while."""
        if self._driver is not None:
            self._driver.hang_up(abort=abort)

    def introduce_again(self) -> None:
        """Send a second I_AM: the same set, and what was answered lately."""
        if self._driver is not None and self._driver.machine.is_open:
            self._offer_all()
            self._driver.machine.replace(self._commits(), self._carried())
            self._driver.settle()

    def leave(self) -> None:
        """Close everything and never come back."""
        self._is_leaving = True
        for driver in list(self._connections):
            driver.hang_up()

    def claim(self, sender: bytes) -> bytes | None:
        """Give a preimage to a sender, or None when the device has none on offer."""
        if not self._ready:
            return None
        preimage = self._ready.popitem(last=False)[0]
        self._give(preimage, sender)
        if len(self._ready) < (self._commons.plan.spares + 1) // 2:
            self._issue(self._commons.plan.spares - len(self._ready))
        return preimage

    def issue_for(self, sender: bytes, then: Callable[[bytes], None]) -> None:
        """Give a sender a preimage as soon as the node certainly knows its commit."""
        (preimage,) = self._draw(1)
        self._give(preimage, sender)
        if self._driver is not None:
            self._offer([preimage])
            self._driver.machine.add_commits([commit_of(preimage)])
            self._driver.settle(lambda stands: then(preimage) if stands else None)

    # Preimages

    def _give(self, preimage: bytes, sender: bytes) -> None:
        self._issued[preimage] = sender
        self._given[preimage] = sender
        while len(self._given) > HINTS_MAX:
            self._given.popitem(last=False)

    def _draw(self, count: int) -> list[bytes]:
        fresh = [self._rng.randbytes(PREIMAGE_BYTES) for _ in range(count)]
        for preimage in fresh:
            self._issued[preimage] = b""
            self._hints[hint_of(preimage)] = preimage
        while len(self._hints) > HINTS_MAX:
            self._hints.popitem(last=False)
        while len(self._issued) > ISSUED_MAX:
            self._issued.popitem(last=False)
        return fresh

    def _issue(self, count: int) -> None:
        fresh = self._draw(count)
        if fresh and self._driver is not None:
            self._offer(fresh)
            self._driver.machine.add_commits([commit_of(preimage) for preimage in fresh])
            self._driver.settle(lambda _stands: self._put_on_offer(fresh))

    def _put_on_offer(self, preimages: Iterable[bytes]) -> None:
        """Let senders have these, as far as nobody has them yet."""
        self._ready.update((preimage, None) for preimage in preimages if self._issued.get(preimage) == b"")

    def _offer(self, preimages: list[bytes]) -> None:
        self._commons.observe(Offered(self._connection, self.identity, tuple(preimages)))

    def _offer_all(self) -> None:
        self._offer(list(self._issued))

    def _commits(self) -> list[bytes]:
        return [commit_of(preimage) for preimage in self._issued]

    def _carried(self) -> list[RecentResponse]:
        if not self._commons.plan.device.carries_answers:
            return []
        return [RecentResponse(preimage, answer) for preimage, answer in self._answers.items()]

    # The connection

    def _connect(self) -> None:
        commons = self._commons
        plan = commons.plan
        self._connection = connection = commons.next_connection()
        machine = DeviceClient(
            self._key_pair,
            self._commits(),
            self._carried(),
            ask_preimage=plan.device.asks_preimage,
            always_preimage=plan.relay.deliver_layout == "preimage",
        )
        self._offer_all()
        driver: Driver[DeviceClient] = Driver(
            commons.world,
            PROTOCOL,
            self._host,
            machine,
            plan.link,
            lambda: self._on_turn(driver),
            lambda _reason: self._on_end(driver),
        )
        self._driver = driver
        self._connections[driver] = connection

    def _on_end(self, driver: Driver[DeviceClient]) -> None:
        del self._connections[driver]
        if driver is self._driver:
            self._driver = None
            away_us = self._commons.plan.device.away_us if self._commons.troubled else 1_000_000
            self._commons.world.schedule.after(spread(self._rng, away_us), self.come)

    def _on_turn(self, driver: Driver[DeviceClient]) -> None:
        for event in driver.machine.take_events():
            if isinstance(event, Registered):
                self._on_registered(driver)
            elif isinstance(event, DeliveredEvent):
                self._on_delivered(driver, event)

    def _on_registered(self, driver: Driver[DeviceClient]) -> None:
        self._put_on_offer(self._issued)
        tasks, self._elsewhere = self._elsewhere, []
        for task in tasks:
            answer = self._commons.write_answer(self.identity, task.preimage, task.sender)
            driver.port.write(wire.encode(Ack(task.message_id, answer)))

    # Requests

    def _on_delivered(self, driver: Driver[DeviceClient], event: DeliveredEvent) -> None:
        hinted = self._hints.get(event.payload[: len(hint_of(b""))])
        preimage = event.preimage if event.preimage in (None, hinted) else None
        preimage = hinted if event.preimage is None else preimage
        connection = self._connections.get(driver, self._connection)
        self._commons.observe(Delivered(connection, self.identity, preimage, event.payload))
        if preimage is None:
            return
        self._issued.pop(preimage, None)
        self._consider(_Task(driver, event.message_id, preimage, self._given.get(preimage, b"")))

    def _consider(self, task: _Task) -> None:
        """Decide what becomes of a request: one draw, so that habits exclude each other."""
        habits, schedule = self._commons.plan.device, self._commons.world.schedule
        think_us = spread(self._rng, habits.think_us)
        draw = self._rng.random() if self._commons.troubled else 1.0
        if draw < habits.never_answers:
            return
        draw -= habits.never_answers
        if draw < habits.answers_late:
            relay = self._commons.plan.relay
            late_us = 1_000 * (relay.ack_timeout_ms + self._rng.randrange(relay.response_ttl_ms // 2))
            schedule.after(late_us, lambda: self._answer(task))
            return
        draw -= habits.answers_late
        if draw < habits.leaves_mid_flight:
            schedule.after(think_us, lambda: self._leave_with(task))
            return
        schedule.after(think_us, lambda: self._answer(task))

    def _leave_with(self, task: _Task) -> None:
        if self._rng.random() < self._commons.plan.device.answers_elsewhere:
            self._elsewhere.append(task)
        task.driver.hang_up(abort=self._rng.random() < 1 / 2)

    def _answer(self, task: _Task) -> None:
        answer = self._commons.write_answer(self.identity, task.preimage, task.sender)
        if task.driver.machine.answer(task.message_id, answer) is not None:
            return
        self._answers[task.preimage] = answer
        if len(self._answers) > CARRIED_MAX:
            self._answers.popitem(last=False)
        arrived = AnswerArrived(self.identity, task.preimage)
        task.driver.settle(lambda stands: self._commons.observe(arrived) if stands else None)
        if self._rng.random() < self._commons.plan.device.answers_twice:
            task.driver.port.write(wire.encode(Ack(task.message_id, answer)))
