"""A sender of the open world: it knows where a device was, and asks relays when it is not there any more.

What it does with an address is what the specification demands: it verifies the presence itself, tries the freshest
place first, and uses the same preimage with the same bytes wherever it tries, so that a relay which has the answer
already gives that.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.protocols.bhumi.client_base import Greeted, Unsent
from waystation.protocols.bhumi.extension_messages import WhereEntry
from waystation.protocols.bhumi.messages import Status
from waystation.protocols.bhumi.sender_client import Answered, Lost, SenderClient
from waystation.protocols.bhumi.signed_records import is_signed
from waystation.sim.actor import Driver
from waystation.sim.bhumi_open_commons import PROTOCOL, OpenCommons, node_of
from waystation.sim.bhumi_open_device import OpenDevice
from waystation.sim.bhumi_open_scout import Search
from waystation.sim.chance import spread
from waystation.sim.observations import AskArrived, Asked, Concluded, ConnectionEnded

__all__ = ["OpenSender"]

HOUR_US: Final = 3_600 * MICROSECONDS_PER_SECOND
RETRY_US: Final = 2 * MICROSECONDS_PER_SECOND
TRIES_MAX: Final = 4
PROBE_TRIES_MAX: Final = 40  # for the last request, when everybody must be found
"""For the last request, when everybody must be found: about two a second."""
OUTSTANDING_MAX: Final = 8

_WORDS: Final = {
    Status.OK: "ok",
    Status.NOT_CONNECTED: "offline",
    Status.BAD_PREIMAGE: "bad_preimage",
    Status.TIMEOUT: "timeout",
    Status.GONE: "gone",
}


@dataclass(slots=True, eq=False)
class _Request:
    device: OpenDevice
    preimage: bytes
    payload: bytes
    places: list[int] = field(default_factory=list)
    """Relays to try next, in this order."""
    tries: int = 0
    hope: int | None = None
    """What must come true, for the last request."""
    asked_nodes: int = 0
    """How many relays were asked where the device is."""
    word: str = "unfound"
    """How the last try ended."""


class OpenSender:
    """One person who asks devices."""

    def __init__(self, commons: OpenCommons, rng: random.Random, host: str, devices: list[OpenDevice]) -> None:
        """Make a sender; ``start`` lets it ask."""
        self._commons = commons
        self._rng = rng
        self._host = host
        self._devices = devices
        self._known: dict[bytes, int] = {}
        """Where each device was reached last."""
        self._open_requests = 0
        self._lines: list[_Line] = []
        self.outcomes: Counter[str] = Counter()
        """Finished exchanges by outcome; those that needed a look-up are ``moved`` when it helped."""

    def start(self) -> None:
        """Begin to ask."""
        plan = self._commons.plan
        mean_us = HOUR_US * plan.senders / plan.asks_per_hour
        self._commons.schedule.after(1 + spread(self._rng, mean_us), self._on_urge)

    def probe(self, tries: int = 8) -> None:
        """Ask one device once more, now that all is calm: it must be found, wherever it is, and answer."""
        device = self._rng.choice(self._devices)
        hope = self._commons.hope(f"no answer of {device.identity.hex()[:16]} after the faults had ended")

        def ask(preimage: bytes) -> None:
            request = self._request(device, preimage)
            request.hope = hope
            self._try(request)

        def insist(left: int) -> None:
            # A device that has no relay at the moment gives no preimage; it comes home soon.
            if hope in self._commons.hopes and left:
                device.issue_for(ask)
                self._commons.schedule.after(15 * MICROSECONDS_PER_SECOND, lambda: insist(left - 1))

        insist(tries)

    def drop_faulty(self) -> None:
        """Give up connections that have ever misbehaved."""
        for line in list(self._lines):
            if line.driver.faulted:
                line.driver.port.stream.break_off()

    def leave(self) -> None:
        """Close every connection."""
        for line in list(self._lines):
            line.driver.hang_up()

    def _on_urge(self) -> None:
        if not self._commons.troubled:
            return
        device = self._rng.choice(self._devices)
        if self._open_requests < OUTSTANDING_MAX and (preimage := device.claim()) is not None:
            self._open_requests += 1
            self._try(self._request(device, preimage))
        self.start()

    def _request(self, device: OpenDevice, preimage: bytes) -> _Request:
        """Make a request; a sender that meets a device for the first time has an invite that says where it is."""
        request = _Request(device, preimage, self._commons.request(preimage))
        known = self._known.get(device.identity, device.home_node)
        request.places = [] if known is None else [known]
        return request

    def _try(self, request: _Request) -> None:
        if not request.places:
            self._search(request)
            return
        node = request.places.pop(0)
        request.tries += 1
        self._lines.append(_Line(self._commons, self._host, node, request, self._on_outcome, self._lines.remove))

    def _search(self, request: _Request) -> None:
        """Ask a relay: the first time where the device was last, then others."""
        known = self._known.get(request.device.identity)
        is_first = request.asked_nodes == 0 and known is not None
        node = known if is_first and known is not None else self._rng.randrange(self._commons.plan.relays)
        request.asked_nodes += 1
        request.tries += 1

        def told(entries: tuple[WhereEntry, ...] | None) -> None:
            places = [node_of(entry.address) for entry in entries or () if self._is_good(request, entry)]
            request.places = [place for place in dict.fromkeys(places) if place is not None]
            if request.places:
                self._try(request)
            else:
                self._again(request)

        Search(self._commons, self._host, node, request.device.identity, told)

    def _is_good(self, request: _Request, entry: WhereEntry) -> bool:
        """Return whether a hint is about whom we look for, and signed by them."""
        return entry.presence.identity == request.device.identity and is_signed(entry.presence)

    def _on_outcome(self, node: int, request: _Request, status: int | None) -> None:
        request.word = "lost" if status is None else _WORDS[Status(status)]
        if status == Status.OK:
            self._known[request.device.identity] = node
            self._finish(request, "moved" if request.asked_nodes else "ok")
        elif status == Status.BAD_PREIMAGE and request.hope is None:
            self._finish(request, request.word)
        else:
            self._again(request)

    def _again(self, request: _Request) -> None:
        """Try the next place, or look again, unless it was often enough."""
        if request.tries < (TRIES_MAX if request.hope is None else PROBE_TRIES_MAX):
            delay_us = 0 if request.places else 1 + spread(self._rng, RETRY_US)
            self._commons.schedule.after(delay_us, lambda: self._try(request))
        else:
            self._finish(request, request.word)

    def _finish(self, request: _Request, word: str) -> None:
        if request.hope is None:
            self._open_requests -= 1
            self.outcomes[word] += 1
        elif word in ("ok", "moved"):
            self._commons.fulfil(request.hope)
            self.outcomes["probe"] += 1


class _Line:
    """One connection for one request."""

    def __init__(
        self,
        commons: OpenCommons,
        host: str,
        node: int,
        request: _Request,
        tell: Callable[[int, _Request, int | None], None],
        forget: Callable[["_Line"], None],
    ) -> None:
        self._commons = commons
        self._node = node
        self._request = request
        self._tell = tell
        self._forget = forget
        self._number = commons.next_connection()
        self._life = commons.worlds[node].life
        self._is_told = False
        self.driver: Driver[SenderClient] = Driver(
            commons.worlds[node], PROTOCOL, host, SenderClient(), commons.plan.link, self._on_turn, self._on_end
        )

    def _on_turn(self) -> None:
        for event in self.driver.machine.take_events():
            if isinstance(event, Greeted):
                self._commons.schedule.after(0, self._ask)
            elif isinstance(event, Answered):
                self._on_answered(event)
            elif isinstance(event, Lost):
                self._conclude(None)

    def _ask(self) -> None:
        request, now = self._request, self._commons.schedule.now
        token = self.driver.machine.send(request.device.identity, request.preimage, request.payload, now)
        if isinstance(token, Unsent):
            return
        self._commons.observe(Asked(self._number, token, request.device.identity, request.preimage, request.payload))
        self.driver.settle(lambda taken: self._commons.observe(AskArrived(self._number, token, taken)))

    def _on_answered(self, event: Answered) -> None:
        request = self._request
        expected = self._commons.answer_of(request.device.identity, request.preimage)
        self._commons.observe(Concluded(self._number, event.token, event.status, event.payload, expected))
        self._commons.schedule.after(0, self.driver.hang_up)
        self._conclude(event.status)

    def _conclude(self, status: int | None) -> None:
        if not self._is_told:
            self._is_told = True
            self._tell(self._node, self._request, status)

    def _on_end(self, reason: str) -> None:
        world = self._commons.worlds[self._node]
        restarted = self._life != world.life or not world.is_up
        self._commons.observe(ConnectionEnded(self._number, reason, self.driver.faulted or restarted))
        self._forget(self)
        self._conclude(None)
