"""The streams of one BSP device: pipes dialled and accepted, one timer, and commits on a thread of their own.

``Lines`` carries out what the device's machine asks for. Everything that arrives within one turn of the loop is
answered in one write per peer, and what must be durable goes to the disk in one group while the loop goes on; the
machine hears of it when it is there.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from waystation.core.effects import Close, Commit, Dial, Hold, Peer, Send, SendMany
from waystation.core.errors import HostError, LocalError
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.core.records import Change, Store
from waystation.protocols.bsp.device import BspDevice
from waystation.protocols.bsp.machine import BspMachine
from waystation.sdk.bsp_url import PLAIN, WSS, BspUrl
from waystation.sdk.link import now
from waystation.transport.dial import RelayUrl, dial
from waystation.transport.http_get import TlsContext
from waystation.transport.listen import Listener
from waystation.transport.pipe import Pipe
from waystation.transport.tls import client_context, leaf_sha256, server_context
from waystation.transport.websocket_out import Outlet

__all__ = ["CONNECTIONS_MAX", "Lines"]

CONNECTIONS_MAX: Final = 256
"""Accepted at once; whoever comes on top is turned away before TLS."""
DIAL_WITHIN_S: Final = 10.0
LINGER_S: Final = 1.0  # for what was written to leave when everything ends
_PROTOCOLS: Final = ("bsp/1",)  # ALPN, specs/bsp.md 5
_FRAME_BYTES_MAX: Final = 1_048_576  # of a WebSocket message that is read; nobody writes more than 512 KiB at once


class _End:
    """The sink of pipes that came or went by one way."""

    def __init__(self, lines: "Lines", begin: Callable[[Pipe], None]) -> None:
        self._lines = lines
        self._begin = begin

    def connected(self, pipe: Pipe) -> None:
        """Introduce the pipe."""
        self._begin(pipe)

    def received(self, pipe: Pipe, data: bytes) -> None:
        """Pass bytes on."""
        self._lines.received(pipe, data)

    def half_closed(self, pipe: Pipe) -> bool:
        """Pass on that the other side says no more."""
        return self._lines.half_closed(pipe)

    def congested(self, pipe: Pipe) -> None:
        """Pass the sign on."""
        self._lines.congested(pipe)

    def drained(self, pipe: Pipe) -> None:
        """Pass the sign on."""
        self._lines.drained(pipe)

    def lost(self, pipe: Pipe, error: Exception | None) -> None:
        """Pass the end on."""
        del error
        self._lines.lost(pipe)


class Lines:
    """Drives one machine inside a running loop; ``aclose`` ends it."""

    def __init__(
        self,
        machine: BspMachine,
        device: BspDevice,
        store: Store,
        *,
        on_event: Callable[[Any], None],
        on_turn: Callable[[], None],
        on_unreachable: Callable[[PublicKey, str, str], None],
        on_failure: Callable[[HostError], None],
    ) -> None:
        """Begin.

        Args:
            machine: Fresh, and used by nobody else.
            device: That of the machine.
            store: Where its changes go; only the thread here commits to it.
            on_event: Gets every event of the machine, in order.
            on_turn: Called behind every turn, when what is due may have changed.
            on_unreachable: Told whom we could not dial, where, and why.
            on_failure: Told once that the disk says no; nothing is durable from then on.
        """
        self._machine = machine
        self._device = device
        self._store = store
        self._on_event = on_event
        self._on_turn = on_turn
        self._on_unreachable = on_unreachable
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="bsp-commits")
        self._client_context: TlsContext | None = None
        self._outlet: Outlet | None = None
        self._listeners: list[Listener] = []
        self._pipes: dict[Peer, Pipe] = {}
        self._lingering: set[Pipe] = set()
        self._one_gone = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._next_peer = 1
        self._turn_planned = False
        self._timer: asyncio.TimerHandle | None = None
        self._committing = False
        self._commits_done = 0
        self.failure: HostError | None = None
        """What the disk said when it refused."""
        self.closed = False

    # Ways

    async def listen(self, host: str, port: int, certificate: Path, key: Path) -> int:
        """Accept bsp+tls on a port and return which; 0 takes a free one.

        Args:
            host: Name or address of ours.
            port: TCP port.
            certificate: PEM file of the certificate to show.
            key: PEM file of its key.

        Raises:
            HostError: The port cannot be had, or the files cannot be used.
        """
        context = server_context(certificate, key, only_tls13=True, protocols=_PROTOCOLS)
        self._machine.use_certificate(leaf_sha256(certificate))
        listener = Listener(_End(self, self._accepted), lambda _: len(self._pipes) < CONNECTIONS_MAX, _nothing, context)
        await listener.open(host, port)
        self._listeners.append(listener)
        return listener.port

    def changed(self) -> None:
        """Look at what was asked of the device itself; call it behind any number of its methods."""
        self._machine.wake(now())
        self.plan_turn()

    def plan_turn(self) -> None:
        """Make sure that effects are taken before the loop sleeps."""
        if not self._turn_planned and not self.closed:
            self._turn_planned = True
            self._loop.call_soon(self._turn)

    # Durability

    async def durable(self) -> None:
        """Return once everything that the device has decided so far is on disk.

        Raises:
            HostError: The disk said no.
        """
        if self.failure is not None:
            raise self.failure
        missing = int(self._committing) + int(self._device.must_commit)
        if missing:
            done: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append((self._commits_done + missing, done))
            self.plan_turn()
            await done

    async def aclose(self) -> None:
        """Commit what waits, then close every connection; safe to call twice."""
        if self.closed:
            return
        for listener in self._listeners:
            listener.close()
        try:
            if self.failure is None:
                await self.durable()
        finally:
            self.closed = True
            self._machine.shut(now())
            self._take()
            if self._timer is not None:
                self._timer.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._let_go()
            await self._loop.run_in_executor(None, self._writer.shutdown)

    async def _let_go(self) -> None:
        """Return once nothing of a connection is left; one that lingers is cut."""
        self._lingering.update(self._pipes.values())
        for pipe in tuple(self._lingering):
            pipe.close()
        try:
            async with asyncio.timeout(LINGER_S):
                await self._wait_gone()
        except TimeoutError:
            for pipe in tuple(self._lingering):
                pipe.abort()
            await self._wait_gone()

    async def _wait_gone(self) -> None:
        while self._lingering:
            self._one_gone.clear()
            await self._one_gone.wait()

    # Inputs

    def _accepted(self, pipe: Pipe) -> None:
        self._introduce(pipe)
        self._machine.connect(Peer(pipe.peer), now(), pipe.address)
        self.plan_turn()

    def _dialled(self, name: str, pipe: Pipe) -> None:
        self._introduce(pipe)
        self._machine.connect_upstream(Peer(pipe.peer), name, now(), pipe.certificate_sha256)
        self.plan_turn()

    def _introduce(self, pipe: Pipe) -> None:
        pipe.peer = self._next_peer
        self._next_peer += 1
        self._pipes[Peer(pipe.peer)] = pipe

    def received(self, pipe: Pipe, data: bytes) -> None:
        """Pass bytes to the machine."""
        self._machine.receive(Peer(pipe.peer), data, now())
        self.plan_turn()

    def half_closed(self, pipe: Pipe) -> bool:
        """Tell the machine that the other side says no more; return whether the pipe stays open for what we say."""
        if Peer(pipe.peer) not in self._pipes or self.closed:
            return False
        self._machine.half_closed(Peer(pipe.peer), now())
        self._turn()  # over TLS only what is written within this call still leaves
        return Peer(pipe.peer) in self._pipes or pipe in self._lingering

    def congested(self, pipe: Pipe) -> None:
        """Tell the machine that bytes wait here."""
        self._machine.congested(Peer(pipe.peer), now())
        self.plan_turn()

    def drained(self, pipe: Pipe) -> None:
        """Tell the machine that none wait any more."""
        self._machine.drained(Peer(pipe.peer), now())
        self.plan_turn()

    def lost(self, pipe: Pipe) -> None:
        """Forget a pipe whose connection is gone."""
        self._lingering.discard(pipe)
        self._one_gone.set()
        if self._pipes.pop(Peer(pipe.peer), None) is not None and not self.closed:
            self._machine.disconnect(Peer(pipe.peer), now())
            self.plan_turn()

    # Turns

    def _turn(self) -> None:
        self._turn_planned = False
        if self.closed:
            return
        self._tell()  # before commits are decided: what a mailbox answers is on disk with what it did
        self._take()
        self._tell()
        self._on_turn()
        self._set_timer()

    def _tell(self) -> None:
        for event in self._machine.take_events():
            self._on_event(event)

    def _take(self) -> None:
        outgoing: dict[Peer, list[bytes]] = {}
        receipts: list[Peer] = []
        closing: list[Close] = []
        for effect in self._machine.take():
            if isinstance(effect, Send):
                outgoing.setdefault(effect.peer, []).append(effect.data)
                if effect.receipt:
                    receipts.append(effect.peer)
            elif isinstance(effect, SendMany):
                outgoing.setdefault(effect.peer, []).extend(effect.messages)
            elif isinstance(effect, Close):
                closing.append(effect)
            elif isinstance(effect, Commit):
                self._committing = True  # from here on: its task begins only after whoever asks meanwhile
                self._begin(self._commit(effect.ticket, effect.changes))
            elif isinstance(effect, Dial):
                self._begin(self._dial(effect))
            elif isinstance(effect, Hold) and effect.peer in self._pipes:
                pipe = self._pipes[effect.peer]
                (pipe.pause if effect.held else pipe.resume)()
        self._write(outgoing, receipts)
        for close in closing:
            self._close(close)

    def _write(self, outgoing: dict[Peer, list[bytes]], receipts: list[Peer]) -> None:
        for peer, chunks in outgoing.items():
            if peer in self._pipes:
                self._pipes[peer].write(chunks)
        for peer in receipts:
            if peer in self._pipes and not self._pipes[peer].waits:
                self._machine.drained(peer, now())
                self.plan_turn()

    def _close(self, close: Close) -> None:
        pipe = self._pipes.pop(close.peer, None)
        if pipe is None:
            return
        if close.abort:
            pipe.abort()
            return
        self._lingering.add(pipe)
        pipe.close(close.status)
        self._loop.call_later(LINGER_S, self._cut, pipe)

    def _cut(self, pipe: Pipe) -> None:
        if pipe in self._lingering:
            pipe.abort()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._machine.deadline()
        if due is not None:
            self._timer = self._loop.call_at(due / MICROSECONDS_PER_SECOND, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._machine.wake(now())
        self.plan_turn()

    # What takes time

    def _begin(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit(self, ticket: int, changes: tuple[Change, ...]) -> None:
        try:
            await self._loop.run_in_executor(self._writer, self._store.commit, changes)
        except HostError as error:
            self._fail(error)
            return
        finally:
            self._committing = False
        self._commits_done += 1
        self._machine.committed(ticket, now())
        reached = [future for count, future in self._waiters if count <= self._commits_done]
        self._waiters = [(count, future) for count, future in self._waiters if count > self._commits_done]
        for future in reached:
            if not future.done():
                future.set_result(None)
        self.plan_turn()

    def _fail(self, error: HostError) -> None:
        self.failure = error
        for _, future in self._waiters:
            if not future.done():
                future.set_exception(error)
        self._waiters.clear()
        self._on_failure(error)

    async def _dial(self, effect: Dial) -> None:
        try:
            await self._connect(BspUrl.parse(effect.url), _End(self, partial(self._dialled, effect.name)))
        except (HostError, LocalError) as error:
            if not self.closed:
                self._machine.upstream_failed(effect.name, now())
                self._on_unreachable(PublicKey(bytes.fromhex(effect.name)), effect.url, str(error))
                self.plan_turn()

    async def _connect(self, url: BspUrl, end: _End) -> None:
        if self._client_context is None:
            self._client_context = client_context(verify=False, only_tls13=True, protocols=_PROTOCOLS)
        if url.scheme == WSS:
            if self._outlet is None:
                self._outlet = Outlet(message_bytes_max=_FRAME_BYTES_MAX, context=self._client_context)
            address = url.place.removeprefix("bsp+")
            await self._outlet.dial(address, end, timeout_s=DIAL_WITHIN_S)
            return
        scheme = "tcp" if url.scheme == PLAIN else "tls"
        await dial(RelayUrl(scheme, url.host, url.port), end, self._client_context, DIAL_WITHIN_S)


def _nothing(host: str) -> None:
    """Do nothing: nobody counts those who did not stay."""
    del host
