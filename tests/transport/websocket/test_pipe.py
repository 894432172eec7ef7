"""Laws of transport.websocket_pipe, over real sockets, with the `websockets` library as the independent peer."""

import asyncio
import contextlib
import random

import pytest
import uvloop
import websockets
from websockets.frames import Close

from tests.transport.build import PATIENCE_S, Sink, certificates, connect, frame, run
from waystation.transport.tls import client_context, server_context
from waystation.transport.websocket.site import Endpoint

LIMIT = 10_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Certificates for localhost."""
    return certificates(tmp_path_factory.mktemp("tls"))


async def status_of(client):
    """Read until the other side closes; return status and reason of its Close frame."""
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                await client.recv()
    return client.close_code


async def frames_after(site, data, path="/quiet"):
    """Shake hands by hand, send bytes, and return everything the site says until it ends the connection."""
    reader, writer, _ = await site.upgrade(path)
    writer.write(data)
    said = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE_S):
            while not said:
                said = await reader.read(4_096)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return said


def close_frame(status):
    """Return a server's Close frame without a reason."""
    return b"\x88\x02" + status.to_bytes(2, "big")


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 1_000_000])
def test_text_comes_back_whole(size, loop_factory):
    """A message of any length class arrives as it was sent, once, and its echo too."""
    text = "x" * size

    async def story(site):
        async with connect(site) as client:
            await client.send(text)
            return await client.recv() == text, [len(data) for data in site.sink.heard]

    assert run(story, loop_factory) == (True, [size])


def test_binary_endpoint_speaks_binary():
    """What a binary endpoint writes are binary frames."""

    async def story(site):
        async with connect(site, "/binary") as client:
            await client.send(b"\x00\xff")
            return await client.recv(), site.binary.heard

    assert run(story) == (b"\x00\xff", [b"\x00\xff"])


@pytest.mark.parametrize("message", [b"bytes", [b"by", b"tes"]])
def test_binary_for_a_text_endpoint_arrives_empty(message):
    """Binary is the text machine's to refuse: it gets the empty message."""

    async def story(site):
        async with connect(site, "/quiet") as client:
            await client.send(message)
            await site.quiet.until(lambda: site.quiet.heard)
            return site.quiet.heard

    assert run(story) == [b""]


@pytest.mark.parametrize("message", ["text", ["te", "xt"], ""])
def test_text_for_a_binary_endpoint_closes_with_1003(message):
    """A binary machine never sees text, not even an empty one, nor what comes behind it."""

    async def story(site):
        async with connect(site, "/binary") as client:
            await client.send(message)
            await client.send(b"behind it")
            return await status_of(client), site.binary.heard

    assert run(story) == (1003, [])


def test_empty_binary_message_arrives():
    """A message of no bytes is a message: what it means is the machine's to say."""

    async def story(site):
        async with connect(site, "/binary") as client:
            await client.send(b"")
            return await client.recv(), site.binary.heard

    assert run(story) == (b"", [b""])


def test_each_endpoint_has_its_own_limit():
    """One frame that another endpoint of the site would take is too large here, and nothing of it is delivered."""

    async def story(site):
        async with connect(site, "/small") as small, connect(site, "/binary") as large:
            await small.send(bytes(101))
            await large.send(bytes(101))
            return await status_of(small), await large.recv()

    small = Sink()

    assert run(story, more={"/small": Endpoint(small, text=False, message_bytes_max=100)}) == (1009, bytes(101))
    assert small.heard == []


def test_bad_utf8_is_passed_through():
    """Whether text is UTF-8 is not for this room to judge."""

    async def story(site):
        await frames_after(site, frame(0x81, b"\xff\xfe") + frame(0x88))
        return site.quiet.heard

    assert run(story) == [b"\xff\xfe"]


@pytest.mark.parametrize("seed", range(4))
def test_fragments_make_one_message(seed):
    """Fragments with pings between them, cut into any pieces on the wire, arrive as the message they are of."""
    rng = random.Random(seed)
    words = [rng.randbytes(rng.choice((0, 1, 200, 70_000))) for _ in range(rng.randrange(2, 6))]
    wire = b"".join(
        frame((0x80 if number == len(words) - 1 else 0) | (0x00 if number else 0x01), word) + frame(0x89, b"ping")
        for number, word in enumerate(words)
    )

    async def story(site):
        _, writer, _ = await site.upgrade()
        position = 0
        while position < len(wire):
            step = rng.choice((1, 7, 4_096, 50_000))
            writer.write(wire[position : position + step])
            await writer.drain()
            await asyncio.sleep(0)
            position += step
        await site.quiet.until(lambda: site.quiet.heard)
        writer.close()
        return site.quiet.heard

    assert run(story) == [b"".join(words)]


@pytest.mark.parametrize(
    "message", ["x" * (LIMIT + 1), ["x" * (LIMIT - 10), "y" * 11], ["x" * 200] * (LIMIT // 200 + 1)]
)
def test_message_over_the_limit_closes_with_1009(message):
    """One frame or many, and nothing of it is delivered."""

    async def story(site):
        async with connect(site, "/quiet") as client:
            with contextlib.suppress(websockets.ConnectionClosed):
                await client.send(message)
            return await status_of(client), site.quiet.heard

    assert run(story, message_bytes_max=LIMIT) == (1009, [])


def test_message_at_the_limit_is_taken():
    """The limit itself is allowed, whole or in fragments."""

    async def story(site):
        async with connect(site, "/quiet") as client:
            await client.send("x" * LIMIT)
            await client.send(["x" * (LIMIT - 1), "y"])
            await site.quiet.until(lambda: len(site.quiet.heard) == 2)
            return [len(data) for data in site.quiet.heard]

    assert run(story, message_bytes_max=LIMIT) == [LIMIT, LIMIT]


@pytest.mark.parametrize(
    "wire",
    {
        "no mask": frame(0x81, b"x", masked=False),
        "first reserved bit": frame(0xC1, b"x"),
        "second reserved bit": frame(0xA1, b"x"),
        "third reserved bit": frame(0x91, b"x"),
        "reserved bit on a continuation": frame(0x01, b"x") + frame(0xC0, b"x"),
        "unknown opcode": frame(0x83, b"x"),
        "unknown control opcode": frame(0x8B, b"x"),
        "continuation of nothing": frame(0x80, b"x"),
        "text inside fragments": frame(0x01, b"x") + frame(0x81, b"x"),
        "binary inside fragments": frame(0x01, b"x") + frame(0x02, b"x"),
        "fragmented ping": frame(0x09, b"x"),
        "long ping": frame(0x89, b"x" * 126),
        "length that could be shorter": b"\x81\xfe\x00\x01",
        "negative length": b"\x81\xff\x80" + bytes(7),
        "close of one byte": frame(0x88, b"x"),
        "close with a forbidden status": frame(0x88, (1005).to_bytes(2, "big")),
    }.items(),
    ids=lambda case: case[0],
)
def test_broken_frame_closes_with_1002(wire):
    """Each breach of RFC 6455 5.2, 5.4 or 5.5 ends the connection with one Close frame, and delivers nothing."""

    async def story(site):
        said = await frames_after(site, wire[1])
        return said, site.quiet.heard

    said, heard = run(story)

    assert (said[:1], said[2:4], heard) == (b"\x88", b"\x03\xea", [])


def test_frames_behind_a_fault_are_dropped():
    """Once we have failed a connection nothing it says is delivered."""

    async def story(site):
        said = await frames_after(site, frame(0x80, b"x") + frame(0x81, b"late") + frame(0x89, b"ping"))
        await site.quiet.until(lambda: "lost" in site.quiet.reports)
        return said, site.quiet.heard

    assert run(story) == (close_frame(1002), [])


def test_many_messages_of_a_call_are_one_write(monkeypatch):
    """However many chunks a call has, they leave in one write, each as a message of its own."""
    sizes = [0, 1, 125, 126, 300, 65_535, 65_536]
    writes = []

    async def story(site):
        async with connect(site, "/quiet") as client:
            pipe = await site.quiet.stood()
            transport = pipe._transport
            pipe._transport = Counted(transport, writes)
            pipe.write([b"m" * size for size in sizes])
            pipe._transport = transport
            return [len(await client.recv()) for _ in sizes]

    assert run(story) == sizes
    assert len(writes) == 1


class Counted:
    """A transport that notes what is written through it."""

    def __init__(self, transport, writes):
        self._transport = transport
        self._writes = writes

    def write(self, data):
        self._writes.append(len(data))
        self._transport.write(data)


def test_messages_of_one_packet_arrive_in_order():
    """Many frames that come together are as many messages."""

    async def story(site):
        words = [b"%d" % number for number in range(500)]
        await frames_after(site, b"".join(frame(0x81, word) for word in words) + frame(0x88))
        return site.quiet.heard == words

    assert run(story)


@pytest.mark.parametrize(("status", "seen"), [(0, 1000), (1001, 1001), (1008, 1008), (1013, 1013), (4_321, 4_321)])
def test_close_status_reaches_the_client(status, seen):
    """The status of ``close`` is what the client sees, behind everything written before, and the end is told once."""

    async def story(site):
        async with connect(site, "/quiet") as client:
            await site.quiet.until(lambda: site.quiet.pipes)
            site.quiet.pipe.write([b"last"])
            site.quiet.pipe.close(status)
            site.quiet.pipe.write([b"too late"])
            last = await client.recv()
            code = await status_of(client)
            await site.quiet.until(lambda: "lost" in site.quiet.reports)
            return last, code, client.protocol.close_rcvd_then_sent, site.quiet.reports

    assert run(story) == ("last", seen, True, ["connected", "lost"])


@pytest.mark.parametrize(("status", "answer"), [(1000, 1000), (1001, 1001), (4_000, 4_000), (None, 1000)])
def test_close_of_the_client_is_answered(status, answer):
    """A client's Close frame gets its own status back, then the connection ends, and its sink is told."""
    payload = b"" if status is None else status.to_bytes(2, "big")

    async def story(site):
        said = await frames_after(site, frame(0x88, payload))
        await site.quiet.until(lambda: "lost" in site.quiet.reports)
        return said, site.quiet.reports

    assert run(story) == (close_frame(answer), ["connected", "lost"])


def test_closed_pipe_hears_nothing_more():
    """Between our Close frame and the client's, what the client says is dropped."""

    async def story(site):
        reader, writer, _ = await site.upgrade()
        site.quiet.pipe.close(1008)
        writer.write(frame(0x81, b"unheard") + frame(0x88, b"\x03\xe8"))
        async with asyncio.timeout(PATIENCE_S):
            said = await reader.read()
        writer.close()
        return said, site.quiet.heard

    assert run(story) == (close_frame(1008), [])


def test_slow_reader_congests_and_drains():
    """Bytes that wait are reported and counted; that none waits any more is reported, and every message arrives."""

    async def story(site):
        async with connect(site, "/quiet", max_queue=1) as client:
            pipe = await site.quiet.stood()
            client.transport.pause_reading()
            for _ in range(10):
                pipe.write([b"x" * 100_000])
            waiting = pipe.waits, pipe.unsent_bytes > 0
            client.transport.resume_reading()
            sizes = [len(await client.recv()) for _ in range(10)]
            await site.quiet.until(lambda: "drained" in site.quiet.reports)
            return waiting, set(sizes), pipe.unsent_bytes, list(site.quiet.reports)

    assert run(story, send_buffer_bytes=4_096) == (
        (True, True),
        {100_000},
        0,
        ["connected", "congested", "drained"],
    )


def test_paused_pipe_reads_nothing():
    """While paused no message arrives; after ``resume`` all of them do."""

    async def story(site):
        async with connect(site, "/quiet") as client, connect(site) as other:
            await site.quiet.until(lambda: site.quiet.pipes)
            site.quiet.pipe.pause()
            await client.send("early")
            await other.send("?")
            await other.recv()
            paused = list(site.quiet.heard)
            site.quiet.pipe.resume()
            await site.quiet.until(lambda: site.quiet.heard)
            return paused, site.quiet.heard

    assert run(story) == ([], [b"early"])


def test_aborted_pipe_is_lost_and_harmless():
    """After ``abort`` and ``lost`` every command does nothing."""

    async def story(site):
        async with connect(site, "/quiet") as client:
            pipe = await site.quiet.stood()
            pipe.abort()
            await site.quiet.until(lambda: "lost" in site.quiet.reports)
            for command in (pipe.pause, pipe.resume, pipe.close, pipe.abort, pipe.ping):
                command()
            pipe.write([b"x"])
            return await status_of(client), pipe.unsent_bytes, pipe.tls_version, site.quiet.reports

    assert run(story) == (1006, 0, "", ["connected", "lost"])


def test_client_that_vanishes_is_lost():
    """A connection that ends without a Close frame is told like any other."""

    async def story(site):
        _, writer, _ = await site.upgrade()
        writer.transport.abort()
        await site.quiet.until(lambda: "lost" in site.quiet.reports)
        return site.quiet.reports, site.released

    assert run(story) == (["connected", "lost"], [])


def test_tls(folder):
    """The same over TLS, with the address of the other side."""

    async def story(site):
        async with connect(site, ssl=client_context(folder / "ca")) as client:
            await client.send("secret")
            return await client.recv(), site.sink.pipe.tls_version, site.sink.pipe.address

    context = server_context(folder / "cert", folder / "key")

    assert run(story, context=context) == ("secret", "TLSv1.3", "127.0.0.1")


def test_close_frame_of_the_foreign_client_matches():
    """What the foreign client takes for our Close frame is exactly status and nothing else."""

    async def story(site):
        async with connect(site, "/quiet") as client:
            await site.quiet.until(lambda: site.quiet.pipes)
            site.quiet.pipe.close(1012)
            await status_of(client)
            return client.protocol.close_rcvd

    assert run(story) == Close(1012, "")
