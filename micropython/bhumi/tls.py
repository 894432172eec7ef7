"""The connection to a relay: TCP, or TLS whose only trusted authority is the one that is given.

The TLS handshake comes first and alone, because relays speak first, which trips MicroPython's own asynchronous
streams. It runs on a socket that does not block, in turns of at most
a second, so that a relay that stalls in the middle costs ``CONNECT_MS`` and no watchdog.
"""

import errno
import select
import socket
import ssl

from .port import NATIVE, ticks_diff, ticks_ms

__all__ = ["CONNECT_MS", "Link", "UnreachableError", "is_authority"]

CONNECT_MS = 10_000  # for connecting and the handshake together; a name lookup has the system's own limits
_WRITE_MS = 10_000
_TURN_MS = 1000  # how long a watchdog is left alone

_BLOCKED = () if NATIVE else (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class UnreachableError(Exception):
    """There is no connection; the text says why in words for people."""


def is_authority(ca: bytes) -> bool:
    """Return whether these bytes are a certificate in DER."""
    try:
        _context(ca)
    except (OSError, ValueError):
        return False
    return True


class Link:
    """A connection that stands; ``poll`` before ``read_into``."""

    def __init__(self, relay: str, host: str, port: int, ca: bytes, feed: object) -> None:
        """Connect; blocks for at most ``CONNECT_MS`` behind the name lookup.

        Args:
            relay: The address as people wrote it, for sentences.
            host: Name or address; with TLS the certificate must name it.
            port: TCP port.
            ca: Certificate of the one authority to trust, in DER; None for a connection without TLS.
            feed: Called at least every second.

        Raises:
            UnreachableError: There is no such host, nobody listens, or it is not the relay that it should be.
        """
        self._relay = relay
        self._feed = feed
        self._poll = select.poll()
        self._early = None
        feed()
        try:
            found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
        except OSError:
            raise UnreachableError("cannot find the host of " + relay)
        begun = ticks_ms()
        try:
            self._connect_one(found, begun)
            if ca is not None:
                self._handshake(host, ca, begun)
        except BaseException:
            self.close()
            raise
        self._poll.register(self._socket, select.POLLIN)

    def poll(self, wait_ms: int) -> bool:
        """Return whether something can be read, waiting at most so long."""
        return bool(self._early) or self._pending() or bool(self._poll.poll(wait_ms))

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
            self._wait(select.POLLOUT)

    def close(self) -> None:
        """End the connection; may be called twice."""
        try:
            self._socket.close()
        except OSError:  # it was reset
            pass

    def _pending(self) -> bool:
        return not NATIVE and isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _wait(self, what: int) -> list:
        once = select.poll()
        once.register(self._socket, what)
        return once.poll(_TURN_MS)

    def _connect_one(self, found: list, begun: int) -> None:
        """Connect to the first address that takes us: a name may have one of IPv6 where nobody listens."""
        for number, address in enumerate(found):
            try:
                self._socket = socket.socket(address[0])
            except OSError as error:  # a machine without this kind of address
                if number + 1 == len(found):
                    raise UnreachableError("cannot reach %s: %s" % (self._relay, error))
                continue
            try:
                self._connect(address[-1], begun)
            except UnreachableError:
                self.close()
                if number + 1 == len(found) or ticks_diff(ticks_ms(), begun) > CONNECT_MS:
                    raise
            else:
                return

    def _connect(self, address: object, begun: int) -> None:
        refused = "nobody listens on %s; is the relay running?" % self._relay
        self._socket.setblocking(False)
        try:
            self._socket.connect(address)
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:
                raise UnreachableError(refused)
            if error.errno != errno.EINPROGRESS:
                raise UnreachableError("cannot reach %s: %s" % (self._relay, error))
        while True:
            self._feed()
            came = self._wait(select.POLLOUT)
            if came:
                if came[0][1] & (select.POLLERR | select.POLLHUP):
                    raise UnreachableError(refused)
                break
            self._check_time(begun)
        if hasattr(socket, "TCP_NODELAY"):
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _handshake(self, host: str, ca: bytes, begun: int) -> None:
        try:
            self._socket = _context(ca).wrap_socket(self._socket, server_hostname=host, do_handshake_on_connect=False)
            self._socket.setblocking(False)
            while not self._shake():
                self._feed()
                self._wait(select.POLLIN)
                self._check_time(begun)
        except (OSError, ValueError) as error:
            raise UnreachableError(_sentence(self._relay, error))

    def _shake(self) -> bool:
        """Go on with the handshake; return whether it is complete."""
        if NATIVE:
            # There is no call for the handshake alone. As relays speak first, it is over when the first byte has come.
            self._early = self._socket.read(1)
            return self._early is not None
        try:
            self._socket.do_handshake()
        except _BLOCKED:
            return False
        return True

    def _check_time(self, begun: int) -> None:
        if ticks_diff(ticks_ms(), begun) > CONNECT_MS:
            raise UnreachableError("%s did not answer within %d s" % (self._relay, CONNECT_MS // 1000))


def _context(ca: bytes) -> object:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=ca)
    return context


def _sentence(relay: str, error: Exception) -> str:
    text = str(error)
    if "CERT" in text or "certificate" in text:
        return "%s shows a certificate that is not trusted, or not made for this name" % relay
    return "%s did not complete the TLS handshake (%s); is it a plain tcp:// listener?" % (relay, text)
