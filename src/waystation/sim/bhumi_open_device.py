"""A device of the open world: it moves between relays, says where it is, and takes its answers along.

It moves in the order of the specification: first it stands at the new relay, then it says so there and, with the very
same presence, at the old one, and only then it leaves that. Its application is asked once per request, however often
and wherever a relay delivers it; what is answered too late for the old relay is carried to the new one.
"""

import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.client_base import commit_of
from waystation.protocols.bhumi.device_client import DEVICE_FEATURES, DeviceClient, ProbeAsked, Registered
from waystation.protocols.bhumi.device_client import Delivered as DeliveredEvent
from waystation.protocols.bhumi.envelope import hint_of
from waystation.protocols.bhumi.extension_messages import Presence
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES, RecentResponse
from waystation.sim import bhumi_open_observations as seen
from waystation.sim.actor import Driver
from waystation.sim.bhumi_open_commons import PROTOCOL, Clock, OpenCommons, Place
from waystation.sim.chance import spread
from waystation.sim.observations import Delivered, Offered

__all__ = ["MakeDevice", "OpenDevice"]

HOUR_US: Final = 3_600 * MICROSECONDS_PER_SECOND
LINGER_US: Final = 10 * MICROSECONDS_PER_SECOND  # what an old relay gets for answers under way
AGAIN_PER_TTL: Final = 0.4  # 240 s of 600 s
ISSUED_MAX: Final = 64  # preimages without a request; older ones are given up
ANSWERS_MAX: Final = 8  # carried to another relay
MakeDevice = Callable[..., DeviceClient]
"""``DeviceClient`` itself, or a broken one in tests of the laws."""


@dataclass(slots=True)
class _Line:
    """One connection of the device."""

    node: int
    number: int
    driver: Driver[DeviceClient] = field(init=False)
    is_registered: bool = False


class OpenDevice:
    """One identity and its connections: one, or two while it moves."""

    asks_once = True
    """Whether the application is asked only once per request; a broken device of the tests changes it."""

    def __init__(self, commons: OpenCommons, rng: random.Random, host: str, make_device: MakeDevice) -> None:
        """Make a device; ``come`` brings it online."""
        self._commons = commons
        self._rng = rng
        self._host = host
        self._make_device = make_device
        self._key_pair = KeyPair.from_seed(rng.randbytes(32))
        self.identity = self._key_pair.public
        """32 bytes."""
        self._clock = Clock(commons.schedule, rng, commons.plan.clocks_off_ms)
        self.place = commons.places[self.identity] = Place()
        self._home: _Line | None = None
        """The newest connection."""
        self._lines: list[_Line] = []
        self._issued: OrderedDict[bytes, None] = OrderedDict()
        """Preimages without a request yet."""
        self._ready: OrderedDict[bytes, None] = OrderedDict()
        """Those of them that a relay knows and nobody has."""
        self._hints: dict[bytes, bytes] = {}
        self._tasks: dict[bytes, list[tuple[_Line, int]]] = {}
        """Where each request is waiting for its answer: connection and message number."""
        self._answers: OrderedDict[bytes, bytes] = OrderedDict()
        """The last answers, carried to other relays."""
        self._done: set[bytes] = set()
        """Preimages whose request the application has answered."""
        self._issued_at_s = 0
        self._is_leaving = False

    # What the town does with it

    def start(self) -> None:
        """Come, and begin to move."""
        self.come()
        self._plan_habit(self._commons.plan.device.moves, self.move)
        self._plan_habit(self._commons.plan.device.vanishes, self.vanish)

    def come(self) -> None:
        """Connect to some relay, unless a connection stands."""
        if self._home is None and not self._is_leaving:
            self._connect(self._rng.choice(self._commons.open_nodes))

    def move(self) -> None:
        """Go to another relay in good order."""
        home = self._home
        others = [node for node in self._commons.open_nodes if home is not None and node != home.node]
        if home is not None and home.is_registered and others:
            self._connect(self._rng.choice(others))

    def vanish(self) -> None:
        """Lose the connection without a word."""
        if self._home is not None:
            self._home.driver.port.stream.cut()
            self._home.driver.hang_up(abort=True)

    def drop_faulty(self) -> None:
        """Give up connections that have ever misbehaved."""
        for line in list(self._lines):
            if line.driver.faulted:
                line.driver.port.stream.break_off()

    def leave(self) -> None:
        """Close everything and never come back."""
        self._is_leaving = True
        for line in list(self._lines):
            line.driver.hang_up()

    def claim(self) -> bytes | None:
        """Give a preimage to a sender, or None when the device has none on offer."""
        if not self._ready:
            return None
        preimage = self._ready.popitem(last=False)[0]
        self._issue()
        return preimage

    def issue_for(self, then: Callable[[bytes], None]) -> None:
        """Give a sender a preimage as soon as the relay certainly knows its commit."""
        line = self._home
        if line is not None and line.is_registered:
            preimage = self._draw()
            self._offer(line, [preimage])
            line.driver.machine.add_commits([commit_of(preimage)])
            line.driver.settle(lambda stands: then(preimage) if stands else None)

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
        line = self._home
        fresh = [self._draw() for _ in range(self._commons.plan.device.spares - len(self._ready))]
        if line is not None and line.is_registered and fresh:
            self._offer(line, fresh)
            line.driver.machine.add_commits([commit_of(preimage) for preimage in fresh])
            line.driver.settle(lambda _stands: self._put_on_offer(fresh))

    def _put_on_offer(self, preimages: list[bytes]) -> None:
        self._ready.update((preimage, None) for preimage in preimages if preimage in self._issued)

    def _offer(self, line: _Line, preimages: list[bytes]) -> None:
        self._commons.observe(Offered(line.number, self.identity, tuple(preimages)))

    def _carried(self) -> list[RecentResponse]:
        return [RecentResponse(preimage, answer) for preimage, answer in self._answers.items()]

    def _commits(self) -> list[bytes]:
        return [commit_of(preimage) for preimage in self._issued]

    # Connections

    def _connect(self, node: int) -> None:
        commons = self._commons
        if not self._issued:
            self._issue()
        line = _Line(node, commons.next_connection())
        machine = self._make_device(self._key_pair, self._commits(), self._carried(), features=DEVICE_FEATURES)
        self._offer(line, list(self._issued))
        self._home = line
        self._lines.append(line)
        line.driver = Driver(
            commons.worlds[node],
            PROTOCOL,
            self._host,
            machine,
            commons.plan.link,
            lambda: self._on_turn(line),
            lambda _reason: self._on_end(line),
        )

    def _on_end(self, line: _Line) -> None:
        self._lines.remove(line)
        if line is not self._home:
            return
        # Where it came from is still good while it lingers there.
        self._home = next((each for each in self._lines if each.is_registered), None)
        if self._home is not None:
            self._assert(self._home)
            return
        self.place.depart()
        away_us = self._commons.plan.device.away_us if self._commons.troubled else MICROSECONDS_PER_SECOND
        self._commons.schedule.after(1 + spread(self._rng, away_us), self.come)

    def _on_turn(self, line: _Line) -> None:
        for event in line.driver.machine.take_events():
            if isinstance(event, Registered):
                self._on_registered(line)
            elif isinstance(event, DeliveredEvent):
                self._on_delivered(line, event)
            elif isinstance(event, ProbeAsked):
                line.driver.machine.refuse_probe(event.probe_id)
                line.driver.settle()

    def _on_registered(self, line: _Line) -> None:
        line.is_registered = True
        self._put_on_offer(list(self._issued))
        presence = self._assert(line)
        for old in self._lines:
            if old is not line and old.is_registered:
                self._say_goodbye(old, presence)

    # Presence

    def _assert(self, line: _Line) -> Presence:
        """Say at a relay that the device is there, and plan to say it again."""
        commons, ttl_s = self._commons, self._commons.plan.device.ttl_s
        self._issued_at_s = max(self._issued_at_s + 1, self._clock.unix_s)
        presence = commons.sign(self._key_pair, commons.keys[line.node], self._issued_at_s, ttl_s)
        line.driver.machine.assert_presence(presence)
        line.driver.settle(lambda stands: self._arrive(line) if stands else None)
        again_us = int(ttl_s * AGAIN_PER_TTL * MICROSECONDS_PER_SECOND)
        commons.schedule.after(again_us, lambda: self._again(line, presence))
        return presence

    def _arrive(self, line: _Line) -> None:
        """Note the move: the relay has read the presence."""
        if line is self._home:
            self.place.arrive(line.node, self._commons.schedule.now)

    def _again(self, line: _Line, presence: Presence) -> None:
        if line is self._home and not line.driver.is_over and presence.issued_at_s == self._issued_at_s:
            self._assert(line)

    def _say_goodbye(self, old: _Line, presence: Presence) -> None:
        """Tell the old relay where the device went, and leave it when the answers under way have had their time."""
        old.driver.machine.assert_presence(presence)
        old.driver.settle()
        self._commons.schedule.after(LINGER_US, old.driver.hang_up)

    # Requests

    def _on_delivered(self, line: _Line, event: DeliveredEvent) -> None:
        hinted = self._hints.get(event.payload[: len(hint_of(b""))])
        preimage = hinted if event.preimage in (None, hinted) else None
        self._commons.observe(Delivered(line.number, self.identity, preimage, event.payload))
        if preimage is None:
            return
        self._issued.pop(preimage, None)
        self._ready.pop(preimage, None)
        if preimage in self._done and self.asks_once:
            line.driver.machine.answer(event.message_id, self._commons.answer_of(self.identity, preimage))
            line.driver.settle()
            return
        waiting = self._tasks.setdefault(preimage, [])
        waiting.append((line, event.message_id))
        if len(waiting) == 1 or not self.asks_once:
            self._commons.observe(seen.Handled(self.identity, preimage))
            think_us = spread(self._rng, self._commons.plan.device.think_us)
            self._commons.schedule.after(think_us, lambda: self._answer(preimage))

    def _answer(self, preimage: bytes) -> None:
        """Give the application's answer wherever the request is waiting, and keep it for other relays."""
        answer = self._commons.answer_of(self.identity, preimage)
        self._done.add(preimage)
        self._answers[preimage] = answer
        if len(self._answers) > ANSWERS_MAX:
            self._answers.popitem(last=False)
        reached = []
        for line, message_id in self._tasks.pop(preimage, []):
            if line.driver.machine.answer(message_id, answer) is None:
                reached.append(line)
                line.driver.settle()
        home = self._home
        if home is not None and home.is_registered and home not in reached:
            self._carry(home)

    def _carry(self, line: _Line) -> None:
        """Bring a relay the last answers by a second I_AM, so that a retry finds them there."""
        self._offer(line, list(self._issued))
        line.driver.machine.replace(self._commits(), self._carried())
        line.driver.settle()

    # Habits

    def _plan_habit(self, per_hour: float, act: Callable[[], None]) -> None:
        def happen() -> None:
            if self._commons.troubled:
                act()
                self._plan_habit(per_hour, act)

        if per_hour > 0:
            self._commons.schedule.after(1 + spread(self._rng, HOUR_US / per_hour), happen)
