"""The connection to a relay: TCP, or TLS whose only trusted authorities are those that are given.

The TLS handshake comes first and alone, because relays speak first, which trips MicroPython's own asynchronous
streams. It runs on a socket that does not block, a little at every call of ``open``, so that a relay that stalls in the
middle costs ``CONNECT_MS``, no watchdog, and nobody else's time.
"""

import errno
import select
import socket
import ssl

from .port import NATIVE, const, seldom, ticks_diff, ticks_ms

__all__ = ["CONNECT_MS", "Link", "UnreachableError", "UntrustedError", "context_of", "error_of"]

CONNECT_MS = 10_000  # for connecting and the handshake together; a name lookup has the system's own limits
_WRITE_MS = const(10_000)
_TURN_MS = const(1000)  # how long a watchdog is left alone
_CONNECTING = const(0)
_SHAKING = const(1)
_OPEN = const(2)

_BLOCKED = () if NATIVE else (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class UnreachableError(Exception):
    """There is no connection; the text says why in words for people."""


class UntrustedError(UnreachableError):
    """What listens there shows no certificate of the authority, or one for another name."""


class Link:
    """A connection: ``open`` until it stands, then ``read_into`` and ``write``."""

    def __init__(self, relay: str, host: str, port: int, context: object, feed: object, poll: object) -> None:
        """Begin to connect; only the name lookup blocks.

        Args:
            relay: The address as people wrote it, for sentences.
            host: Name or address; with TLS the certificate must name it.
            port: TCP port.
            context: From ``context_of``; None for a connection without TLS.
            feed: Called at least every second.
            poll: A ``select.poll``, which ends its waiting when something can be done here.

        Raises:
            UnreachableError: There is no such host, or nobody listens.
        """
        self._relay = relay
        self._host = host
        self._context = context
        self._feed = feed
        self._poll = poll
        self._socket = None
        self._early = None
        feed()
        try:
            self._left = list(socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM))
        except OSError:
            raise UnreachableError("cannot find the host of " + relay)
        self._begun = ticks_ms()
        self._next_address()

    def open(self) -> bool:
        """Go on with connecting, without waiting, and return whether the connection stands.

        Raises:
            UnreachableError: Nobody listens, or it is not the relay that it should be; it is closed then.
        """
        try:
            if self._stage == _CONNECTING:
                self._connect()
            if self._stage == _SHAKING:
                self._handshake()
            if self._stage != _OPEN and ticks_diff(ticks_ms(), self._begun) > CONNECT_MS:
                raise UnreachableError("%s did not answer within %d s" % (self._relay, CONNECT_MS // 1000))
        except BaseException:
            self.close()
            raise
        return self._stage == _OPEN

    @property
    def is_ready(self) -> bool:
        """Whether something can be read that no poll tells of."""
        return bool(self._early) or (not NATIVE and isinstance(self._socket, ssl.SSLSocket) and self._has_pending())

    def poll(self, wait_ms: int) -> bool:
        """Return whether something can be read, waiting at most so long."""
        return self.is_ready or bool(self._poll.poll(wait_ms))

    def read_into(self, room: memoryview) -> int:
        """Return how many bytes were read; 0 when there are none yet, -1 when the connection has ended."""
        if self._early:
            room[:1], self._early = self._early, None
            return 1
        try:
            count = self._socket.readinto(room) if NATIVE else self._socket.recv_into(room)
        except _BLOCKED:
            return 0
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return 0
            return -1
        return 0 if count is None else count or -1

    def write(self, data: bytes) -> None:
        """Send all of it; raises OSError when the relay takes nothing for ten seconds, or is gone."""
        view = memoryview(data)
        begun = ticks_ms()
        while view:
            try:
                count = self._socket.write(view) if NATIVE else self._socket.send(view)
            except _BLOCKED:
                count = None
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    raise
                count = None
            if count:
                view = view[count:]
                begun = ticks_ms()
                continue
            if ticks_diff(ticks_ms(), begun) > _WRITE_MS:
                raise OSError(errno.ETIMEDOUT)
            self._feed()
            self._events(select.POLLOUT, _TURN_MS)

    def close(self) -> None:
        """End the connection; may be called twice."""
        if self._socket is None:
            return
        try:
            self._poll.unregister(self._socket)
        except (OSError, KeyError, ValueError):  # not registered, or reset
            pass
        try:
            self._socket.close()
        except OSError:  # it was reset
            pass
        self._socket = None

    def _has_pending(self) -> bool:
        return self._socket.pending() > 0

    def _events(self, what: int, wait_ms: int) -> list:
        once = select.poll()
        once.register(self._socket, what)
        return once.poll(wait_ms)

    def _next_address(self) -> None:
        """Connect to the next address that takes us: a name may have one of IPv6 where nobody listens."""
        while True:
            if not self._left:
                raise UnreachableError("nobody listens on %s; is the relay running?" % self._relay)
            address = self._left.pop(0)
            try:
                self._socket = socket.socket(address[0])
                self._socket.setblocking(False)
                self._socket.connect(address[-1])
            except OSError as error:
                if error.errno == errno.EINPROGRESS:
                    break
                self.close()
                if not self._left and error.errno != errno.ECONNREFUSED:
                    raise UnreachableError("cannot reach %s: %s" % (self._relay, error))
            else:
                break
        self._stage = _CONNECTING
        self._poll.register(self._socket, select.POLLOUT)

    def _connect(self) -> None:
        came = self._events(select.POLLOUT, 0)
        if not came:
            return
        if came[0][1] & (select.POLLERR | select.POLLHUP):
            self.close()
            self._next_address()
            return
        if hasattr(socket, "TCP_NODELAY"):
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poll.unregister(self._socket)
        self._left = ()
        self._stage = _OPEN
        if self._context is not None:
            self._stage = _SHAKING
            try:
                self._socket = self._context.wrap_socket(
                    self._socket, server_hostname=self._host, do_handshake_on_connect=False
                )
                self._socket.setblocking(False)
            except (OSError, ValueError) as error:
                raise error_of(self._relay, error)
            self._context = None
        self._poll.register(self._socket, select.POLLIN)

    def _handshake(self) -> None:
        try:
            if NATIVE:
                # There is no call for the handshake alone. As relays speak first, it is over when a byte has come.
                self._early = self._socket.read(1)
                if self._early is None:
                    return
            else:
                self._socket.do_handshake()
        except _BLOCKED:
            return
        except (OSError, ValueError) as error:
            raise error_of(self._relay, error)
        self._stage = _OPEN


def context_of(ca: bytes) -> object:
    """Return what trusts one authority alone; raises OSError or ValueError when that is no certificate in DER."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=ca)
    return context


def error_of(relay: str, error: Exception) -> Exception:
    """Return what an error of the TLS library means for people, or MemoryError where it has none left."""
    text = str(error)
    if "ALLOC" in text or getattr(error, "errno", 0) == errno.ENOMEM:
        return MemoryError()
    made = UntrustedError if "CERT" in text or "certificate" in text else UnreachableError
    return made(seldom("extensions", "untrusted" if made is UntrustedError else "unshaken", relay, text))
