"""A sender of the simulated town: asks, gets impatient, leaves, retries, replays and guesses."""

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.client_base import Greeted, Unsent
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES, Status
from waystation.protocols.bhumi.sender_client import Answered, Lost, SenderClient
from waystation.sim.actor import Driver
from waystation.sim.bhumi_commons import PROTOCOL, Commons
from waystation.sim.bhumi_device import Device
from waystation.sim.chance import spread
from waystation.sim.observations import AskArrived, Asked, Concluded, ConnectionEnded, Probed

__all__ = ["Sender"]

HOUR_US: Final = 3_600 * MICROSECONDS_PER_SECOND
RETRY_US: Final = 2 * MICROSECONDS_PER_SECOND
REMEMBERED_MAX: Final = 64  # past requests to replay
BURST: Final = (2, 48)
SIDE_LINES_MAX: Final = 6  # more than the 4 that may join an exchange
OUTSTANDING_MAX: Final = 64  # requests of one sender under way at once
FAST_BYTES_PER_SECOND: Final = 100_000  # below it, a burst may wait longer than a sender's patience
PROBES_MAX: Final = 8  # tries for the last request, while devices come home

_WORDS: Final = {
    Status.OK: "ok",
    Status.NOT_CONNECTED: "offline",
    Status.BAD_PREIMAGE: "bad_preimage",
    Status.TIMEOUT: "timeout",
    Status.GONE: "gone",
}


@dataclass(slots=True, eq=False)
class _Request:
    recipient: bytes
    preimage: bytes
    payload: bytes
    tries: int = 0
    is_probe: bool = False


class Sender:
    """One person who asks devices."""

    def __init__(self, commons: Commons, rng: random.Random, host: str, number: int, devices: list[Device]) -> None:
        """Make a sender; ``start`` lets it ask."""
        self.number = number
        """Number in town."""
        self.host = host
        """Its address."""
        self.outcomes: Counter[str] = Counter()
        """Finished exchanges by outcome."""
        self.probe_status: int | None = None
        self._commons = commons
        self._rng = rng
        self._devices = devices
        self.key_pair = KeyPair.from_seed(rng.randbytes(32))
        """The keys that answers are sealed to."""
        self._lines: list[_Line] = []
        self._past: deque[_Request] = deque(maxlen=REMEMBERED_MAX)
        self._open_requests = 0
        self._is_asking = False

    def start(self) -> None:
        """Begin to ask."""
        self._is_asking = True
        self._plan_next()

    def rest(self) -> None:
        """Ask nothing new."""
        self._is_asking = False

    def probe(self, tries: int = PROBES_MAX) -> None:
        """Ask one device once more, now that all is calm, with a preimage that the node knows."""
        device = self._rng.choice(self._devices)

        def ask(preimage: bytes) -> None:
            request = self._request(device.identity, preimage)
            request.is_probe = True
            self._open_requests += 1
            self._dispatch(request)

        def look() -> None:
            if self.probe_status is None and tries > 1:
                self.probe(tries - 1)

        device.issue_for(self.key_pair.public, ask)
        self._commons.world.schedule.after(15 * MICROSECONDS_PER_SECOND, look)

    def leave(self) -> None:
        """Tell how the probe went, and close every connection."""
        self._commons.observe(Probed(self.number, self.probe_status))
        for line in list(self._lines):
            line.driver.hang_up()

    # Asking

    def _plan_next(self) -> None:
        plan = self._commons.plan
        mean_us = HOUR_US * plan.senders / plan.exchanges_per_hour
        self._commons.world.schedule.after(spread(self._rng, mean_us), self._on_urge)

    def _on_urge(self) -> None:
        if not self._is_asking:
            return
        count = self._rng.randint(*BURST) if self._rng.random() < self._commons.plan.sender.bursts else 1
        for _ in range(count):
            request = self._think_of_one()
            if request is not None and self._open_requests < OUTSTANDING_MAX:
                self._open_requests += 1
                self._past.append(request)
                self._dispatch(request)
        self._plan_next()

    def _think_of_one(self) -> _Request | None:
        habits, rng = self._commons.plan.sender, self._rng
        device = rng.choice(self._devices)
        draw = rng.random()
        if draw < habits.replays and self._past:
            past = rng.choice(self._past)
            return self._request(past.recipient, past.preimage)
        draw -= habits.replays
        if draw < habits.guesses:
            return self._request(device.identity, rng.randbytes(PREIMAGE_BYTES))
        draw -= habits.guesses
        if draw < habits.asks_absent:
            return self._request(self._commons.stranger(), rng.randbytes(PREIMAGE_BYTES))
        preimage = device.claim(self.key_pair.public)
        return self._request(device.identity, preimage) if preimage is not None else None

    def _request(self, recipient: bytes, preimage: bytes) -> _Request:
        return _Request(recipient, preimage, self._commons.write_request(recipient, preimage))

    def _dispatch(self, request: _Request) -> None:
        request.tries += 1
        line = self._lines[0] if self._lines else self._dial()
        line.ask(request)
        habits = self._commons.plan.sender
        if not self._commons.troubled:
            return
        if self._rng.random() < habits.leaves_mid_flight:
            abort = self._rng.random() < 1 / 2
            self._commons.world.schedule.after(spread(self._rng, 200_000), lambda: line.driver.hang_up(abort=abort))
        if self._rng.random() < habits.retries_side_by_side:
            for _ in range(self._rng.randint(1, SIDE_LINES_MAX)):
                again = _Request(request.recipient, request.preimage, request.payload, tries=habits.tries_max)
                self._open_requests += 1
                self._dial().ask(again)

    def _dial(self) -> "_Line":
        line = _Line(self, self._commons)
        self._lines.append(line)
        return line

    # What lines report

    def take_answer(self, request: _Request, status: int) -> None:
        """Note an outcome, or try again."""
        if request.is_probe:
            self.probe_status = status if status == Status.OK or self.probe_status is None else self.probe_status
        patient = request.tries < self._commons.plan.sender.tries_max
        if patient and status in {Status.TIMEOUT, Status.GONE, Status.NOT_CONNECTED}:
            self._retry(request)
            return
        self._finish(request, _WORDS[Status(status)])
        if self._commons.troubled and self._rng.random() < self._commons.plan.sender.asks_again:
            again = _Request(request.recipient, request.preimage, request.payload, tries=request.tries)
            self._open_requests += 1
            self._commons.world.schedule.after(spread(self._rng, RETRY_US), lambda: self._dispatch(again))

    def take_loss(self, request: _Request) -> None:
        """Try again, or give up."""
        if request.tries < self._commons.plan.sender.tries_max:
            self._retry(request)
        else:
            self._finish(request, "lost")

    def take_end(self, line: "_Line") -> None:
        """Forget a line."""
        self._lines.remove(line)

    def is_done_with(self, line: "_Line") -> bool:
        """Return whether an idle line may be closed."""
        is_side_line = line is not self._lines[0]
        return is_side_line or self._rng.random() >= self._commons.plan.sender.keeps_connection

    def _retry(self, request: _Request) -> None:
        self._commons.world.schedule.after(spread(self._rng, RETRY_US), lambda: self._dispatch(request))

    def _finish(self, request: _Request, word: str) -> None:
        self._open_requests -= 1
        self.outcomes["probe" if request.is_probe else word] += 1


class _Line:
    """One connection of a sender."""

    def __init__(self, sender: Sender, commons: Commons) -> None:
        self._sender = sender
        self._commons = commons
        self._number = commons.next_connection()
        self._life = commons.world.life
        self._queue: deque[_Request] = deque()
        self._asked: dict[int, _Request] = {}
        self.driver: Driver[SenderClient] = Driver(
            commons.world, PROTOCOL, sender.host, SenderClient(), commons.plan.link, self._on_turn, self._on_end
        )

    def ask(self, request: _Request) -> None:
        """Ask as soon as the relay has greeted and the window has room."""
        self._queue.append(request)
        self._pump()

    def _pump(self) -> None:
        driver, commons = self.driver, self._commons
        while self._queue and not driver.is_over:
            request = self._queue[0]
            token = driver.machine.send(
                request.recipient, request.preimage, request.payload, commons.world.schedule.now
            )
            if isinstance(token, Unsent):
                return
            self._queue.popleft()
            self._asked[token] = request
            commons.observe(Asked(self._number, token, request.recipient, request.preimage, request.payload))
            driver.settle(self._arrival_of(token))

    def _arrival_of(self, token: int) -> Callable[[bool], None]:
        return lambda taken: self._commons.observe(AskArrived(self._number, token, taken))

    def _on_turn(self) -> None:
        concluded = False
        for event in self.driver.machine.take_events():
            if isinstance(event, Answered):
                concluded = True
                self._on_answered(event)
            elif isinstance(event, Lost):
                self._sender.take_loss(self._asked.pop(event.token))
            elif isinstance(event, Greeted):
                self._pump()
        if concluded:
            self._pump()
            if not self._asked and not self._queue and self._sender.is_done_with(self):
                self.driver.hang_up()

    def _on_answered(self, event: Answered) -> None:
        request = self._asked.pop(event.token)
        answer = self._commons.read_answer(self._sender.key_pair, event.payload)
        expected = self._commons.answer_of(request.recipient, request.preimage)
        self._commons.observe(Concluded(self._number, event.token, event.status, answer, expected))
        self._sender.take_answer(request, event.status)

    def _on_end(self, reason: str) -> None:
        link = self._commons.plan.link
        slow = 0 < link.bytes_per_second < FAST_BYTES_PER_SECOND or link.window_bytes < FAST_BYTES_PER_SECOND // 2
        restarted = self._life != self._commons.world.life or not self._commons.world.is_up
        self._commons.observe(ConnectionEnded(self._number, reason, self.driver.faulted or restarted or slow))
        self._sender.take_end(self)
        queue, self._queue = self._queue, deque()
        for request in queue:
            self._sender.take_loss(request)
