"""The requests of a client, from the first packet to the outcome, with retransmission and proof of work.

The client machine begins a request for a lease, mail or a whitelist, and passes the host's answers.

::

    ASKING      the request is sent again and again     demand for work -> SEARCHING, unanswered -> the end
    SEARCHING   the owner looks for a solution          work found -> PROVING, given up or too old -> the end
    PROVING     the 101 is sent again and again         401 -> SEARCHING with more bits, unanswered -> ASKING

In every phase the host may end the request: 202, 204, 208 accept, 402, 404, 408 refuse. An unanswered 101 may mean that
the host lost the challenge in a restart. The request is then sent again and may get a new challenge.

A host can demand work ``DEMANDS_MAX`` times per request, with at most ``bits_max`` bits and within a challenge's
lifetime. ``expects`` does the cheap checks; the caller then verifies the signature and calls ``take``.

Spec: specs/lprp.md 3, LPRP-D6, LPRP-D7B, LPRP-D10, LPRP-D17.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from waystation.core.alarms import Alarms
from waystation.core.instant import Instant, after_ms
from waystation.protocols.lprp.client.context import ClientContext
from waystation.protocols.lprp.client.events import RequestOutcome, WorkOver, WorkWanted
from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.protocols.lprp.client.work_memory import WorkMemory
from waystation.protocols.lprp.messages import CHALLENGE_LIFE_MS, CLOCK_WINDOW_MS, Command, Kind, Packet
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.work import is_enough, solution_of

__all__ = ["DEMANDS_MAX", "PROOF_TRIES", "WAIT_MS_MAX", "Finished", "Phase", "Request", "Requests"]

WAIT_MS_MAX: Final = 16_000  # ours: networks are rarely silent for half a minute
PROOF_TRIES: Final = 4  # ours: 15 s, then the host has lost the challenge or the network is down
DEMANDS_MAX: Final = 4  # ours: a host that restarts three times within one request is not worth more


class Phase(Enum):
    """The phase of a request."""

    ASKING = auto()
    SEARCHING = auto()
    PROVING = auto()
    OVER = auto()


class Request:
    """One request; its packet stays the same however often it is sent."""

    __slots__ = (
        "answer",
        "bits",
        "demand",
        "demands_count",
        "due",
        "kind",
        "next_counter",
        "number",
        "packet",
        "phase",
        "refusals_count",
        "search_until",
        "tries",
        "work",
    )

    def __init__(self, number: int, packet: Packet) -> None:
        self.number = number
        self.packet = packet
        self.kind = _KINDS[packet.command]
        self.phase = Phase.ASKING
        self.tries = 0
        self.due = Instant(0)
        self.demand: Packet | None = None
        self.demands_count = 0
        self.search_until = Instant(0)
        self.bits = 0
        self.next_counter = 0
        self.refusals_count = 0
        """Solutions for this demand that had too few bits."""
        self.work: Packet | None = None
        """The 101 that answers ``demand``."""
        self.answer: Packet | None = None
        """The host's final answer."""


Finished = Callable[[Request, RequestOutcome, Instant], None]
"""Called once for each request that ends by itself."""


class Requests:
    """The requests under way; the caller of ``begin`` bounds their number."""

    def __init__(
        self, context: ClientContext, settings: ClientSettings, memory: WorkMemory, finished: Finished
    ) -> None:
        self._context = context
        self._settings = settings
        self._memory = memory
        self._finished = finished
        self._alarms = Alarms()
        self._number = 0
        self._by_number: dict[int, Request] = {}
        self._by_signature: dict[bytes, Request] = {}
        self._by_challenge: dict[bytes, Request] = {}
        self._by_work: dict[bytes, Request] = {}

    @property
    def searching_count(self) -> int:
        """Requests that wait for the owner's search."""
        return sum(request.phase is Phase.SEARCHING for request in self._by_number.values())

    def begin(self, packet: Packet, now: Instant) -> Request:
        """Send a request for the first time."""
        self._number += 1
        request = Request(self._number, packet)
        self._by_number[request.number] = request
        self._by_signature[packet.signature] = request
        self._send(request, now)
        return request

    def withdraw(self, request: Request) -> None:
        """Forget a request that is under way, without an outcome."""
        assert request.phase is not Phase.OVER
        self._forget_demand(request)
        request.phase = Phase.OVER
        self._alarms.cancel(request.number)
        del self._by_number[request.number]
        del self._by_signature[request.packet.signature]

    # Answers

    def find(self, packet: Packet) -> Request | None:
        """Return the request that an answer names, if it may be an answer to that request."""
        # Spec 3: a 401 names the 101; every other answer names the packet that asked, also after work.
        if packet.command is Command.WORK_REFUSED:
            return self._by_work.get(packet.reference)
        request = self._by_signature.get(packet.reference)
        if request is None or packet.command not in _ANSWERS[request.packet.command]:
            return None
        return request

    def expects(self, packet: Packet) -> Refusal | None:
        """Return why an answer is unexpected, or None; its signature is not checked."""
        request = self.find(packet)
        if request is None:
            return Refusal.UNASKED_ANSWER
        demand = request.demand
        if packet.command is request.kind.demand:
            return self._expects_demand(request, packet)
        if packet.command in _REFUSING and demand is not None and packet.time_ms < demand.time_ms:
            # The host sent this before it demanded work: the demand is newer.
            return Refusal.NOT_NEWER
        return None

    def _expects_demand(self, request: Request, packet: Packet) -> Refusal | None:
        # Spec 10: at most four demands for one request, so that a host cannot make us work without end.
        if request.demands_count >= DEMANDS_MAX:
            return Refusal.UNASKED_ANSWER
        demand = request.demand
        if demand is None:
            return None
        if packet.data == demand.data:
            # The repeat of a demand is news only where our 101 went unanswered.
            return None if request.phase is Phase.ASKING else Refusal.DUPLICATE
        # A host that restarted makes a new challenge; an older one would undo the search.
        return None if packet.time_ms > demand.time_ms else Refusal.NOT_NEWER

    def take(self, packet: Packet, now: Instant) -> None:
        """Act on an answer that was expected and whose signature is the host's."""
        request = self.find(packet)
        assert request is not None
        if packet.command is Command.WORK_REFUSED:
            self._on_work_refused(request, now)
        elif packet.command is request.kind.demand:
            self._on_demand(request, packet, now)
        else:
            self._on_end(request, packet, now)

    def _on_end(self, request: Request, packet: Packet, now: Instant) -> None:
        request.answer = packet
        if packet.command in _REFUSING:
            self._finish(request, RequestOutcome.REFUSED, now)
            return
        # LPRP-D7B: the next search begins with the bits that were enough now.
        if request.work is not None:
            self._memory.note_taken(request.kind, request.bits, at_first=request.refusals_count == 0)
        self._finish(request, RequestOutcome.ACCEPTED, now)

    def _on_demand(self, request: Request, demand: Packet, now: Instant) -> None:
        request.demands_count += 1
        if request.demand is not None and request.demand.data == demand.data:
            self._on_demand_again(request, now)
            return
        self._forget_demand(request)
        request.demand = demand
        request.refusals_count = 0
        # Spec 4: a challenge older than 2^19 ms is answered with 401.
        request.search_until = after_ms(now, CHALLENGE_LIFE_MS)
        self._by_challenge[demand.signature] = request
        self._search(request, self._memory.first_offer(request.kind), 0, now)

    def _on_demand_again(self, request: Request, now: Instant) -> None:
        """Handle a challenge that lives while four of our 101 went unanswered: lost, or too few bits without a 401.

        A host sends 401 only so often to one network, so more work is the way out of both (LPRP-SILENT).
        """
        bits = self._memory.next_offer(request.bits)
        if bits is None or now >= request.search_until:
            self._prove(request, now)
            return
        assert request.work is not None
        del self._by_work[request.work.signature]
        request.work = None
        request.refusals_count += 1
        self._search(request, bits, request.next_counter, now)

    def _on_work_refused(self, request: Request, now: Instant) -> None:
        assert request.work is not None
        del self._by_work[request.work.signature]
        request.work = None
        request.refusals_count += 1
        # Spec 3: search on for 2 more bits after each 401.
        bits = self._memory.next_offer(request.bits)
        if bits is None or now >= request.search_until:
            self._finish(request, RequestOutcome.WORK_FAILED, now)
        else:
            self._search(request, bits, request.next_counter, now)

    # Work

    def work_found(self, challenge_signature: bytes, counter: int, now: Instant) -> None:
        """Send the solution of a search; ignored when no request waits for it."""
        request = self._by_challenge.get(challenge_signature)
        if request is None or request.phase is not Phase.SEARCHING:
            return
        assert request.demand is not None
        solution = solution_of(counter)
        assert is_enough(request.demand.data, solution, request.bits)
        request.next_counter = counter + 1
        # Spec 3: a 101 has the reference of the challenge, then S.
        request.work = self._context.seal(Command.WORK, challenge_signature + solution, now)
        self._by_work[request.work.signature] = request
        self._prove(request, now)

    def work_stopped(self, challenge_signature: bytes, now: Instant) -> None:
        """End the request whose search was given up."""
        request = self._by_challenge.get(challenge_signature)
        if request is not None and request.phase is Phase.SEARCHING:
            request.phase = Phase.PROVING  # the owner has stopped already: no WorkOver follows
            self._finish(request, RequestOutcome.WORK_FAILED, now)

    def _search(self, request: Request, bits: int, start: int, now: Instant) -> None:
        assert request.demand is not None
        assert now < request.search_until
        request.phase = Phase.SEARCHING
        request.bits = bits
        self._schedule(request, request.search_until)
        self._context.emit(WorkWanted(request.demand.data, request.kind, start, bits))

    def _prove(self, request: Request, now: Instant) -> None:
        assert request.work is not None
        request.phase = Phase.PROVING
        request.tries = 0
        self._send(request, now)

    # Time

    def wake(self, now: Instant) -> None:
        """Send again or give up the requests that are due."""
        for number in self._alarms.due(now):
            request = self._by_number[number]
            if now < request.due:
                self._alarms.set_by(number, request.due)
            else:
                self._on_due(request, now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` must be called next, or None; early at times."""
        return self._alarms.next_at()

    def _on_due(self, request: Request, now: Instant) -> None:
        if request.phase is Phase.SEARCHING:
            self._finish(request, RequestOutcome.WORK_FAILED, now)
        elif request.phase is Phase.PROVING and request.tries >= PROOF_TRIES:
            # Spec 10: a 101 goes out at 0, 1, 3 and 7 s, then the request again.
            request.phase = Phase.ASKING
            request.tries = 0
            self._send_or_end(request, now)
        else:
            self._send_or_end(request, now)

    def _send_or_end(self, request: Request, now: Instant) -> None:
        # Spec 4: the host takes a packet until 2^19 ms after its time; a later repeat cannot be answered.
        is_fresh = self._context.wall_ms(now) - request.packet.time_ms <= CLOCK_WINDOW_MS
        has_demands = request.phase is Phase.PROVING or request.demands_count < DEMANDS_MAX
        if is_fresh and has_demands and request.tries < self._settings.tries:
            self._send(request, now)
        else:
            self._finish(request, RequestOutcome.UNANSWERED, now)

    def _send(self, request: Request, now: Instant) -> None:
        packet = request.work if request.phase is Phase.PROVING else request.packet
        assert packet is not None
        self._context.send(packet)
        # Spec 10: a request goes out at 0, 1, 3, 7, 15, 31, 47 and 63 s, the same bytes each time.
        self._schedule(request, after_ms(now, min(self._settings.retry_ms << request.tries, WAIT_MS_MAX)))
        request.tries += 1

    def _schedule(self, request: Request, due: Instant) -> None:
        request.due = due
        self._alarms.set_by(request.number, due)

    # The end

    def _finish(self, request: Request, outcome: RequestOutcome, now: Instant) -> None:
        self.withdraw(request)
        self._finished(request, outcome, now)

    def _forget_demand(self, request: Request) -> None:
        if request.demand is None:
            return
        if request.phase is Phase.SEARCHING:
            self._context.emit(WorkOver(request.demand.signature))
        del self._by_challenge[request.demand.signature]
        if request.work is not None:
            del self._by_work[request.work.signature]
        request.demand = request.work = None


_KINDS: Final = {
    Command.RELAY: Kind.RELAY,
    Command.ASK_LEASE: Kind.LEASE,
    Command.UPDATE_WHITELIST: Kind.WHITELIST,
    Command.CLEAR_WHITELIST: Kind.WHITELIST,
}
_ANSWERS: Final = {
    Command.RELAY: (Command.RELAY_ACCEPTED, Command.RELAY_REFUSED, Command.RELAY_DEMANDS_WORK),
    Command.ASK_LEASE: (Command.LEASE_GRANTED, Command.LEASE_REFUSED, Command.LEASE_DEMANDS_WORK),
    Command.UPDATE_WHITELIST: (
        Command.WHITELIST_DONE,
        Command.WHITELIST_DIFFERS,
        Command.WHITELIST_DEMANDS_WORK,
    ),
    Command.CLEAR_WHITELIST: (Command.WHITELIST_DONE,),
}
_REFUSING: Final = (Command.RELAY_REFUSED, Command.LEASE_REFUSED, Command.WHITELIST_DIFFERS)
