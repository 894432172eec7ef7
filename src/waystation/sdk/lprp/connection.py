"""The connection to one LPRP host: a UDP socket, the client's protocol machine, and the proof of work it needs.

``LprpTenant`` and ``LprpSender`` share it. The socket is replaced when the host stays silent, because the local network
may have changed. A process pool searches for proofs of work, and searches that are no longer needed are cancelled at
once.
"""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from waystation.core.errors import HostError, LocalError
from waystation.protocols.lprp.client.clock import PacketClock
from waystation.protocols.lprp.client.events import (
    Event,
    LeaseDoubted,
    RelayFinished,
    WorkOver,
    WorkWanted,
)
from waystation.protocols.lprp.client.machine import LprpClient
from waystation.protocols.lprp.client.seen_packets import SeenPackets
from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.protocols.lprp.messages import HEADER_BYTES, Kind
from waystation.sdk.backoff import Backoff, Pause
from waystation.sdk.connection import Connection, now
from waystation.sdk.lprp.host import HostUrl
from waystation.sdk.lprp.solver import Search, WorkPool, WorkProgress
from waystation.sdk.lprp.state import CLOCK_RESERVE_MS, LprpState
from waystation.transport.datagrams.pipe import UdpPipe
from waystation.transport.dial import dial

__all__ = ["ConnectionEvent", "DurableClock", "HostConnection", "HostUnreachable", "WorkEnded", "Working"]

DIAL_TIMEOUT_S: Final = 10.0


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
    """Why nothing was found, "" when something was found or the search is needed no more."""


class HostUnreachable(NamedTuple):
    """No socket towards the host can be made; tried again by itself."""

    reason: str
    retry_s: float


ConnectionEvent = Event | Working | WorkEnded | HostUnreachable
"""Events of the machine, but for those about work, and what happens to its socket and its work."""


class DurableClock(PacketClock):
    """Times that are never used twice, over restarts too and beside other programs of the folder (LPRP-D13).

    A stretch of them is taken on the disk before the first is used. While the disk refuses they rise in memory alone:
    two programs may then use one time, of which the host takes the address from the first.
    """

    __slots__ = ("_on_refused", "_reserved_ms", "_state")

    def __init__(self, state: LprpState, on_refused: Callable[[HostError], None]) -> None:
        """Continue after every time that this folder has used; ``on_refused`` gets the error of a refused write."""
        super().__init__(state.clock_ms())
        self._state = state
        self._on_refused = on_refused
        self._reserved_ms = self.last_ms

    def next(self, wall_ms: int) -> int:
        """Return the time of the next packet; see ``PacketClock.next``."""
        before_ms = self.last_ms
        time_ms = super().next(wall_ms)
        if time_ms > self._reserved_ms or time_ms < before_ms:
            try:
                self.last_ms, self._reserved_ms = self._state.reserve_clock(time_ms)
            except HostError as error:
                self._reserved_ms = time_ms + CLOCK_RESERVE_MS  # not tried again for every packet
                self._on_refused(error)
        return self.last_ms


class _Work(NamedTuple):
    kind: Kind
    reference: bytes
    search: Search


class HostConnection(Connection):
    """Drives one machine over UDP; its owner calls ``flush`` after commands."""

    machine: LprpClient

    def __init__(
        self,
        state: LprpState,
        host: HostUrl,
        settings: ClientSettings,
        on_event: Callable[[ConnectionEvent], None],
        *,
        on_refused: Callable[[HostError], None],
        pool: WorkPool,
        works: bool = True,
        seen: SeenPackets | None = None,
        rng: random.Random,
    ) -> None:
        """Describe it; ``reach`` or ``start`` makes its socket.

        Args:
            state: Who we are, and what must be kept.
            host: Whom we talk to.
            settings: Of the machine.
            on_event: Gets ``ConnectionEvent`` in order.
            on_refused: Gets the error of each write that the disk refuses.
            pool: Where work is searched for.
            works: Whether work is done at all.
            seen: Packets that need no event any more.
            rng: Source of padding.
        """
        self._state = state
        self._host = host
        self._report = on_event
        self._on_refused = on_refused
        self._pool = pool
        self._works = works
        self._bits = state.bits(host.key)
        self.machine = LprpClient(
            state.key_pair,
            host.key,
            rng,
            settings=settings,
            clock=DurableClock(state, on_refused),
            seen=seen,
            bits=self._bits,
            known_whitelist=state.whitelist(host.key).agreed,
        )
        super().__init__(self.machine, self._handle, clock=lambda: state.now_ms() / 1_000)
        self._searches: dict[bytes, _Work] = {}
        self._unwanted: set[bytes] = set()
        self._dialling: asyncio.Task[None] | None = None
        self._pausing = Pause()

    # Life

    async def reach(self) -> None:
        """Make a socket; raises HostError when the host's name has no address."""
        await dial(self._host.address, self, context=None, timeout_s=DIAL_TIMEOUT_S)

    def start(self) -> None:
        """Make a new socket, and go on trying until there is one: the old one's network may be gone."""
        if not self.closed and (self._dialling is None or self._dialling.done()):
            self._dialling = self._loop.create_task(self._dial())

    def reconnect(self) -> None:
        """Make a new socket now, by which a heartbeat says where we are; requests under way go on."""
        self._pausing.end()
        self.start()

    async def aclose(self) -> None:
        """Stop everything; safe to call twice."""
        self.stop()
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.gather(self._dialling, return_exceptions=True)
        searches, self._searches = self._searches, {}
        for work in searches.values():
            work.search.found.cancel()
        await self.wait_closed()

    @property
    def complaints(self) -> int:
        """How often the network has reported that no program listens at the host's address."""
        return self.pipe.complaints if isinstance(self.pipe, UdpPipe) else 0

    async def _dial(self) -> None:
        backoff = Backoff(random.SystemRandom())
        while True:
            try:
                return await self.reach()
            except HostError as error:
                retry_s = backoff.next_s()
                self._report(HostUnreachable(str(error), retry_s))
                await self._pausing.wait(retry_s)

    # The machine

    def flush(self) -> None:
        """Carry out what the machine wants; see ``Driver.flush``."""
        super().flush()
        self._keep_bits()

    def hurry(self) -> None:
        """Send the next heartbeat at once: the host may take another address for ours."""
        for peer in self._pipes:
            self.machine.connect(peer, now())
        self.flush()

    def stop_work(self, reference: bytes) -> None:
        """Do no more work for the packet of this signature, which is not over yet."""
        self._unwanted.add(reference)
        for signature, work in tuple(self._searches.items()):
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
            self._report(event)

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
                on_progress=lambda progress: self._report(Working(event.kind, reference, progress)),
            )
        except LocalError as error:
            self._report(WorkEnded(event.kind, reference, WorkProgress(event.bits, 0, 0.0), str(error)))
            self.machine.work_stopped(event.challenge_signature, now())
            return
        self._searches[event.challenge_signature] = _Work(event.kind, reference, search)
        search.found.add_done_callback(partial(self._on_found, event.challenge_signature))

    def _drop_work(self, signature: bytes, failure: str = "") -> None:
        """End a search, if there is one; it is cancelled when it is needed no more."""
        work = self._searches.pop(signature, None)
        if work is not None:
            work.search.found.cancel()
            self._report(WorkEnded(work.kind, work.reference, work.search.progress(), failure))

    def _on_found(self, signature: bytes, found: asyncio.Future[int]) -> None:
        failure = "" if found.cancelled() or found.exception() is None else str(found.exception())
        work = self._searches.get(signature)
        if self.closed or work is None or work.search.found is not found:
            return
        self._drop_work(signature, failure)
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
                    self._state.change_later(partial(self._state.set_bits, self._host.key, kind, bits))
                except HostError as error:
                    self._on_refused(error)
