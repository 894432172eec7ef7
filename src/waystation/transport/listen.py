"""A TCP listener: it accepts connections, applies admission limits, and completes the TLS handshake.

``server.listeners`` and the HTTP ports open one for each address. ``arrive``, which they pass, makes the protocol
object of a connection; without it the result is a ``Pipe``. Admission is checked before the handshake, because a
handshake costs about half a millisecond of a core. A refused address costs only an accept and a close. Therefore this
module accepts from the socket itself and does not use ``create_server``.

A connection of a trusted proxy is admitted under the address of the client that the proxy names: in a PROXY header
before TLS where the listener takes one, else in the HTTP request, by the arrival itself. Until then it is one of
``UNNAMED_MAX`` and has ``HANDSHAKE_TIMEOUT_S``.
"""

import asyncio
import errno
import itertools
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, cast

import aiofastnet

from waystation.core.errors import HostError
from waystation.transport.addresses import EVERY_ADDRESS, plain_host, resolve_place, shown_host
from waystation.transport.first_bytes import FirstBytes
from waystation.transport.pipe import Pipe, Sink
from waystation.transport.proxies import Proxies, ProxyFault
from waystation.transport.proxy_header import PEEKED_BYTES, ProxyHeaderError, is_header, missing, source_of
from waystation.transport.silence import SilencePolicy, limit_silence

__all__ = ["HANDSHAKE_TIMEOUT_S", "UNNAMED_MAX", "Arrival", "BehindProxies", "Listener", "Unnamed", "why_not_bound"]

HANDSHAKE_TIMEOUT_S: Final = 10.0  # as long as one Bhumi frame may take, BHUMI-L
_ACCEPTS_PER_TURN: Final = 64  # so that many new connections cannot keep the loop from its peers
_TLS_ACCEPTS_PER_TURN: Final = 8  # each of which takes about a millisecond in the next turn (NODE-HERD)
_BACKLOG: Final = 4_096  # Linux's own limit by default; who finds no room there tries again after a second or three
_EXIT_PORT: Final = 4
_RETRY_ACCEPT_S: Final = 1.0
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_SUSPECTS_MAX: Final = 256  # hosts whose handshake failed; the one that failed first is forgotten
_YOUNG_S: Final = 2.0
_YOUNG_MAX: Final = 192
"""TLS handshakes that are younger than that; the next one waits in the kernel's queue. It is less than a node has room
for, since a newcomer in a full pool takes the place of another, which would come again (NODE-HANDSHAKES)."""
UNNAMED_MAX: Final = 1_024
"""Connections of trusted proxies whose client is not known yet, of one listener; a further one is closed at once."""


class Arrival(Protocol):
    """A new connection: an asyncio protocol with a handshake of its own."""

    @property
    def is_established(self) -> bool:
        """Whether it reached its sink, which counts its end from then on."""

    async def settled(self) -> None:
        """Return once it is established or has failed."""


class Unnamed(Arrival, Protocol):
    """A new connection of a trusted proxy; it learns its client from the request, and then admits that one."""

    admitted: str | None
    """The address that it was admitted under, None before."""


def _report_none(_host: str, _fault: ProxyFault) -> None:
    """Report nothing."""


class BehindProxies(NamedTuple):
    """What a listener does about connections of trusted proxies."""

    trusted: Callable[[], Proxies] = Proxies
    """Returns those of the configuration in force."""
    has_header: Callable[[], bool] = bool
    """Returns whether their connections must begin with a PROXY header."""
    arrive: Callable[[str], Unnamed | None] | None = None
    """Makes the protocol of a connection whose request names the client, or None to close it; None for no such ones."""
    report: Callable[[str, ProxyFault], None] = _report_none
    """Called with the address of a connection and what its proxy does wrong."""


class Listener:
    """One bound TCP port, plain or TLS."""

    def __init__(
        self,
        sink: Sink | None,
        admit: Callable[[str], bool],
        release: Callable[[str], None],
        context: ssl.SSLContext | None,
        arrive: Callable[[str], Arrival] | None = None,
        proxies: BehindProxies = BehindProxies(),  # noqa: B008 - immutable
        key_of: Callable[[str], str] = str,
        silence: Callable[[], SilencePolicy] | None = SilencePolicy,
    ) -> None:
        """Describe a listener; ``open`` binds it.

        Args:
            sink: Gets every established pipe, unless ``arrive`` is given; may be None then.
            admit: Asked with the remote host before anything else; False closes at once.
            release: Called with an admitted host whose connection ended before it reached a sink.
            context: TLS context, or None for plain TCP.
            arrive: Makes the asyncio protocol of a new connection from its host; a ``Pipe`` to ``sink`` when left out.
                It has ``HANDSHAKE_TIMEOUT_S``, TLS included, to settle.
            proxies: Who may name the client of a connection, and how.
            key_of: Returns what connections of a host are counted under, for ``close_oldest``.
            silence: Returns how long the other side of a new connection may be silent; None for ever.
        """
        self._arrive = arrive if arrive is not None else partial(Pipe, cast("Sink", sink))
        self._admit = admit
        self._release = release
        self._context = context
        self._proxies = proxies
        self._silence = silence
        self._unnamed = 0
        self._resting = False
        self._socket: socket.socket | None = None
        self._handshakes: dict[asyncio.Task[None], float] = {}
        """Under way, and when each began, the oldest first."""
        self._is_waiting = False
        """Whether the next connections wait in the kernel's queue until a handshake is over."""
        self._key_of = key_of
        self._suspects: OrderedDict[str, None] = OrderedDict()
        """Hosts whose last TLS handshake failed; the first bytes of their next connection are looked at."""
        self._under_way: dict[str, dict[asyncio.Task[None], None]] = {}
        """By key: admitted connections that are neither established nor being closed, the oldest first."""
        self.host = ""
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        """Bind and listen; port 0 takes a free one, ``port`` then says which. "*" takes both families (NODE-DUAL).

        Raises:
            HostError: The port is taken or not ours to take (exit code 4).
        """
        loop = asyncio.get_running_loop()
        try:
            family, place = await resolve_place(host, port, socket.SOCK_STREAM)
            every = host == EVERY_ADDRESS and family == socket.AF_INET6
            self._socket = socket.create_server(place, family=family, backlog=_BACKLOG, dualstack_ipv6=every)
        except (OSError, OverflowError) as error:
            raise HostError(f"cannot listen on {host}:{port}: {why_not_bound(error)}", exit_code=_EXIT_PORT) from error
        self._socket.setblocking(False)
        bound, self.port = self._socket.getsockname()[:2]
        self.host = shown_host(host, bound)
        loop.add_reader(self._socket, self._accept_some)

    def close(self) -> None:
        """Stop accepting and drop handshakes under way; established pipes are not touched."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        for task in tuple(self._handshakes):
            task.cancel()

    def close_oldest(self, key: str) -> bool:
        """Close the oldest connection whose handshake is under way and whose host has this key.

        A connection is closed once: the next call for the same key closes the next one. Cost: O(1).

        Args:
            key: One that ``key_of`` returns.

        Returns:
            Whether there was one.
        """
        under_way = self._under_way.get(key)
        if not under_way:
            return False
        oldest = next(iter(under_way))
        self._forget(oldest, key)
        return oldest.cancel()

    def _accept_some(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN if self._context is None else _TLS_ACCEPTS_PER_TURN):
            if self._socket is None:
                return
            if (wait_s := self._too_soon_s()) > 0:
                self._wait(self._socket, wait_s)
                return
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except (OSError, MemoryError) as error:
                if isinstance(error, OSError) and error.errno not in _SHORTAGES:
                    raise
                self._rest(self._socket, error)
                return
            self._greet(accepted, plain_host(address[0]) if isinstance(address, tuple) else "")

    def _too_soon_s(self) -> float:
        """Return for how many seconds another handshake would be one too many, unless one is over before."""
        if self._context is None or len(self._handshakes) < _YOUNG_MAX:
            return 0.0
        began = next(itertools.islice(reversed(self._handshakes.values()), _YOUNG_MAX - 1, None))
        return began + _YOUNG_S - asyncio.get_running_loop().time()

    def _wait(self, listening: socket.socket, wait_s: float) -> None:
        """Leave the next connections in the kernel's queue for so long, or until a handshake is over."""
        self._is_waiting = True
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        loop.call_later(wait_s, self._end_wait)

    def _end_wait(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            if self._socket is not None and not self._resting:
                asyncio.get_running_loop().add_reader(self._socket, self._accept_some)

    def _rest(self, listening: socket.socket, error: Exception) -> None:
        """Look away for a second: the process is out of files or memory, and the queue would spin the loop."""
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "new connections wait", "exception": error})
        if self._resting:
            return
        self._resting = True
        loop.remove_reader(listening)
        loop.call_later(_RETRY_ACCEPT_S, self._look_again)

    def _look_again(self) -> None:
        self._resting = False
        if self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._accept_some)

    def _greet(self, accepted: socket.socket, host: str) -> None:
        accepted.setblocking(False)
        if not (self._proxies.has_header() and self._proxies.trusted().trusts(host)):
            self._begin(accepted, host)
        elif self._may_wait(accepted, host):
            self._start(self._read_header(accepted, host), partial(self._end_header, accepted))

    def _begin(self, accepted: socket.socket, host: str) -> None:
        """Admit a connection and complete its handshake; ``host`` is its client, or a proxy whose request names it."""
        if self._proxies.arrive is not None and self._proxies.trusted().trusts(host):
            self._begin_unnamed(accepted, host, self._proxies.arrive)
            return
        if not self._admit(host):
            accepted.close()
            return
        arrival = self._arrive(host)
        task = self._start(self._shake_hands(accepted, arrival, host), partial(self._count, accepted, arrival, host))
        self._under_way.setdefault(self._key_of(host), {})[task] = None

    def _begin_unnamed(self, accepted: socket.socket, host: str, arrive: Callable[[str], Unnamed | None]) -> None:
        if not self._may_wait(accepted, host):
            return
        arrival = arrive(host)
        if arrival is None:
            self._unnamed -= 1
            accepted.close()
            return
        self._start(self._shake_hands(accepted, arrival, host), partial(self._count_unnamed, accepted, arrival))

    def _start(self, work: Coroutine[Any, Any, None], then: Callable[[asyncio.Task[None]], None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._handshakes[task] = asyncio.get_running_loop().time()
        task.add_done_callback(self._over)
        task.add_done_callback(then)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        del self._handshakes[task]
        self._end_wait()

    def _may_wait(self, accepted: socket.socket, host: str) -> bool:
        """Count a connection in whose client is not known, or close it."""
        if self._unnamed >= UNNAMED_MAX:
            self._proxies.report(host, ProxyFault.NO_HEADER)
            accepted.close()
            return False
        self._unnamed += 1
        return True

    def _end_header(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._unnamed -= 1
        if task.cancelled():  # the listener closes
            accepted.close()

    async def _read_header(self, accepted: socket.socket, host: str) -> None:
        """Read the PROXY header and go on with the client that it names; the proxy itself when it names none."""
        loop, header = asyncio.get_running_loop(), b""
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                while count := missing(header):
                    chunk = await loop.sock_recv(accepted, count)
                    if not chunk:
                        raise ProxyHeaderError("the connection ends inside its PROXY header")
                    header += chunk
            named = source_of(header) or host
        except (OSError, ProxyHeaderError):  # TimeoutError is an OSError
            self._proxies.report(host, ProxyFault.NO_HEADER)
            accepted.close()
        else:
            self._begin(accepted, named)

    def _count(self, accepted: socket.socket, arrival: Arrival, host: str, task: asyncio.Task[None]) -> None:
        """Release the place of a connection that is not established; also when its handshake was cancelled unbegun."""
        self._forget(task, self._key_of(host))
        if not arrival.is_established:  # else it is the sink's, even if cancelled in the very turn of handing it over
            accepted.close()
            self._release(host)

    def _forget(self, task: asyncio.Task[None], key: str) -> None:
        under_way = self._under_way.get(key)
        if under_way is not None:
            under_way.pop(task, None)
            if not under_way:
                del self._under_way[key]

    def _count_unnamed(self, accepted: socket.socket, arrival: Unnamed, _task: asyncio.Task[None]) -> None:
        self._unnamed -= 1
        if not arrival.is_established:
            accepted.close()
            if arrival.admitted is not None:
                self._release(arrival.admitted)

    async def _shake_hands(self, accepted: socket.socket, arrival: Arrival, host: str) -> None:
        timeout_s = HANDSHAKE_TIMEOUT_S if self._context is not None else None
        protocol = cast("asyncio.BaseProtocol", arrival)
        if self._context is None and isinstance(protocol, asyncio.Protocol):
            protocol = FirstBytes(protocol, partial(self._look_at, host))
        transport: asyncio.BaseTransport | None = None
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                if host in self._suspects:
                    self._look_at(host, await _peek(accepted))
                transport, _ = await aiofastnet.connect_accepted_socket(
                    asyncio.get_running_loop(),
                    lambda: protocol,
                    accepted,
                    ssl=self._context,
                    ssl_handshake_timeout=timeout_s,
                )
                if self._silence is not None:
                    limit_silence(transport, self._silence())
                await arrival.settled()
        except (OSError, ssl.SSLError, asyncio.CancelledError) as error:
            # The other side's doing, or ours in closing; counted as what it was: a handshake that ended.
            if isinstance(error, ssl.SSLError):
                self._suspect(host)
        except MemoryError as error:
            if self._socket is not None:
                self._rest(self._socket, error)
        except Exception as error:  # noqa: BLE001 - a bug here, or in the TLS library, costs this connection
            context = {"message": "a connection could not be taken", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        finally:
            if transport is not None and not arrival.is_established:
                cast("asyncio.Transport", transport).abort()

    def _suspect(self, host: str) -> None:
        """Look at the first bytes of the next connection of a host: those of this one are lost in the TLS library."""
        self._suspects[host] = None
        if len(self._suspects) > _SUSPECTS_MAX:
            self._suspects.popitem(last=False)

    def _look_at(self, host: str, first: bytes) -> None:
        """Report a connection that begins with a PROXY header where none is read."""
        if is_header(first):
            self._proxies.report(host, ProxyFault.HEADER_NOT_READ)
        else:
            self._suspects.pop(host, None)


async def _peek(accepted: socket.socket) -> bytes:
    """Wait for the first bytes of a connection and return them, and leave them where they are."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(accepted, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(accepted)
    return accepted.recv(PEEKED_BYTES, socket.MSG_PEEK)


def why_not_bound(error: Exception) -> str:
    """Return in words why a port could not be had, as the end of a sentence."""
    if isinstance(error, PermissionError):
        return "not permitted (ports below 1024 need a privilege)"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return "the port is taken; is another program listening there?"
    return str(error)
