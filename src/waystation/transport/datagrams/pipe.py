"""A UDP pipe to one address: each chunk written is one datagram, each ``received`` call has one.

LPRP clients dial their host with it. There is no handshake, so the pipe is established as soon as its socket has an
address. ICMP errors (port unreachable) do not close it, because they may be forged or temporary; ``complaints`` counts
them. While nothing was received, one moves a pipe to the next address of a name that has several (LPRP-FAMILY).
"""

import asyncio
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from waystation.transport.datagrams.send_queue import SendQueue
from waystation.transport.datagrams.udp import DATAGRAM_BYTES_MAX, DATAGRAMS_PER_LOOK, widen_buffers
from waystation.transport.pipe import Pipe, Sink

__all__ = ["UdpPipe", "connect_udp"]

_NO_ADDRESS: Final = "the name has no address"
_PLACES_MAX: Final = 8  # a name server may list any number

_Place = tuple[int, Any]
"""Address family and socket address."""


class UdpPipe(Pipe):
    """One connected UDP socket."""

    __slots__ = ("_carrier", "_closing", "_loop", "_others", "_out", "complaints")

    def __init__(self, sink: Sink, address: str, carrier: socket.socket, others: Sequence[_Place] = ()) -> None:
        """Make a pipe that reports to ``sink``; ``establish`` begins.

        Args:
            sink: Gets whole datagrams of at most ``DATAGRAM_BYTES_MAX`` bytes; longer ones arrive cut.
            address: The other side's host.
            carrier: Connected and non-blocking; the pipe closes it.
            others: Where else the host may be, the next first.
        """
        super().__init__(sink, address)
        self._carrier: socket.socket | None = carrier
        self._loop = asyncio.get_running_loop()
        self._out: SendQueue[bytes] = SendQueue(carrier, carrier.send, self._on_drained)
        self._others = deque(others)
        self._closing = False
        self.complaints = 0
        """How often the kernel reported that an earlier datagram did not arrive."""

    def establish(self) -> None:
        """Report ``connected`` and begin to read."""
        assert self._carrier is not None
        self._loop.add_reader(self._carrier, self._read_some)
        self.is_established = True
        self._sink.connected(self)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait in this process."""
        return sum(map(len, self._out.waiting))

    @property
    def untaken_bytes(self) -> int:
        """Bytes that wait in this process: what left it is the network's."""
        return self.unsent_bytes

    @property
    def dropped(self) -> int:
        """Datagrams that never left this host, for want of room or of a way."""
        return self._out.dropped + self._out.failed

    def write(self, chunks: Sequence[bytes]) -> None:
        """Send each chunk as one datagram; what the kernel has no room for waits in a bounded queue or is dropped."""
        if self._carrier is None or self._closing:
            return
        self._out.send(chunks)
        if self._out.waiting and not self.waits:
            self.waits = True
            self._sink.congested(self)

    def pause(self) -> None:
        """Stop reading; what the kernel has no room for meanwhile is lost."""
        if self._carrier is not None:
            self._loop.remove_reader(self._carrier)

    def resume(self) -> None:
        """Go on reading."""
        if self._carrier is not None and not self._closing:
            self._loop.add_reader(self._carrier, self._read_some)

    def close(self, status: int = 0) -> None:  # noqa: ARG002 - datagrams have no closing handshake
        """Close once everything written has left; see ``Pipe.close``."""
        if self._carrier is None:
            return
        self._closing = True
        self._loop.remove_reader(self._carrier)
        if not self._out.waiting:
            self._finish()

    def abort(self) -> None:
        """Close at once and drop what waits."""
        if self._carrier is not None:
            self._loop.remove_reader(self._carrier)
            self._finish()

    def _finish(self) -> None:
        assert self._carrier is not None
        self._out.close()
        self._carrier.close()
        self._carrier = None
        self._loop.call_soon(self._sink.lost, self, None)

    def _read_some(self) -> None:
        carrier = self._carrier
        for _ in range(DATAGRAMS_PER_LOOK):
            if carrier is None:
                return
            try:
                data = carrier.recv(DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return
            except OSError:  # ICMP; the next datagram may be received
                self.complaints += 1
                self._move_on(carrier)
                return
            self._others.clear()
            self._sink.received(self, data)
            carrier = self._carrier if not self._closing else None

    def _move_on(self, refused: socket.socket) -> None:
        """Go on at the next address of the host, and put the one that refused behind the others.

        It stays where it is while datagrams wait: those are for the address that was refused only now.
        """
        if not self._others or self._out.waiting:
            return
        family, address = self._others.popleft()
        self._others.append((refused.family, refused.getpeername()))
        try:
            carrier = _connected(family, address)
        except OSError:  # no route there; the next complaint tries another one
            return
        self._loop.remove_reader(refused)
        refused.close()
        self._carrier = carrier
        self._out.use(carrier, carrier.send)
        self._loop.add_reader(carrier, self._read_some)

    def _on_drained(self) -> None:
        self.waits = False
        if self._closing:
            self._finish()
        else:
            self._sink.drained(self)


async def connect_udp(host: str, port: int, sink: Sink) -> UdpPipe:
    """Return a pipe to ``host``, which has reported ``connected`` to its sink by then.

    Of several addresses IPv4 comes first: a silent one gives no sign to fall back on (LPRP-FAMILY). One without a route
    is passed over, and one where nobody listens is left for the next.

    Raises:
        OSError: The name has no address, or none that anybody routes to.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    failure = OSError(_NO_ADDRESS)
    places = [(family, address) for family, _, _, _, address in found[:_PLACES_MAX]]
    places.sort(key=lambda place: place[0] != socket.AF_INET)
    for index, (family, address) in enumerate(places):
        try:
            carrier = _connected(family, address)
        except OSError as error:
            failure = error
            continue
        pipe = UdpPipe(sink, host, carrier, places[index + 1 :] + places[:index])
        pipe.establish()
        return pipe
    raise failure


def _connected(family: int, address: Any) -> socket.socket:
    carrier = socket.socket(family, socket.SOCK_DGRAM)
    try:
        widen_buffers(carrier)
        carrier.setblocking(False)
        carrier.connect(address)
    except BaseException:
        carrier.close()
        raise
    return carrier
