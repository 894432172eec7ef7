"""One client machine over one UDP socket: datagrams in and out, its timer, its work, and what must be kept for it.

The socket is made anew when the host goes unheard: the network under us may have changed. Work that the machine wants
is searched for in a pool of processes; a search that nobody needs any more is cancelled at once.
"""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from waystation.core.effects import Peer, Send
from waystation.core.errors import HostError, LocalError
from waystation.core.instant import MICROSECONDS_PER_MS, MICROSECONDS_PER_SECOND
from waystation.protocols.lprp.client import LprpClient
from waystation.protocols.lprp.client_clock import PacketClock
from waystation.protocols.lprp.client_events import (
    Event,
    LeaseDoubted,
    RelayFinished,
    WorkOver,
    WorkWanted,
)
from waystation.protocols.lprp.client_settings import ClientSettings
from waystation.protocols.lprp.messages import HEADER_BYTES, Kind
from waystation.protocols.lprp.seen_packets import SeenPackets
from waystation.sdk.link import now
from waystation.sdk.lprp_host import HostUrl
from waystation.sdk.lprp_solver import Search, WorkPool, WorkProgress
from waystation.sdk.lprp_state import LprpState
from waystation.transport.dial import dial
from waystation.transport.pipe import Pipe
from waystation.transport.udp_pipe import UdpPipe

__all__ = ["DurableClock", "HostUnreachable", "Line", "LineEvent", "WorkEnded", "Working"]

WALL_S: Final = 5.0  # how often the machine is told the time of day
DIAL_TIMEOUT_S: Final = 10.0
RETRY_FIRST_S: Final = 1.0
RETRY_CAP_S: Final = 30.0
_PEER: Final = Peer(0)


class Working(NamedTuple):
    """A search for work that a host has demanded is under way."""

    kind: Kind
    reference: bytes
    """Signature of the packet that the work is for."""
    progress: WorkProgress


class WorkEnded(NamedTuple):
    """A search is over."""

    kind: Kind
    reference: bytes
    """Signature of the packet that the work was for."""
    progress: WorkProgress
    failure: str
    """Why nothing was found, "" when something was or nobody needs it any more."""


class HostUnreachable(NamedTuple):
    """No socket towards the host can be made; tried again by itself."""

    reason: str
    retry_s: float


LineEvent = Event | Working | WorkEnded | HostUnreachable | HostError
"""What a line tells; those of the machine that are about work are not among them."""


class DurableClock(PacketClock):
    """Times that are never used twice, over restarts too and beside other programs of the folder (LPRP-D13).

    A stretch of them is taken on the disk before the first is used.
    """

    __slots__ = ("_on_failure", "_reserved_ms", "_state")

    def __init__(self, state: LprpState, on_failure: Callable[[HostError], None]) -> None:
        """Go on behind everything that this folder has used; ``on_failure`` hears of a disk that says no."""
        super().__init__(state.clock_ms())
        self._state = state
        self._on_failure = on_failure
        self._reserved_ms = self.last_ms

    def next(self, wall_ms: int) -> int:
        """Return the time of the next packet; see ``PacketClock.next``."""
        before_ms = self.last_ms
        time_ms = super().next(wall_ms)
        if time_ms > self._reserved_ms or time_ms < before_ms:
            try:
                self.last_ms, self._reserved_ms = self._state.reserve_clock(time_ms)
            except HostError as error:
                self._on_failure(error)
        return self.last_ms


class _Work(NamedTuple):
    kind: Kind
    reference: bytes
    search: Search


class Line:
    """Drives a machine; a ``Sink``. Whoever gives the machine a command calls ``flush`` behind it."""

    def __init__(
        self,
        state: LprpState,
        host: HostUrl,
        settings: ClientSettings,
        on_event: Callable[[LineEvent], None],
        *,
        pool: WorkPool,
        works: bool = True,
        seen: SeenPackets | None = None,
        rng: random.Random,
    ) -> None:
        """Describe a line; ``open`` or ``start`` makes its socket.

        Args:
            state: Who we are, and what must be kept.
            host: Whom we talk to.
            settings: Of the machine.
            on_event: Gets ``LineEvent`` in order; a HostError is a disk that says no, and ends what can be promised.
            pool: Where work is searched for.
            works: Whether work is done at all.
            seen: Packets that need not be told again.
            rng: Source of padding.
        """
        self._state = state
        self._host = host
        self._on_event = on_event
        self._pool = pool
        self._works = works
        self._bits = state.bits(host.key)
        self.machine = LprpClient(
            state.key_pair,
            host.key,
            rng,
            settings=settings,
            clock=DurableClock(state, on_event),
            seen=seen,
            bits=self._bits,
            known_whitelist=state.whitelist(host.key).agreed,
        )
        self._under_way: dict[bytes, _Work] = {}
        self._unwanted: set[bytes] = set()
        self._pipe: Pipe | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Handle | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._closed = False
        self._set_wall()

    # Life

    async def open(self) -> None:
        """Make a socket; raises HostError when the host's name has no address."""
        pipe = await dial(self._host.place, self, None, DIAL_TIMEOUT_S)
        if self._closed:
            pipe.close()

    def start(self) -> None:
        """Make a new socket, and go on trying until there is one: the old one's network may be gone."""
        if not self._closed and (self._dialling is None or self._dialling.done()):
            self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def aclose(self) -> None:
        """Stop everything; safe to call twice."""
        self._closed = True
        for timer in (self._timer, self._flushing, self._clock):
            if timer is not None:
                timer.cancel()
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.gather(self._dialling, return_exceptions=True)
        under_way, self._under_way = self._under_way, {}
        for work in under_way.values():
            work.search.cancel()
        self._drop_pipe()

    @property
    def complaints(self) -> int:
        """How often the network has told that nobody listens at the host's address."""
        return self._pipe.complaints if isinstance(self._pipe, UdpPipe) else 0

    async def _dial(self) -> None:
        retry_s = RETRY_FIRST_S
        while True:
            try:
                await self.open()
            except HostError as error:
                self._on_event(HostUnreachable(str(error), retry_s))
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, RETRY_CAP_S)
            else:
                return

    def _drop_pipe(self) -> None:
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close()
            self.machine.disconnect(_PEER, now())

    # A sink

    def connected(self, pipe: Pipe) -> None:
        """Take a new socket over from the old one."""
        if self._closed:
            return
        self._drop_pipe()
        self._pipe = pipe
        self._set_wall()
        self.machine.connect(_PEER, now())
        self.flush()

    def received(self, pipe: Pipe, data: bytes) -> None:
        """Pass a datagram to the machine; what it asks for is done once for all that arrived together."""
        if pipe is self._pipe:
            self.machine.receive(_PEER, data, now())
            if self._flushing is None:
                self._flushing = asyncio.get_running_loop().call_soon(self.flush)

    def congested(self, pipe: Pipe) -> None:
        """Do nothing: what the kernel has no room for waits in a bounded queue."""

    def drained(self, pipe: Pipe) -> None:
        """Do nothing, as above."""

    def lost(self, pipe: Pipe, error: Exception | None) -> None:
        """Do nothing: only we close a socket."""

    # The machine

    def flush(self) -> None:
        """Carry out what the machine asks for and hand its events on, until there is nothing more; set its timer."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        while True:
            effects, events = self.machine.take(), self.machine.take_events()
            if not effects and not events:
                break
            if self._pipe is not None and effects:
                self._pipe.write([effect.data for effect in effects if isinstance(effect, Send)])
            for event in events:
                self._handle(event)
        self._keep_bits()
        self._set_timer()

    def hurry(self) -> None:
        """Send the next heartbeat at once: the host may take another address for ours."""
        if self._pipe is not None:
            self.machine.connect(_PEER, now())
            self.flush()

    def stop_work(self, reference: bytes) -> None:
        """Do no more work for the packet of this signature, which is not over yet."""
        self._unwanted.add(reference)
        for signature, work in tuple(self._under_way.items()):
            if work.reference == reference:
                self._drop_work(signature)
                self.machine.work_stopped(signature, now())
        self.flush()

    def _handle(self, event: Event) -> None:
        if isinstance(event, WorkWanted):
            self._begin_work(event)
        elif isinstance(event, WorkOver):
            self._drop_work(event.challenge_signature)
        else:
            if isinstance(event, LeaseDoubted):
                self.start()
            elif isinstance(event, RelayFinished):
                self._unwanted.discard(event.signature)
            self._on_event(event)

    def _begin_work(self, event: WorkWanted) -> None:
        reference = event.challenge[HEADER_BYTES:]
        if not self._works or reference in self._unwanted:
            self.machine.work_stopped(event.challenge_signature, now())
            return
        try:
            search = self._pool.search(
                event.challenge,
                event.bits,
                start=event.start,
                on_progress=lambda progress: self._on_event(Working(event.kind, reference, progress)),
            )
        except LocalError as error:
            self._on_event(WorkEnded(event.kind, reference, WorkProgress(event.bits, 0, 0.0), str(error)))
            self.machine.work_stopped(event.challenge_signature, now())
            return
        self._under_way[event.challenge_signature] = _Work(event.kind, reference, search)
        search.found.add_done_callback(partial(self._on_found, event, search))

    def _drop_work(self, signature: bytes) -> None:
        """Cancel a search that nobody needs any more, if there is one."""
        work = self._under_way.pop(signature, None)
        if work is not None:
            work.search.cancel()
            self._on_event(WorkEnded(work.kind, work.reference, work.search.progress(), ""))

    def _on_found(self, event: WorkWanted, search: Search, found: asyncio.Future[int]) -> None:
        signature = event.challenge_signature
        failure = "" if found.cancelled() or found.exception() is None else str(found.exception())
        work = self._under_way.get(signature)
        if self._closed or work is None or work.search is not search:
            return
        del self._under_way[signature]
        self._on_event(WorkEnded(work.kind, work.reference, search.progress(), failure))
        if failure or found.cancelled():
            self.machine.work_stopped(signature, now())
        else:
            self.machine.work_found(signature, found.result(), now())
        self.flush()

    def _keep_bits(self) -> None:
        """Remember how much work this host was content with (LPRP-D7B)."""
        for kind, bits in self.machine.bits.items():
            if self._bits.get(kind) != bits:
                self._bits[kind] = bits
                try:
                    self._state.set_bits(self._host.key, kind, bits)
                except HostError as error:
                    self._on_event(error)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.machine.deadline()
        if due is not None and not self._closed:
            self._timer = asyncio.get_running_loop().call_at(due / MICROSECONDS_PER_SECOND, self._wake)

    def _wake(self) -> None:
        self.machine.wake(now())
        self.flush()

    def _set_wall(self) -> None:
        """Tell the machine the time of day, now and every few seconds: clocks are set."""
        self.machine.set_wall(now(), self._state.now_ms() * MICROSECONDS_PER_MS)
        if self._clock is not None:
            self._clock.cancel()
        self._clock = asyncio.get_running_loop().call_later(WALL_S, self._set_wall)
