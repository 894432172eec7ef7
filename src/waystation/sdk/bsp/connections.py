"""The connections of one BSP device, dialled and accepted, and its disk commits on a separate thread.

``BspPeer`` has one, around the protocol's stream machine. Changes that must be durable are committed in groups while
the event loop continues. The protocol machine gets the confirmation once they are on disk. What the disk refuses stays
in memory, unacknowledged, and is written once the disk takes writes again (BSP-REFUSED).
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from waystation.core.effects import Commit, Dial, Effect, Peer
from waystation.core.errors import STORE_EXIT_CODE, HostError, LocalError
from waystation.core.ids import PublicKey
from waystation.core.records import Change, Store
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.stream.machine import BspMachine
from waystation.protocols.bsp.url import PLAIN, TLS, WSS, BspUrl
from waystation.sdk.bsp.news import PeerUnreachable
from waystation.sdk.connection import Driver, now
from waystation.sdk.store_news import StoreWatch
from waystation.transport.dial import WEB_PORT, RelayUrl, dial, speaks_http
from waystation.transport.listen import Listener
from waystation.transport.pipe import Pipe
from waystation.transport.silence import SilencePolicy
from waystation.transport.tls import TlsContext, client_context, leaf_sha256, server_context
from waystation.transport.websocket.dial import WebSocketDialler

__all__ = ["CONNECTIONS_MAX", "BspConnections"]

CONNECTIONS_MAX: Final = 256
"""Accepted at once; a further one is rejected before TLS."""
DIAL_WITHIN_S: Final = 10.0
SILENT_S: Final = 1.0
"""A TLS connection on which a peer does not answer our handshake for so long may be one to a web port."""
TRY_S: Final = 1.0
"""For a look whether it is."""
_NOT_YET: Final = (
    "not on disk yet; it is kept and goes out once the disk takes writes again, unless the program ends before"
    " (another call would make it twice)"
)
_PROTOCOLS: Final = ("bsp/1",)  # ALPN, specs/bsp.md 5
_FRAME_BYTES_MAX: Final = 1_048_576  # of a WebSocket message that is read; no peer writes more than 512 KiB at once


class _Dialled:
    """The sink of one dialled pipe: its peer is known by name, all else is the driver's."""

    def __init__(self, driver: "BspConnections", name: str) -> None:
        self._driver = driver
        self._name = name
        self.answered = asyncio.Event()
        """Set by the first bytes, and by the end."""
        self.half_closed = driver.half_closed
        self.congested = driver.congested
        self.drained = driver.drained

    def connected(self, pipe: Pipe) -> None:
        """Introduce the pipe."""
        self._driver.dialled(self._name, pipe)

    def received(self, pipe: Pipe, data: bytes) -> None:
        """Hand on the first bytes, and have the driver take all others itself."""
        self.received = self._driver.received  # type: ignore[method-assign]
        self.answered.set()
        self._driver.received(pipe, data)

    def lost(self, pipe: Pipe, error: Exception | None) -> None:
        """Report the end."""
        self.answered.set()
        self._driver.lost(pipe, error)


class BspConnections(Driver):
    """Drives one machine inside a running loop; ``aclose`` ends it."""

    def __init__(
        self,
        machine: BspMachine,
        device: BspDevice,
        store: Store,
        *,
        on_event: Callable[[Any], None],
        on_turn: Callable[[], None],
        silence: SilencePolicy = SilencePolicy(),  # noqa: B008 - immutable
    ) -> None:
        """Begin.

        Args:
            machine: Fresh, and driven here alone.
            device: That of the machine.
            store: Where its changes go; only the thread here commits to it.
            on_event: Gets every event of the machine, in order, ``PeerUnreachable``, ``StoreFailed`` and
                ``StoreRecovered``.
            on_turn: Called after every turn, when what is due may have changed.
            silence: How long a peer may be silent.
        """
        super().__init__(machine, on_event)
        self._bsp = machine
        self._device = device
        self._store = store
        self._silence = silence
        self._on_turn = on_turn
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="bsp-commits")
        self._client_context: TlsContext | None = None
        self._dialler: WebSocketDialler | None = None
        self._listeners: list[Listener] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._committing = False
        self._commit_over = asyncio.Event()  # of the commit under way, or the next one
        self._commits_done = 0
        self._disk = StoreWatch(on_event)

    @property
    def failure(self) -> HostError | None:
        """Why the last commit failed; None when it did not."""
        return self._disk.failure

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
        self._bsp.use_certificate(leaf_sha256(certificate))
        listener = Listener(
            self, lambda _: len(self._pipes) < CONNECTIONS_MAX, _nothing, context, silence=lambda: self._silence
        )
        await listener.open(host, port)
        self._listeners.append(listener)
        return listener.port

    def changed(self) -> None:
        """Look at what was asked of the device itself; call it after any number of its methods."""
        self._bsp.wake(now())
        self.plan_turn()

    def reconnect(self) -> None:
        """Dial every peer that is waited for now."""
        self._bsp.redials.hurry(now())
        self.changed()

    def flush(self) -> None:
        """Take a turn; see ``Driver.flush``."""
        if not self.closed and not self._flushing:
            super().flush()
            self._on_turn()

    # Durability

    async def durable(self) -> None:
        """Return once everything that the device has decided so far is on disk.

        Raises:
            HostError: The disk refuses: it is in memory only, and written once the disk takes writes again.
        """
        wanted = self._commits_done + int(self._committing) + int(self._device.must_commit)
        while self.failure is None and self._commits_done < wanted:
            self.plan_turn()
            await self._commit_over.wait()
        if self.failure is not None:
            raise HostError(f"{_NOT_YET}: {self.failure}", exit_code=self.failure.exit_code) from self.failure

    def check_store(self) -> None:
        """Return when the disk takes writes, as far as we know; what is begun then may be kept.

        Raises:
            HostError: It refused the last one; nothing must be begun.
        """
        if self.failure is not None:
            raise HostError(f"nothing was kept: {self.failure}", exit_code=self.failure.exit_code) from self.failure

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
            self._bsp.shut(now())
            self._carry_out(effect for effect in self._bsp.take() if not isinstance(effect, Commit | Dial))
            self.stop()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.wait_closed()
            await self._loop.run_in_executor(None, self._writer.shutdown)

    # Inputs

    def dialled(self, name: str, pipe: Pipe) -> None:
        """Take over a pipe to the peer with this name."""
        self._bsp.connect_upstream(self.enter(pipe), name, now(), pipe.certificate_sha256)
        self.plan_turn()

    def half_closed(self, pipe: Pipe) -> bool:
        """Note that the other side sends no more; return whether the pipe stays open for what we send."""
        if Peer(pipe.peer) not in self._pipes or self.closed:
            return False
        self._bsp.half_closed(Peer(pipe.peer), now())
        self.flush()  # over TLS only what is written within this call still leaves
        return Peer(pipe.peer) in self._pipes or pipe in self._lingering

    # What takes time

    def _on_effect(self, effect: Effect) -> None:
        if isinstance(effect, Commit):
            self._committing = True  # from here on: its task begins only after callers that ask meanwhile
            self._begin(self._commit(effect.ticket, effect.changes))
        elif isinstance(effect, Dial):
            self._begin(self._dial(effect))
        else:
            super()._on_effect(effect)

    def _begin(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit(self, ticket: int, changes: tuple[Change, ...]) -> None:
        try:
            await self._loop.run_in_executor(self._writer, self._store.commit, changes)
        except HostError as error:
            self._refused(ticket, error)
        except Exception as error:  # noqa: BLE001 - else who waits would wait for ever, unreported
            self._refused(ticket, HostError(f"the store failed: {error!r}", exit_code=STORE_EXIT_CODE))
        else:
            # The commit after a refused one has what was refused, and what waited behind it.
            self._commits_done += 1 if self.failure is None else 2
            self._disk.written()
            self._bsp.committed(ticket, now())
        finally:
            self._committing = False
            over, self._commit_over = self._commit_over, asyncio.Event()
            over.set()
            self.plan_turn()

    def _refused(self, ticket: int, error: HostError) -> None:
        self._bsp.not_committed(ticket, now())
        self._disk.refused(error)

    async def _dial(self, effect: Dial) -> None:
        sink = _Dialled(self, effect.name)
        try:
            url = BspUrl.parse(effect.url)
            pipe = await self._connect(url, sink)
        except (HostError, LocalError) as error:
            if not self.closed:
                self._bsp.upstream_failed(effect.name, now())
                self._report_unreachable(effect, str(error))
                self.plan_turn()
            return
        if url.scheme == TLS and await self._is_web_port(url, sink) and not self.closed:
            self._report_unreachable(effect, f"{url.place} did not greet us: {WEB_PORT}")
            pipe.abort()

    def _report_unreachable(self, effect: Dial, why: str) -> None:
        self._on_event(PeerUnreachable(PublicKey(bytes.fromhex(effect.name)), effect.url, why))

    async def _is_web_port(self, url: BspUrl, sink: _Dialled) -> bool:
        """Return whether a connection is silent because HTTP waits for a request, long before our handshake is late."""
        try:
            async with asyncio.timeout(SILENT_S):
                await sink.answered.wait()
        except TimeoutError:
            return await speaks_http(RelayUrl("tls", url.host, url.port), TRY_S) and not sink.answered.is_set()
        return False

    async def _connect(self, url: BspUrl, sink: _Dialled) -> Pipe:
        if self._client_context is None:
            self._client_context = client_context(verify=False, only_tls13=True, protocols=_PROTOCOLS)
        if url.scheme == WSS:
            if self._dialler is None:
                self._dialler = WebSocketDialler(
                    message_bytes_max=_FRAME_BYTES_MAX, context=self._client_context, silence=lambda: self._silence
                )
            address = url.place.removeprefix("bsp+")
            return await self._dialler.dial(address, sink, timeout_s=DIAL_WITHIN_S)
        scheme = "tcp" if url.scheme == PLAIN else "tls"
        return await dial(
            RelayUrl(scheme, url.host, url.port), sink, self._client_context, DIAL_WITHIN_S, silence=self._silence
        )


def _nothing(host: str) -> None:
    """Do nothing: connections that did not stay are not counted."""
    del host
