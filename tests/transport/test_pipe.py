"""Laws of transport.pipe, over real sockets."""

import asyncio
import contextlib
import datetime
import hashlib
import socket
import ssl

import pytest

from waystation.crypto.certificates import make_local_certificates
from waystation.transport.dial import dial
from waystation.transport.listen import Listener
from waystation.transport.pipe import Pipe
from waystation.transport.tls import client_context, leaf_sha256, server_context

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
        async with asyncio.timeout(20):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


class SmallListener(Listener):
    """A listener whose connections have small kernel buffers, so that a slow reader is felt soon."""

    def _greet(self, accepted, host):
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        super()._greet(accepted, host)


class HalfSink(Sink):
    """One that answers the other side's end with its last words, and may want to stay."""

    def __init__(self, *, stays=True):
        super().__init__()
        self._stays = stays

    def half_closed(self, pipe):
        pipe.write([b"last words"])
        self._note("half_closed")
        return self._stays


@contextlib.asynccontextmanager
async def connection(listener_class=Listener, sink=None, context=None):
    """Give a sink with a pipe that stands (without TLS), and the other side as a bare non-blocking socket."""
    sink = sink or Sink()
    listener = listener_class(sink, lambda _: True, lambda _: None, context)
    await listener.open("127.0.0.1", 0)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        other.setblocking(False)
        await asyncio.get_running_loop().sock_connect(other, ("127.0.0.1", listener.port))
        if context is None:
            await sink.until(lambda: sink.pipe is not None)
        try:
            yield sink, other
        finally:
            if sink.pipe is not None:
                sink.pipe.abort()
            listener.close()


async def read(other, size):
    """Read exactly ``size`` bytes."""
    data = b""
    async with asyncio.timeout(20):
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


def test_pipe_stays_open_behind_the_other_sides_half():
    """What is written after the other side's end arrives, also later, and reading is neither paused nor resumed."""

    async def story():
        async with connection(sink=HalfSink()) as (sink, other):
            other.shutdown(socket.SHUT_WR)
            heard = await read(other, len(b"last words"))
            sink.pipe.pause()
            sink.pipe.resume()
            sink.pipe.write([b" and more"])
            heard += await read(other, len(b" and more"))
            before = list(sink.reports)
            sink.pipe.close()
            end = await asyncio.get_running_loop().sock_recv(other, 1)
            await sink.until(lambda: "lost" in sink.reports)
            return heard, end, before

    assert asyncio.run(story()) == (b"last words and more", b"", ["connected", "half_closed"])


@pytest.mark.parametrize("sink", [Sink, lambda: HalfSink(stays=False)])
def test_pipe_ends_with_the_other_sides_half(sink):
    """A sink that does not hear of it, or does not want to stay, loses the pipe; what was written leaves."""

    async def story():
        async with connection(sink=sink()) as (sunk, other):
            other.shutdown(socket.SHUT_WR)
            await sunk.until(lambda: "lost" in sunk.reports)
            return await asyncio.get_running_loop().sock_recv(other, 100), sunk.reports

    said, reports = asyncio.run(story())

    assert said == (b"last words" if "half_closed" in reports else b"")
    assert reports[-1] == "lost"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Certificates for localhost."""
    path = tmp_path_factory.mktemp("tls")
    made = make_local_certificates(["localhost", "127.0.0.1"], datetime.datetime.now(datetime.UTC))
    for name, pem in (("ca", made.ca_pem), ("cert", made.cert_pem), ("key", made.key_pem)):
        (path / name).write_bytes(pem)
    return path


class Client:
    """TLS over a bare socket by hand, so that it can end its half alone."""

    def __init__(self, other):
        self._other = other
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = client_context(verify=False).wrap_bio(self._incoming, self._outgoing)

    async def _do(self, act):
        loop = asyncio.get_running_loop()
        while True:
            try:
                return act()
            except ssl.SSLWantReadError:
                await loop.sock_sendall(self._other, self._outgoing.read())
                self._incoming.write(await loop.sock_recv(self._other, 65_536) or self._incoming.write_eof() or b"")

    async def shake_hands(self):
        await self._do(self._tls.do_handshake)
        await asyncio.get_running_loop().sock_sendall(self._other, self._outgoing.read())

    async def end_half(self):
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        await asyncio.get_running_loop().sock_sendall(self._other, self._outgoing.read())

    async def read(self):
        async with asyncio.timeout(20):
            return await self._do(lambda: self._tls.read(100))


def test_tls_pipe_says_its_last_words_behind_the_other_sides_half(folder):
    """Over TLS the pipe is lost right behind the word of the end, but what was written until then leaves."""

    async def story():
        context = server_context(folder / "cert", folder / "key")
        async with connection(sink=HalfSink(), context=context) as (sink, other):
            client = Client(other)
            await client.shake_hands()
            await sink.until(lambda: sink.pipe is not None)
            await client.end_half()
            heard = await client.read()
            await sink.until(lambda: "half_closed" in sink.reports)
            other.close()
            await sink.until(lambda: "lost" in sink.reports)
            return heard, sink.reports

    assert asyncio.run(story()) == (b"last words", ["connected", "half_closed", "lost"])


def test_certificate_is_known_to_who_dialled(folder):
    """Who dials learns the hash of the leaf that was shown; who was dialled, and who speaks in plain, learn nothing."""

    async def story(context):
        theirs, ours = Sink(), Sink()
        listener = Listener(theirs, lambda _: True, lambda _: None, context)
        await listener.open("127.0.0.1", 0)
        scheme = "tls" if context else "tcp"
        pipe = await dial(f"{scheme}://127.0.0.1:{listener.port}", ours, client_context(verify=False), 5)
        await theirs.until(lambda: theirs.pipe is not None)
        facts = pipe.certificate_sha256, theirs.pipe.certificate_sha256, pipe.is_tls, theirs.pipe.is_tls
        pipe.close()
        await ours.until(lambda: "lost" in ours.reports)
        listener.close()
        return *facts, pipe.certificate_sha256

    shown = hashlib.sha256(ssl.PEM_cert_to_DER_cert((folder / "cert").read_text().partition("\n\n")[0])).digest()

    assert shown == leaf_sha256(folder / "cert")
    assert asyncio.run(story(server_context(folder / "cert", folder / "key"))) == (shown, b"", True, True, b"")
    assert asyncio.run(story(None)) == (b"", b"", False, False, b"")


class HastySink(Sink):
    """One that changes a pipe in the call that gives it."""

    def __init__(self, change):
        super().__init__()
        self._change = change

    def connected(self, pipe):
        super().connected(pipe)
        self.descriptor = pipe._transport.get_extra_info("socket").fileno()
        self._change(pipe)


@pytest.mark.parametrize("end", [Pipe.close, Pipe.abort])
def test_pipe_that_is_closed_at_once_leaves_no_descriptor_with_the_loop(end):
    """Else the next connection that gets the same number is never read."""

    async def story():
        async with connection(sink=HastySink(end)) as (sink, _):
            await sink.until(lambda: sink.reports == ["connected", "lost"])
            return asyncio.get_running_loop().remove_reader(sink.descriptor)

    assert asyncio.run(story()) is False


def test_pipe_that_is_paused_at_once_does_not_read():
    """What arrives meanwhile stays in the kernel until the pipe is resumed."""

    async def story():
        async with connection(sink=HastySink(Pipe.pause)) as (sink, other):
            await asyncio.get_running_loop().sock_sendall(other, b"early")
            async with connection() as (later, beside):  # by its turns the loop had time to read
                await asyncio.get_running_loop().sock_sendall(beside, b"on time")
                await later.until(lambda: later.heard == b"on time")
            held = sink.heard
            sink.pipe.resume()
            await sink.until(lambda: sink.heard == b"early")
            return held

    assert asyncio.run(story()) == b""
