"""What the tests of datagrams share: ports that remember, and a socket whose kernel buffer fills."""

import asyncio
import contextlib
import socket

from waystation.transport.datagrams.udp import BUFFER_BYTES, UdpSocket, widen_buffers

PATIENCE_S = 20


def _has_ipv6():
    """Return whether this machine has IPv6; where it has, the tests of it must hold."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _burst():
    """Return how many small datagrams the kernel's administrator lets one port hold: what comes faster is lost."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        widen_buffers(probe)
        return 5_000 if probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= BUFFER_BYTES else 200


HAS_IPV6 = _has_ipv6()
HOSTS = ("127.0.0.1", "::1") if HAS_IPV6 else ("127.0.0.1",)
BURST = _burst()


class Heard:
    """Remembers the datagrams of a port, and how many came in each look."""

    def __init__(self):
        self.datagrams = []
        self.looks = []
        self._changed = asyncio.Event()

    def __call__(self, datagrams):
        self.datagrams += datagrams
        self.looks.append(len(datagrams))
        self._changed.set()

    async def until(self, count):
        """Wait for so many datagrams in all and return what each carried."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.datagrams) < count:
                self._changed.clear()
                await self._changed.wait()
        return [data for data, _ in self.datagrams]


@contextlib.asynccontextmanager
async def port(host="127.0.0.1", kind=UdpSocket):
    """Give an open port and what it hears."""
    heard = Heard()
    opened = kind(heard)
    await opened.open(host, 0)
    try:
        yield opened, heard
    finally:
        opened.close()


def address_of(opened):
    """Return where a port is reached."""
    return opened.host, opened.port


def full_pair():
    """Return two connected sockets of datagrams, the first without room to send into the second.

    UDP over loopback never waits: what a receiver has no room for is lost. Sockets of one host's files do.
    """
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    near.setblocking(False)
    far.setblocking(False)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            near.send(b"%d" % count)
            count += 1
    return near, far, count


def drain(far):
    """Return everything that waits in a socket."""
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(far.recv(2_048))
    return found


async def turns(holds):
    """Let the loop turn until ``holds`` is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)
