"""Listeners: accept, admit, shake hands, hand over.

Admission comes before the TLS handshake, because the handshake is what costs (about half a millisecond of a core): a
refused address costs an accept and a close. That is why the listening socket is read here and not by ``create_server``.
What stands in the end is a ``Pipe``, or whatever else the listener was told to make of a newcomer.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, cast

import aiofastnet

from waystation.core.errors import HostError
from waystation.transport.pipe import Pipe, Sink

__all__ = ["HANDSHAKE_TIMEOUT_S", "Arrival", "Listener", "why_not_bound"]

HANDSHAKE_TIMEOUT_S: Final = 10.0  # as long as one Bhumi frame may take, BHUMI-L
_ACCEPTS_PER_TURN: Final = 64  # so that a herd of newcomers cannot keep the loop from its peers
_BACKLOG: Final = 1_024
_EXIT_PORT: Final = 4
_RETRY_ACCEPT_S: Final = 1.0


class Arrival(Protocol):
    """A newcomer: an asyncio protocol that shakes hands of its own before it stands."""

    @property
    def stood(self) -> bool:
        """Whether it reached its sink, which counts its end from then on."""

    async def settled(self) -> None:
        """Return once it stands or never will."""


class Listener:
    """One bound TCP port, plain or TLS."""

    def __init__(
        self,
        sink: Sink | None,
        admit: Callable[[str], bool],
        release: Callable[[str], None],
        context: ssl.SSLContext | None,
        arrive: Callable[[str], Arrival] | None = None,
    ) -> None:
        """Describe a listener; ``open`` binds it.

        Args:
            sink: Gets every pipe that stands, unless ``arrive`` leads newcomers elsewhere; may be None then.
            admit: Asked with the remote host before anything else; False closes at once.
            release: Told about an admitted host whose connection ended before it reached a sink.
            context: TLS context, or None for plain TCP.
            arrive: Makes the asyncio protocol of a newcomer from its host; a ``Pipe`` to ``sink`` when left out. It has
                ``HANDSHAKE_TIMEOUT_S``, TLS included, to settle.
        """
        self._arrive = arrive if arrive is not None else partial(Pipe, cast("Sink", sink))
        self._admit = admit
        self._release = release
        self._context = context
        self._socket: socket.socket | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self.host = ""
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        """Bind and listen; port 0 takes a free one, ``port`` then tells which.

        Raises:
            HostError: The port is taken or not ours to take (exit code 4).
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, _, _, _, address = found[0]
            self._socket = socket.create_server(address, family=family, backlog=_BACKLOG)
        except (OSError, OverflowError) as error:
            raise HostError(f"cannot listen on {host}:{port}: {why_not_bound(error)}", exit_code=_EXIT_PORT) from error
        self._socket.setblocking(False)
        self.host, self.port = self._socket.getsockname()[:2]
        loop.add_reader(self._socket, self._accept_some)

    def close(self) -> None:
        """Stop accepting and drop handshakes under way; pipes that stand are not touched."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        for task in tuple(self._handshakes):
            task.cancel()

    def _accept_some(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if self._socket is None:
                return
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self._rest(self._socket)
                return
            self._greet(accepted, address[0] if isinstance(address, tuple) else "")

    def _rest(self, listening: socket.socket) -> None:
        """Look away for a second: the process is out of file descriptors, and the queue would spin the loop."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        loop.call_later(_RETRY_ACCEPT_S, self._look_again)

    def _look_again(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._accept_some)

    def _greet(self, accepted: socket.socket, host: str) -> None:
        if not self._admit(host):
            accepted.close()
            return
        arrival = self._arrive(host)
        task = asyncio.get_running_loop().create_task(self._shake_hands(accepted, arrival))
        self._handshakes.add(task)
        task.add_done_callback(partial(self._count, accepted, arrival, host))

    def _count(self, accepted: socket.socket, arrival: Arrival, host: str, task: asyncio.Task[None]) -> None:
        """Give back the place of a newcomer that does not stand; also when its handshake was cancelled unbegun."""
        self._handshakes.discard(task)
        if not arrival.stood:  # else it is the sink's, even if cancelled in the very turn of handing it over
            accepted.close()
            self._release(host)

    async def _shake_hands(self, accepted: socket.socket, arrival: Arrival) -> None:
        timeout_s = HANDSHAKE_TIMEOUT_S if self._context is not None else None
        transport: asyncio.BaseTransport | None = None
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                transport, _ = await aiofastnet.connect_accepted_socket(
                    asyncio.get_running_loop(),
                    lambda: cast("asyncio.BaseProtocol", arrival),
                    accepted,
                    ssl=self._context,
                    ssl_handshake_timeout=timeout_s,
                )
                await arrival.settled()
        except (OSError, ssl.SSLError, asyncio.CancelledError):
            pass  # the other side's doing, or ours in closing; counted as what it was: a handshake that ended
        finally:
            if transport is not None and not arrival.stood:
                cast("asyncio.Transport", transport).abort()


def why_not_bound(error: Exception) -> str:
    """Return in words why a port could not be had, as the end of a sentence."""
    if isinstance(error, PermissionError):
        return "not permitted (ports below 1024 need a privilege)"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return "the port is taken; is another program listening there?"
    return str(error)
