"""One UDP port: it delivers all datagrams of one read as a list, and sends a list at once.

``server.listeners`` opens one for LPRP and passes what arrives to the hub. No network error raises: an ICMP error, a
missing route and a full kernel buffer are only counted (LPRP-ICMP). Addresses are (host, port) pairs for both families.
An IPv4 host is "192.0.2.1" even on a dual-stack socket. A link-local IPv6 host includes its zone, "fe80::1%2".

A port on every address of this machine hands over a ``ReturnAddress``: what is sent to that object leaves from the
address of ours that was asked (NODE-PKTINFO). That needs Linux; elsewhere routing selects the address.
"""

import asyncio
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from waystation.core.effects import Address, Datagram
from waystation.core.errors import HostError
from waystation.transport.addresses import IPV4_MAPPED, resolve_place, shown_host
from waystation.transport.datagrams.send_queue import SendQueue
from waystation.transport.listen import why_not_bound

__all__ = [
    "BUFFER_BYTES",
    "DATAGRAMS_PER_LOOK",
    "DATAGRAM_BYTES_MAX",
    "ReturnAddress",
    "UdpCounts",
    "UdpSocket",
    "widen_buffers",
]

DATAGRAM_BYTES_MAX: Final = 2_048
"""A longer datagram arrives cut to this many bytes, still longer than anything that may be sent to us."""
DATAGRAMS_PER_LOOK: Final = 256  # half a millisecond, so that a flood cannot keep the loop from its other peers
BUFFER_BYTES: Final = 4_194_304  # asked of the kernel each way: 5,000 datagrams with what it adds; it may give less
_EXIT_PORT: Final = 4
_EVERY_IPV4: Final = "0.0.0.0"  # noqa: S104 - compared with, not bound
_EVERY_IPV6: Final = "::"
_IP_PKTINFO: Final = 8  # ip(7); the socket module of Python 3.11 does not name it
_PKTINFO_V4: Final = struct.Struct("=I4s4s")  # interface, address of ours, address in the header
_PKTINFO_V6: Final = struct.Struct("=16sI")  # address of ours, interface
_CONTROL_BYTES: Final = 64  # either of them with its header
_LINK_LOCAL: Final = b"\xfe\x80"
_WAYS_MAX: Final = 1_024
"""Addresses of ours that are remembered; a machine with a whole routed network may have any number."""

_Way = tuple[tuple[int, int, bytes], ...]
"""Control message that has a datagram leave from one address of ours."""


class ReturnAddress(tuple[str, int]):  # noqa: SLOT001 - a tuple takes no slot, and a plain pair must equal it
    """Where a datagram came from, and which address of ours it came to; equal to the plain ``Address``."""

    way: _Way
    """For the socket that made it."""


class UdpCounts(NamedTuple):
    """What one port has seen since it was opened."""

    received: int
    """Datagrams that arrived."""
    sent: int
    """Datagrams that the kernel took."""
    waiting: int
    """Datagrams that wait for room in the kernel now."""
    dropped: int
    """Datagrams for which there was no room."""
    failed: int
    """Datagrams that the kernel refused, and complaints about earlier ones."""


class UdpSocket:
    """One bound UDP port."""

    def __init__(self, on_datagrams: Callable[[list[Datagram]], None]) -> None:
        """Describe a port; ``open`` binds it.

        Args:
            on_datagrams: Gets 1 to ``DATAGRAMS_PER_LOOK`` datagrams at a time, in their order, each of at most
                ``DATAGRAM_BYTES_MAX`` bytes.
        """
        self._on_datagrams = on_datagrams
        self._socket: socket.socket | None = None
        self._out: SendQueue[Datagram] | None = None
        self._has_zones = False
        self._ways: dict[bytes, _Way] | None = None
        """By what the kernel says about the address of ours; None when there is only one."""
        self._received = 0
        self._failed = 0
        self.host = ""
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        """Bind and begin to read; port 0 takes a free one, ``port`` then says which. "*" and "::" take both families.

        Raises:
            HostError: The port is taken or not ours to take (exit code 4).
        """
        loop = asyncio.get_running_loop()
        try:
            family, address = await resolve_place(host, port, socket.SOCK_DGRAM)
            self._socket = _bound(family, address)
        except (OSError, OverflowError) as error:
            raise HostError(f"cannot listen on {host}:{port}: {why_not_bound(error)}", exit_code=_EXIT_PORT) from error
        self._has_zones = family == socket.AF_INET6
        if sys.platform == "linux" and address[0] in (_EVERY_IPV4, _EVERY_IPV6):
            self._ways = {}
        bound, self.port = self._socket.getsockname()[:2]
        self.host = shown_host(host, bound)
        self._out = self._queue(self._socket)
        loop.add_reader(self._socket, self._read_some)

    def send(self, datagrams: Sequence[Datagram]) -> None:
        """Send all at once; what the kernel has no room for waits within ``WAITING_MAX`` or is dropped."""
        if self._out is not None and self._socket is not None:
            self._out.send(datagrams)

    def close(self) -> None:
        """Neither read nor send any more."""
        if self._socket is not None and self._out is not None:
            self._out.close()
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def counts(self) -> UdpCounts:
        """Return what happened so far, after ``close`` too."""
        out = self._out
        if out is None:
            return UdpCounts(0, 0, 0, 0, 0)
        return UdpCounts(self._received, out.sent, len(out.waiting), out.dropped, self._failed + out.failed)

    def _queue(self, carrier: socket.socket) -> SendQueue[Datagram]:
        sendto, sendmsg = carrier.sendto, carrier.sendmsg
        has_zones = self._has_zones

        def emit(datagram: Datagram) -> None:
            data, address = datagram
            place = _as_ipv6(address) if has_zones else address
            if type(address) is ReturnAddress:
                sendmsg((data,), address.way, 0, place)
            else:
                sendto(data, place)

        if self._ways is not None:
            return SendQueue(carrier, emit)
        if has_zones:
            return SendQueue(carrier, lambda datagram: sendto(datagram[0], _as_ipv6(datagram[1])))
        return SendQueue(carrier, lambda datagram: sendto(*datagram))

    def _read_some(self) -> None:
        assert self._socket is not None
        datagrams: list[Any] = []
        try:
            if self._ways is None:
                receive = self._socket.recvfrom
                for _ in range(DATAGRAMS_PER_LOOK):
                    datagrams.append(receive(DATAGRAM_BYTES_MAX))  # noqa: PERF401 - those before an error must be kept
            else:
                receive_all = self._socket.recvmsg
                for _ in range(DATAGRAMS_PER_LOOK):
                    datagrams.append(receive_all(DATAGRAM_BYTES_MAX, _CONTROL_BYTES))  # noqa: PERF401 - likewise
        except BlockingIOError:
            pass
        except OSError:  # an error about one that we sent; the datagrams after it are read next time
            self._failed += 1
        if not datagrams:
            return
        self._received += len(datagrams)
        if self._ways is not None:
            datagrams = self._with_ways(datagrams)
        elif self._has_zones:
            datagrams = [(data, _as_pair(*address)) for data, address in datagrams]
        self._on_datagrams(datagrams)

    def _with_ways(self, received: list[Any]) -> list[Datagram]:
        """Return datagrams as ``recvmsg`` gave them, each with the address that its answer goes to."""
        ways, has_zones = self._ways, self._has_zones
        assert ways is not None
        datagrams: list[Datagram] = []
        for data, control, _flags, place in received:
            address = ReturnAddress(_as_pair(*place) if has_zones else place)
            try:
                address.way = ways[control[0][2]]
            except (KeyError, IndexError):
                address.way = self._learn(control)
            datagrams.append((data, address))
        return datagrams

    def _learn(self, control: list[tuple[int, int, bytes]]) -> _Way:
        """Return, and remember, what an answer says to the kernel; no control message means that routing decides."""
        if not control:
            return ()
        ways = self._ways
        assert ways is not None
        if len(ways) >= _WAYS_MAX:
            ways.clear()
        level, kind, info = control[0]
        way = ways[info] = ((level, kind, _leaving_from(info)),)
        return way


def widen_buffers(carrier: socket.socket) -> None:
    """Ask the kernel for ``BUFFER_BYTES`` each way; it gives what its administrator allows."""
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        carrier.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)


def _bound(family: int, address: Any) -> socket.socket:
    carrier = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if family == socket.AF_INET6:
            carrier.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address[0] != _EVERY_IPV6)
        if sys.platform == "linux" and address[0] == _EVERY_IPV6:
            carrier.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        elif sys.platform == "linux" and address[0] == _EVERY_IPV4:
            carrier.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        widen_buffers(carrier)
        carrier.setblocking(False)
        carrier.bind(address)
    except BaseException:
        carrier.close()
        raise
    return carrier


def _leaving_from(info: bytes) -> bytes:
    """Return what the kernel said of an incoming datagram as it is said of the answer: routing selects the interface.

    An address of one link keeps its interface, without which it names nothing.
    """
    if len(info) == _PKTINFO_V4.size:
        _, own, _ = _PKTINFO_V4.unpack(info)
        return _PKTINFO_V4.pack(0, own, bytes(4))
    own, interface = _PKTINFO_V6.unpack(info)
    return _PKTINFO_V6.pack(own, interface if own.startswith(_LINK_LOCAL) else 0)


def _as_pair(host: str, port: int, _flow: int, zone: int) -> Address:
    """Return the address of an IPv6 socket's datagram as everything but the kernel knows it."""
    if host.startswith(IPV4_MAPPED):
        return host[len(IPV4_MAPPED) :], port
    return f"{host}%{zone}" if zone else host, port


def _as_ipv6(address: Address) -> tuple[str, int, int, int]:
    """Return ``_as_pair`` undone."""
    host, port = address
    if ":" not in host:
        return IPV4_MAPPED + host, port, 0, 0
    bare, _, zone = host.partition("%")
    return bare, port, 0, int(zone or 0)
