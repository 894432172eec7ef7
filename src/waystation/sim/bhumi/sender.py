"""A simulated sender: it sends requests to devices, looks up devices that moved, retries, and misbehaves as planned.

``BhumiScenario`` starts it; it drives the real client machine. When it uses a looked-up address it verifies the
presence itself and tries the freshest relay first. A retry repeats the same bytes with the same preimage (the 32-byte
secret that permits one request). A relay with a cached answer can therefore return it.
"""

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.hashing import sha256
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.client.base import Greeted, Unsent
from waystation.protocols.bhumi.client.sender import Answered, Lost, SenderClient
from waystation.protocols.bhumi.extension_messages import WhereEntry
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES, Status
from waystation.protocols.bhumi.signed_records import is_signed
from waystation.sim.bhumi import observations as seen
from waystation.sim.bhumi.context import BhumiContext, node_of
from waystation.sim.bhumi.device import Device
from waystation.sim.bhumi.lookups import LookUp
from waystation.sim.chance import HOUR_US, Recurring, spread
from waystation.sim.driver import Driver
from waystation.sim.net.link import LinkSettings

__all__ = ["Sender"]

RETRY_US: Final = 2 * MICROSECONDS_PER_SECOND
IMPATIENT_US: Final = 200_000  # mean time until a sender leaves mid-flight
PROBE_AGAIN_US: Final = 15 * MICROSECONDS_PER_SECOND
PROBE_TRIES_MAX: Final = 40
"""For the last request, when every device must be found: about two a second."""
PAST_MAX: Final = 64  # requests to replay
BURST: Final = (2, 48)
SIDE_CONNECTIONS_MAX: Final = 6  # more than the 4 that may join an exchange
SEED_BYTES: Final = 32
FAST_BYTES_PER_SECOND: Final = 100_000  # below it, a burst may wait longer than the result timeout

_OUTCOMES: Final = {
    Status.OK: "ok",
    Status.NOT_CONNECTED: "offline",
    Status.BAD_PREIMAGE: "bad_preimage",
    Status.TIMEOUT: "timeout",
    Status.GONE: "gone",
}


@dataclass(slots=True, eq=False)
class _Request:
    recipient: PublicKey
    preimage: bytes
    payload: bytes
    nodes: list[int] = field(default_factory=list)
    """Relays to try next, in this order."""
    tries: int = 0
    is_probe: bool = False
    """Whether it is the last request, which must be answered."""
    lookups_count: int = 0
    """How many relays were asked where the device is."""
    outcome: str = "unfound"
    """How the last try ended."""


class Sender:
    """One sender and its connections."""

    def __init__(self, context: BhumiContext, rng: random.Random, host: str, devices: list[Device]) -> None:
        """Make a sender; ``start`` lets it ask."""
        self._context = context
        self._behaviour = context.plan.sender
        self._rng = rng
        self.host = host
        """Its address."""
        self.key_pair = KeyPair.from_seed(sha256(host.encode()))
        """The keys that answers are sealed to."""
        self._devices = devices
        self._known: dict[bytes, int] = {}
        """Where each device was reached last."""
        self._past: deque[_Request] = deque(maxlen=PAST_MAX)
        self._open_requests = 0
        self._connections: list[_Connection] = []
        self.outcomes: Counter[str] = Counter()
        """Finished exchanges by outcome; those that needed a look-up are ``moved`` when it helped."""

    def start(self) -> None:
        """Begin to ask."""
        context = self._context
        recurring = Recurring(context.schedule, self._rng, lambda: context.in_fault_phase, least_us=1)
        recurring.every(HOUR_US * context.plan.senders / context.plan.asks_per_hour, self._ask)

    def probe(self, tries: int = 8) -> None:
        """Ask one device once more, after the fault phase: it must be found, wherever it is, and answer."""
        context, device = self._context, self._rng.choice(self._devices)
        context.pending[self.host] = f"no answer of {device.identity.hex()[:16]} after the faults had ended"

        def ask(preimage: bytes) -> None:
            request = self._request(device.identity, preimage, device.home_node)
            request.is_probe = True
            self._try(request)

        def insist(left: int) -> None:
            # A device that has no relay at the moment gives no preimage; it is back soon.
            if self.host in context.pending and left:
                device.issue_for(self.key_pair.public, ask)
                context.schedule.after(PROBE_AGAIN_US, lambda: insist(left - 1))

        insist(tries)

    def drivers(self) -> list[Driver[SenderClient]]:
        """Return the drivers of all connections."""
        return [connection.driver for connection in self._connections]

    def leave(self) -> None:
        """Close every connection."""
        for driver in self.drivers():
            driver.hang_up()

    # Requests

    def _ask(self) -> None:
        for _ in range(self._rng.randint(*BURST) if self._draws(self._behaviour.bursts) else 1):
            device = self._rng.choice(self._devices)
            if self._open_requests < self._behaviour.outstanding_max:
                request = self._new_request(device)
                if request is not None:
                    self._past.append(request)
                    self._begin(request)

    def _new_request(self, device: Device) -> _Request | None:
        """Make a request to this device, or a bad one; None when the device has no preimage on offer."""
        behaviour, rng = self._behaviour, self._rng
        misbehaves = behaviour.replays + behaviour.guesses + behaviour.asks_absent
        draw = rng.random() if misbehaves else 1.0
        if draw < behaviour.replays and self._past:
            past = rng.choice(self._past)
            return self._request(past.recipient, past.preimage)
        if behaviour.replays <= draw < behaviour.replays + behaviour.guesses:
            return self._request(device.identity, rng.randbytes(PREIMAGE_BYTES))
        if behaviour.replays + behaviour.guesses <= draw < misbehaves:
            absent = KeyPair.from_seed(rng.randbytes(SEED_BYTES)).public
            return self._request(absent, rng.randbytes(PREIMAGE_BYTES))
        preimage = device.claim(self.key_pair.public)
        return self._request(device.identity, preimage, device.home_node) if preimage is not None else None

    def _request(self, recipient: PublicKey, preimage: bytes, home_node: int | None = None) -> _Request:
        """Make a request; a sender that meets a device for the first time has an invite that says where it is."""
        known = self._known.get(recipient, home_node)
        nodes = [] if known is None else [known]
        return _Request(recipient, preimage, self._context.request(recipient, preimage), nodes)

    def _begin(self, request: _Request) -> None:
        self._open_requests += 1
        self._try(request)

    def _try(self, request: _Request) -> None:
        if not request.nodes and self._context.plan.gossip:
            self._search(request)
            return
        node = request.nodes.pop(0) if request.nodes else 0
        request.tries += 1
        connection = self._connection_to(node)
        connection.ask(request)
        if self._context.in_fault_phase and self._draws(self._behaviour.leaves_mid_flight):
            abort = self._rng.random() < 1 / 2
            leave_us = spread(self._rng, IMPATIENT_US)
            self._context.schedule.after(leave_us, lambda: connection.driver.hang_up(abort=abort))
        if self._context.in_fault_phase and self._draws(self._behaviour.retries_side_by_side):
            for _ in range(self._rng.randint(1, SIDE_CONNECTIONS_MAX)):
                self._open_requests += 1
                self._dial(node).ask(self._copy(request, self._behaviour.tries_max))

    def _connection_to(self, node: int) -> "_Connection":
        """Return a connection to a relay: one that is open, when the plan shares them, or a new one."""
        is_shared = self._behaviour.shares_connection
        shared = next((each for each in self._connections if is_shared and each.node == node), None)
        return shared if shared is not None else self._dial(node)

    def _dial(self, node: int) -> "_Connection":
        connection = _Connection(self._context, self, node)
        self._connections.append(connection)
        return connection

    def _search(self, request: _Request) -> None:
        """Ask a relay where the device is: the first time where it was last, then others."""
        known = self._known.get(request.recipient)
        is_first = request.lookups_count == 0 and known is not None
        node = known if is_first and known is not None else self._rng.randrange(self._context.plan.relays)
        request.lookups_count += 1
        request.tries += 1

        def on_hints(entries: tuple[WhereEntry, ...] | None) -> None:
            nodes = [node_of(entry.address) for entry in entries or () if _is_good(request, entry)]
            request.nodes = [node for node in dict.fromkeys(nodes) if node is not None]
            if request.nodes:
                self._try(request)
            else:
                self._again(request)

        LookUp(self._context, self.host, node, request.recipient, on_hints)

    def take_outcome(self, node: int, request: _Request, status: int | None) -> None:
        """Note the status of a try, None when its connection was lost, and perhaps try again."""
        request.outcome = "lost" if status is None else _OUTCOMES[Status(status)]
        if status == Status.OK:
            self._known[request.recipient] = node
            self._finish(request, "moved" if request.lookups_count else "ok")
        elif status == Status.BAD_PREIMAGE and not request.is_probe:
            self._finish(request, request.outcome)
        else:
            self._again(request)

    def is_done_with(self) -> bool:
        """Return whether an idle connection may be closed."""
        return not self._draws(self._behaviour.keeps_connection)

    def forget(self, connection: "_Connection") -> None:
        """Forget a connection that has ended."""
        self._connections.remove(connection)

    def _again(self, request: _Request) -> None:
        """Try the next relay, or look again, unless it was often enough."""
        if request.tries < (self._behaviour.tries_max if not request.is_probe else PROBE_TRIES_MAX):
            delay_us = 0 if request.nodes else 1 + spread(self._rng, RETRY_US)
            self._context.schedule.after(delay_us, lambda: self._try(request))
        else:
            self._finish(request, request.outcome)

    def _finish(self, request: _Request, outcome: str) -> None:
        if request.is_probe:
            if outcome in ("ok", "moved"):
                self._context.pending.pop(self.host, None)
                self.outcomes["probe"] += 1
            return
        self._open_requests -= 1
        self.outcomes[outcome] += 1
        if self._context.in_fault_phase and self._draws(self._behaviour.asks_again):
            again = self._copy(request, request.tries)
            self._context.schedule.after(spread(self._rng, RETRY_US), lambda: self._begin(again))

    def _copy(self, request: _Request, tries: int) -> _Request:
        """Return the same request once more, as if it had been tried so often."""
        return _Request(request.recipient, request.preimage, request.payload, tries=tries)

    def _draws(self, chance: float) -> bool:
        """Draw whether something happens; what never happens draws nothing."""
        return chance > 0 and self._rng.random() < chance


class _Connection:
    """One connection to a relay and the requests on it."""

    def __init__(self, context: BhumiContext, sender: Sender, node: int) -> None:
        self.node = node
        self._context = context
        self._sender = sender
        self._number = context.next_connection()
        self._life = context.worlds[node].life
        self._is_greeted = False
        self._queue: deque[_Request] = deque()
        self._asked: dict[int, _Request] = {}
        context.observe(seen.Connected(self._number, node))
        self.driver = context.dial(node, sender.host, SenderClient(), self._on_turn, self._on_end)

    def ask(self, request: _Request) -> None:
        """Ask as soon as the relay has said HELLO and the window has room."""
        self._queue.append(request)
        if self._is_greeted:
            self._pump()

    def _pump(self) -> None:
        self._is_greeted = True
        while self._queue and not self.driver.is_over:
            request = self._queue[0]
            now = self._context.schedule.now
            token = self.driver.machine.send(request.recipient, request.preimage, request.payload, now)
            if isinstance(token, Unsent):
                return
            self._asked[token] = self._queue.popleft()
            asked = seen.Asked(self._number, token, request.recipient, request.preimage, request.payload)
            self._context.observe(asked)
            self.driver.settle(self._arrival_of(token))

    def _arrival_of(self, token: int) -> Callable[[bool], None]:
        return lambda taken: self._context.observe(seen.AskArrived(self._number, token, taken))

    def _on_turn(self) -> None:
        for event in self.driver.machine.take_events():
            if isinstance(event, Greeted):
                self._context.schedule.after(0, self._pump)
            elif isinstance(event, Answered):
                self._on_answered(event)
            elif isinstance(event, Lost):
                self._sender.take_outcome(self.node, self._asked.pop(event.token), None)

    def _on_answered(self, event: Answered) -> None:
        context, request = self._context, self._asked.pop(event.token)
        answer = context.read_answer(self._sender.key_pair, event.payload)
        expected = context.answer_of(request.recipient, request.preimage)
        context.observe(seen.Concluded(self._number, event.token, event.status, answer, expected))
        if self._queue:
            context.schedule.after(0, self._pump)
        elif not self._asked and self._sender.is_done_with():
            context.schedule.after(0, self._hang_up_if_idle)
        self._sender.take_outcome(self.node, request, event.status)

    def _hang_up_if_idle(self) -> None:
        if not self._asked and not self._queue:
            self.driver.hang_up()

    def _on_end(self, reason: str) -> None:
        world = self._context.worlds[self.node]
        restarted = self._life != world.life or not world.is_up
        faulted = self.driver.faulted or restarted or _is_slow(self._context.plan.link)
        self._context.observe(seen.ConnectionEnded(self._number, reason, faulted))
        self._sender.forget(self)
        queue, self._queue = self._queue, deque()
        for request in queue:
            self._sender.take_outcome(self.node, request, None)


def _is_slow(link: LinkSettings) -> bool:
    """Return whether a burst on a link may wait longer than the result timeout."""
    return 0 < link.bytes_per_second < FAST_BYTES_PER_SECOND or link.window_bytes < FAST_BYTES_PER_SECOND // 2


def _is_good(request: _Request, entry: WhereEntry) -> bool:
    """Return whether a hint is about the request's recipient, and signed by it."""
    return entry.presence.identity == request.recipient and is_signed(entry.presence)
