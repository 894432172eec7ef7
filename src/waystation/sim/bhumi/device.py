"""A simulated device: it moves between relays, asserts its presence, answers requests, and misbehaves as planned.

``BhumiScenario`` starts it; it drives the real client machine. A move follows the specification. The device registers
at the new relay, asserts one presence record there and at the old relay, and then disconnects from the old one. Its
application answers each request once; a late answer is sent through the new relay. A preimage (the 32-byte secret that
permits one request) is offered again until a request has used it.
"""

import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_MS, MICROSECONDS_PER_SECOND
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.client.base import commit_of
from waystation.protocols.bhumi.client.device import DEVICE_FEATURES, DeviceClient, ProbeAsked, Registered
from waystation.protocols.bhumi.client.device import Delivered as DeliveredEvent
from waystation.protocols.bhumi.extension_messages import Presence
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES, Ack, Feature, RecentResponse
from waystation.protocols.bhumi.payload.envelope import hint_of
from waystation.sim.bhumi import observations as seen
from waystation.sim.bhumi.context import BhumiContext, Clock, Location
from waystation.sim.chance import Recurring, spread
from waystation.sim.driver import Driver
from waystation.sim.site import draw_key_pair

__all__ = ["Device"]

LINGER_US: Final = 10 * MICROSECONDS_PER_SECOND  # what an old relay gets for answers under way
AWAY_MAX_US: Final = 150 * MICROSECONDS_PER_SECOND  # so that every device is back for the last requests
AGAIN_PER_TTL: Final = 0.4  # 240 s of 600 s
ISSUED_MAX: Final = 64  # preimages without a request; older ones are given up
ANSWERS_MAX: Final = 8  # carried to another relay


@dataclass(slots=True)
class _Connection:
    """One connection of the device."""

    node: int
    number: int
    driver: Driver[DeviceClient] = field(init=False)
    is_registered: bool = False


class Device:
    """One identity and its connections: one, or two while it moves."""

    asks_once = True
    """Whether the application is asked only once per request; a broken device of the tests changes it."""

    def __init__(self, context: BhumiContext, rng: random.Random, host: str, make_device: type[DeviceClient]) -> None:
        """Make a device; ``come`` brings it online."""
        self._context = context
        self._rng = rng
        self._host = host
        self._make_device = make_device
        self._key_pair = draw_key_pair(rng)
        self.identity = self._key_pair.public
        """32 bytes."""
        self._clock = Clock(context.schedule, rng, context.plan.clocks_off_ms)
        self.location = context.locations[self.identity] = Location()
        self._home: _Connection | None = None
        """The newest connection."""
        self._connections: list[_Connection] = []
        self._issued: OrderedDict[bytes, None] = OrderedDict()
        """Preimages without a request yet."""
        self._ready: OrderedDict[bytes, None] = OrderedDict()
        """Those of them that a relay knows and no sender has."""
        self._given: dict[bytes, bytes] = {}
        """The sender that each preimage was given to."""
        self._hints: dict[bytes, bytes] = {}
        self._tasks: dict[bytes, list[tuple[_Connection, int]]] = {}
        """Where each request is waiting for its answer: connection and message number."""
        self._elsewhere: list[tuple[int, bytes]] = []
        """Requests to answer on the next connection, which did not bring them: message number and preimage."""
        self._answers: OrderedDict[bytes, bytes] = OrderedDict()
        """The last answers, carried to other relays."""
        self._done: set[bytes] = set()
        """Preimages whose request the application has answered."""
        self._issued_at_s = 0
        self._is_leaving = False

    # Commands of the scenario

    def start(self) -> None:
        """Come, and begin to move."""
        self.come()
        behaviour, core = self._context.plan.device, self._context.plan.core_device
        recurring = Recurring(self._context.schedule, self._rng, lambda: self._context.in_fault_phase, least_us=1)
        recurring.often(behaviour.moves, self.move)
        recurring.often(behaviour.vanishes, self.vanish)
        recurring.often(core.reconnects, self.reconnect)
        recurring.often(core.introduces_twice, self.introduce_again)
        recurring.often(core.comes_twice, self.come_twice)

    def come(self) -> None:
        """Connect to some relay, unless there is a connection."""
        if self._home is None:
            self.come_twice()

    def come_twice(self) -> None:
        """Connect to some relay, and leave open what is open."""
        if not self._is_leaving:
            self._connect(self._rng.choice(self._context.open_nodes))

    def move(self) -> None:
        """Go to another relay in good order."""
        home = self._home
        others = [node for node in self._context.open_nodes if home is not None and node != home.node]
        if home is not None and home.is_registered and others:
            self._connect(self._rng.choice(others))

    def reconnect(self) -> None:
        """Close the connection, and come back after a while."""
        if self._home is not None:
            self._home.driver.hang_up(abort=self._rng.random() < 1 / 2)

    def vanish(self) -> None:
        """Lose the connection without a close."""
        if self._home is not None:
            self._home.driver.port.stream.cut()
            self._home.driver.hang_up(abort=True)

    def introduce_again(self) -> None:
        """Send a second I_AM: the same set, and the last answers."""
        if self._home is not None and self._home.is_registered:
            self._carry(self._home)

    def drivers(self) -> list[Driver[DeviceClient]]:
        """Return the drivers of all connections."""
        return [connection.driver for connection in self._connections]

    def leave(self) -> None:
        """Close everything and never come back."""
        self._is_leaving = True
        for driver in self.drivers():
            driver.hang_up()

    def claim(self, sender: bytes) -> bytes | None:
        """Give a preimage to a sender, or None when the device has none on offer."""
        if not self._ready:
            return None
        preimage = self._ready.popitem(last=False)[0]
        self._given[preimage] = sender
        self._issue()
        return preimage

    def issue_for(self, sender: bytes, then: Callable[[bytes], None]) -> None:
        """Give a sender a preimage as soon as the relay certainly knows its commit."""
        home = self._home
        if home is not None and home.is_registered:
            preimage = self._draw()
            self._given[preimage] = sender
            self._add_commits(home, [preimage], lambda stands: then(preimage) if stands else None)

    @property
    def home_node(self) -> int | None:
        """Which relay it is at, as far as it knows."""
        return self._home.node if self._home is not None else None

    # Preimages

    def _draw(self) -> bytes:
        preimage = self._rng.randbytes(PREIMAGE_BYTES)
        self._issued[preimage] = None
        self._hints[hint_of(preimage)] = preimage
        while len(self._issued) > ISSUED_MAX:
            self._ready.pop(self._issued.popitem(last=False)[0], None)
        return preimage

    def _issue(self) -> None:
        """Offer as many preimages as the plan says."""
        home = self._home
        fresh = [self._draw() for _ in range(self._context.plan.device.spares - len(self._ready))]
        if home is not None and home.is_registered and fresh:
            self._add_commits(home, fresh, lambda _stands: self._put_on_offer(fresh))

    def _add_commits(self, connection: _Connection, preimages: list[bytes], then: Callable[[bool], None]) -> None:
        self._offer(connection, preimages)
        connection.driver.machine.add_commits([commit_of(preimage) for preimage in preimages])
        connection.driver.settle(then)

    def _put_on_offer(self, preimages: list[bytes]) -> None:
        """Let senders have these, also a second one while no request came; a sealed answer is for one sender only."""
        taken = self._given if self._context.plan.envelope else {}
        self._ready.update((each, None) for each in preimages if each in self._issued and each not in taken)

    def _offer(self, connection: _Connection, preimages: list[bytes]) -> None:
        self._context.observe(seen.Offered(connection.number, self.identity, tuple(preimages)))

    def _carried(self) -> list[RecentResponse]:
        if not self._context.plan.core_device.carries_answers:
            return []
        return [RecentResponse(preimage, answer) for preimage, answer in self._answers.items()]

    def _commits(self) -> list[bytes]:
        return [commit_of(preimage) for preimage in self._issued]

    # Connections

    def _connect(self, node: int) -> None:
        context = self._context
        plan = context.plan
        if not self._issued:
            self._issue()
        connection = _Connection(node, context.next_connection())
        machine = self._make_device(
            self._key_pair,
            self._commits(),
            self._carried(),
            ask_preimage=plan.core_device.asks_preimage,
            always_preimage=plan.relay.deliver_layout == "preimage",
            features=DEVICE_FEATURES if plan.gossip else Feature(0),
        )
        self._offer(connection, list(self._issued))
        self._home = connection
        self._connections.append(connection)
        connection.driver = context.dial(
            node, self._host, machine, lambda: self._on_turn(connection), lambda _reason: self._on_end(connection)
        )

    def _on_end(self, connection: _Connection) -> None:
        self._connections.remove(connection)
        if connection is not self._home:
            return
        # Where it came from is still good while it lingers there.
        self._home = next((each for each in self._connections if each.is_registered), None)
        if self._home is not None:
            self._assert(self._home)
            return
        self.location.depart()
        away_us = self._context.plan.device.away_us if self._context.in_fault_phase else MICROSECONDS_PER_SECOND
        self._context.schedule.after(min(1 + spread(self._rng, away_us), AWAY_MAX_US), self.come)

    def _on_turn(self, connection: _Connection) -> None:
        for event in connection.driver.machine.take_events():
            if isinstance(event, Registered):
                self._on_registered(connection)
            elif isinstance(event, DeliveredEvent):
                self._on_delivered(connection, event)
            elif isinstance(event, ProbeAsked):
                connection.driver.machine.refuse_probe(event.probe_id)
                connection.driver.settle()

    def _on_registered(self, connection: _Connection) -> None:
        connection.is_registered = True
        self._put_on_offer(list(self._issued))
        elsewhere, self._elsewhere = self._elsewhere, []
        for message_id, preimage in elsewhere:
            connection.driver.port.write(wire.encode(Ack(message_id, self._answer_of(preimage))))
        presence = self._assert(connection)
        for old in self._connections:
            if presence is not None and old is not connection and old.is_registered:
                self._say_goodbye(old, presence)

    # Presence

    def _assert(self, connection: _Connection) -> Presence | None:
        """Assert the presence at a relay, and plan to renew it; None when relays do not gossip."""
        context, ttl_s = self._context, self._context.plan.device.ttl_s
        if not context.plan.gossip:
            return None
        self._issued_at_s = max(self._issued_at_s + 1, self._clock.unix_s)
        presence = context.sign(self._key_pair, context.keys[connection.node], self._issued_at_s, ttl_s)
        connection.driver.machine.assert_presence(presence)
        connection.driver.settle(lambda stands: self._arrive(connection) if stands else None)
        again_us = int(ttl_s * AGAIN_PER_TTL * MICROSECONDS_PER_SECOND)
        context.schedule.after(again_us, lambda: self._renew(connection, presence))
        return presence

    def _arrive(self, connection: _Connection) -> None:
        """Note the move: the relay has read the presence."""
        if connection is self._home:
            self.location.arrive(connection.node, self._context.schedule.now)

    def _renew(self, connection: _Connection, presence: Presence) -> None:
        is_newest = presence.issued_at_s == self._issued_at_s
        if connection is self._home and not connection.driver.is_over and is_newest:
            self._assert(connection)

    def _say_goodbye(self, old: _Connection, presence: Presence) -> None:
        """Send the new presence to the old relay, and close that connection after the linger time for answers."""
        old.driver.machine.assert_presence(presence)
        old.driver.settle()
        self._context.schedule.after(LINGER_US, old.driver.hang_up)

    # Requests

    def _on_delivered(self, connection: _Connection, event: DeliveredEvent) -> None:
        hinted = self._hints.get(event.payload[: len(hint_of(b""))])
        preimage = hinted if event.preimage in (None, hinted) else None
        self._context.observe(seen.Delivered(connection.number, self.identity, preimage, event.payload))
        if preimage is None:
            return
        self._issued.pop(preimage, None)
        self._ready.pop(preimage, None)
        if preimage in self._done and self.asks_once:
            self._send_answer(connection, event.message_id, preimage)
            return
        waiting = self._tasks.setdefault(preimage, [])
        waiting.append((connection, event.message_id))
        if len(waiting) == 1 or not self.asks_once:
            self._context.observe(seen.Handled(self.identity, preimage))
            self._consider(connection, event.message_id, preimage)

    def _consider(self, connection: _Connection, message_id: int, preimage: bytes) -> None:
        """Decide what becomes of a request: one draw, so that the ways to misbehave exclude each other."""
        plan, schedule = self._context.plan, self._context.schedule
        device = plan.core_device
        think_us = spread(self._rng, plan.device.think_us)
        misbehaves = device.never_answers + device.answers_late + device.leaves_mid_flight
        draw = self._rng.random() if misbehaves and self._context.in_fault_phase else 1.0
        if draw >= misbehaves:
            schedule.after(think_us, lambda: self._answer(preimage))
        elif draw < device.leaves_mid_flight:
            schedule.after(think_us, lambda: self._leave_with(connection, message_id, preimage))
        elif draw < device.leaves_mid_flight + device.answers_late:
            late_ms = plan.relay.ack_timeout_ms + self._rng.randrange(plan.relay.response_ttl_ms // 2)
            schedule.after(late_ms * MICROSECONDS_PER_MS, lambda: self._answer(preimage))

    def _leave_with(self, connection: _Connection, message_id: int, preimage: bytes) -> None:
        """Close the connection instead of an answer; perhaps the answer goes to the next connection."""
        if self._rng.random() < self._context.plan.core_device.answers_elsewhere:
            self._elsewhere.append((message_id, preimage))
        connection.driver.hang_up(abort=self._rng.random() < 1 / 2)

    def _answer_of(self, preimage: bytes) -> bytes:
        """Return the answer as it goes on the wire."""
        return self._context.write_answer(self.identity, preimage, self._given.get(preimage, b""))

    def _answer(self, preimage: bytes) -> None:
        """Send the application's answer wherever the request is waiting, and keep it for other relays."""
        self._done.add(preimage)
        self._answers[preimage] = self._answer_of(preimage)
        if len(self._answers) > ANSWERS_MAX:
            self._answers.popitem(last=False)
        waiting = self._tasks.pop(preimage, [])
        reached = [each for each, message_id in waiting if self._send_answer(each, message_id, preimage)]
        home = self._home
        if (
            home is not None
            and home.is_registered
            and home not in reached
            and self._context.plan.core_device.carries_answers
        ):
            self._carry(home)

    def _send_answer(self, connection: _Connection, message_id: int, preimage: bytes) -> bool:
        """Send an answer; return whether its connection still took it."""
        answer = self._answer_of(preimage)
        if connection.driver.machine.answer(message_id, answer) is not None:
            return False
        arrived = seen.AnswerArrived(connection.node, self.identity, preimage)
        connection.driver.settle(lambda stands: self._context.observe(arrived) if stands else None)
        answers_twice = self._context.plan.core_device.answers_twice
        if answers_twice and self._rng.random() < answers_twice:
            connection.driver.port.write(wire.encode(Ack(message_id, answer)))
        return True

    def _carry(self, connection: _Connection) -> None:
        """Bring a relay the last answers by a second I_AM, so that a retry finds them there."""
        self._offer(connection, list(self._issued))
        connection.driver.machine.replace(self._commits(), self._carried())
        connection.driver.settle()
