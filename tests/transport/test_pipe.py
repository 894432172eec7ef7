"""Laws of transport.pipe, over real sockets."""

import asyncio
import contextlib
import socket

import pytest

from waystation.transport.listen import Listener

CHUNK = b"x" * 262_144


class Sink:
    """Remembers what its pipe reports, in order."""

    def __init__(self):
        self.pipe = None
        self.reports = []
        self.heard = b""
        self.unsent_when_drained = []
        self._changed = asyncio.Event()

    def connected(self, pipe):
        self.pipe = pipe
        self._note("connected")

    def received(self, pipe, data):
        self.heard += data
        self._note("received")

    def congested(self, pipe):
        self._note("congested")

    def drained(self, pipe):
        self.unsent_when_drained.append(pipe.unsent_bytes)
        self._note("drained")

    def lost(self, pipe, error):
        self._note("lost")

    def _note(self, report):
        self.reports.append(report)
        self._changed.set()

    async def until(self, holds):
        """Wait until a report makes ``holds`` true."""
        async with asyncio.timeout(5):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


class SmallListener(Listener):
    """A listener whose connections have small kernel buffers, so that a slow reader is felt soon."""

    def _greet(self, accepted, host):
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        super()._greet(accepted, host)


@contextlib.asynccontextmanager
async def connection(listener_class=Listener):
    """Give a sink with a pipe that stands, and the other side as a bare non-blocking socket."""
    sink = Sink()
    listener = listener_class(sink, lambda _: True, lambda _: None, None)
    await listener.open("127.0.0.1", 0)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        other.setblocking(False)
        await asyncio.get_running_loop().sock_connect(other, ("127.0.0.1", listener.port))
        await sink.until(lambda: sink.pipe is not None)
        try:
            yield sink, other
        finally:
            sink.pipe.abort()
            listener.close()


async def read(other, size):
    """Read exactly ``size`` bytes."""
    data = b""
    async with asyncio.timeout(5):
        while len(data) < size:
            piece = await asyncio.get_running_loop().sock_recv(other, size - len(data))
            assert piece, f"the end after {len(data)} bytes"
            data += piece
    return data


def test_small_write_never_congests():
    """What the kernel takes at once is not reported, and nothing is left unsent."""

    async def story():
        async with connection() as (sink, other):
            sink.pipe.write([b"a", b"b", b"c"])
            return sink.pipe.unsent_bytes, sink.pipe.waits, await read(other, 3), list(sink.reports)

    assert asyncio.run(story()) == (0, False, b"abc", ["connected"])


def test_reader_that_stops_congests_and_drains():
    """Bytes that wait are reported once and counted; that none waits any more is reported once, and not before."""

    async def story():
        async with connection(SmallListener) as (sink, other):
            for _ in range(8):
                sink.pipe.write([CHUNK])
            unsent, waits = sink.pipe.unsent_bytes, sink.pipe.waits
            await read(other, len(CHUNK))
            less = sink.pipe.unsent_bytes
            await read(other, 7 * len(CHUNK))
            await sink.until(lambda: "drained" in sink.reports)
            return unsent, waits, less, sink.unsent_when_drained, sink.pipe.waits, list(sink.reports)

    unsent, waits, less, left, waits_still, reports = asyncio.run(story())

    assert waits and 0 < less < unsent <= 8 * len(CHUNK)
    assert (left, waits_still) == ([0], False)
    assert reports == ["connected", "congested", "drained"]


def test_close_lets_written_bytes_leave():
    """``close`` behind a waiting write delivers all of it, then ends the connection."""

    async def story():
        async with connection(SmallListener) as (sink, other):
            sink.pipe.write([CHUNK, b"last"])
            sink.pipe.close()
            data = await read(other, len(CHUNK) + 4)
            end = await asyncio.get_running_loop().sock_recv(other, 1)
            await sink.until(lambda: "lost" in sink.reports)
            return data[-4:], end

    assert asyncio.run(story()) == (b"last", b"")


def test_abort_drops_what_waits():
    """``abort`` ends a connection whose reader has stopped without waiting for it."""

    async def story():
        async with connection(SmallListener) as (sink, _other):
            sink.pipe.write([CHUNK])
            sink.pipe.abort()
            await sink.until(lambda: "lost" in sink.reports)
            return sink.pipe.unsent_bytes

    assert asyncio.run(story()) == 0


def test_lost_pipe_swallows_writes():
    """After ``lost`` every command is harmless, and the pipe has no TLS and nothing unsent."""

    async def story():
        async with connection() as (sink, other):
            other.close()
            await sink.until(lambda: "lost" in sink.reports)
            for command in (sink.pipe.pause, sink.pipe.resume, sink.pipe.close, sink.pipe.abort):
                command()
            sink.pipe.write([b"x"])
            return sink.pipe.unsent_bytes, sink.pipe.tls_version, sink.reports

    assert asyncio.run(story()) == (0, "", ["connected", "lost"])


def test_paused_pipe_reads_nothing():
    """While paused no bytes arrive; after ``resume`` all of them do, in order."""

    async def story():
        async with connection() as (sink, other):
            loop = asyncio.get_running_loop()
            sink.pipe.pause()
            await loop.sock_sendall(other, b"early")
            # A round trip of another connection through the same selector: ours would have been read by now.
            async with connection() as (second, third):
                await loop.sock_sendall(third, b"?")
                await second.until(lambda: second.heard)
            paused = sink.heard
            sink.pipe.resume()
            await sink.until(lambda: sink.heard == b"early")
            return paused, sink.heard

    assert asyncio.run(story()) == (b"", b"early")


def test_address_is_the_other_host():
    """A pipe knows the host it came from; the owner may number it."""

    async def story():
        async with connection() as (sink, _other):
            return sink.pipe.address, sink.pipe.peer

    assert asyncio.run(story()) == ("127.0.0.1", -1)


@pytest.mark.parametrize("chunks", [[b"one"], [b"one", b"two"], [b"", b"x", b""]])
def test_chunks_leave_as_one(chunks):
    """All chunks of a call leave in their order."""

    async def story():
        async with connection() as (sink, other):
            sink.pipe.write(chunks)
            return await read(other, len(b"".join(chunks)))

    assert asyncio.run(story()) == b"".join(chunks)
