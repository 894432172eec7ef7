"""Laws of transport.websocket.dial: dialled pipes, against our own site and against the library's server."""

import asyncio
import contextlib
import gc
import random
import socket

import pytest
import uvloop
import websockets

from tests.transport.build import PATIENCE_S, Sink, certificates, run
from waystation.core.answers import HttpAnswer
from waystation.core.errors import HostError, LocalError
from waystation.transport.tls import client_context, server_context
from waystation.transport.websocket.dial import WebSocketDialler
from waystation.transport.websocket.liveness import LivenessTimeouts

LIMIT = 1_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Certificates for localhost."""
    return certificates(tmp_path_factory.mktemp("tls"))


async def dialled(url, context=None, timeouts=None, limit=LIMIT, *, text=False, **options):
    """Return a sink whose pipe goes to ``url``, and the dialler that dialled."""
    sink = Sink()
    dialler = WebSocketDialler(message_bytes_max=limit, text=text, context=context, timeouts=timeouts)
    await dialler.dial(url, sink, **options)
    return sink, dialler


@contextlib.asynccontextmanager
async def foreign(handler, **options):
    """Give the URL of the library's server."""
    async with asyncio.timeout(PATIENCE_S), websockets.serve(handler, "127.0.0.1", 0, **options) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def raw(site_says):
    """Return the URL of a server that says these bytes to whoever asks, and ends; and the server."""

    async def answer(reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(site_says)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/", server


@pytest.mark.parametrize(("status", "told"), [(1013, 1013), (4401, 4401), (0, 1000)])
def test_status_of_the_other_sides_close_is_kept(status, told):
    """Whoever dialled can say why it was turned away; what we close ourselves nobody has told us."""

    async def story(site):
        theirs, _ = await dialled(site.url("/binary"))
        (await site.binary.stood()).close(status)
        await theirs.until(lambda: "lost" in theirs.reports)
        ours, _ = await dialled(site.url("/binary"))
        ours.pipe.close(4401)
        await ours.until(lambda: "lost" in ours.reports)
        return theirs.pipe.received_status, ours.pipe.received_status, theirs.pipe.close_status, ours.pipe.close_status

    assert run(story) == (told, None, told, 4401)


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, LIMIT])
def test_binary_comes_back_whole(size, loop_factory):
    """A message of any length class reaches our own site as it was written, and its echo comes back."""
    message = random.Random(size).randbytes(size)

    async def story(site):
        sink, _ = await dialled(site.url("/binary"))
        sink.pipe.write([message])
        await sink.until(lambda: sink.heard)
        heard = (sink.heard, site.binary.heard, sink.pipe.address, sink.reports[0])
        sink.pipe.close()
        await sink.until(lambda: "lost" in sink.reports)
        return heard

    assert run(story, loop_factory) == ([message], [message], "127.0.0.1", "connected")


def test_many_messages_of_a_write_keep_their_order():
    """Each chunk is one message, whatever its neighbours are."""
    chunks = [bytes([number % 256]) * (number * 7) for number in range(300)]

    async def story(site):
        sink, _ = await dialled(site.url("/binary"))
        sink.pipe.write(chunks)
        await sink.until(lambda: len(sink.heard) == len(chunks))
        sink.pipe.abort()
        return sink.heard

    assert run(story) == chunks


def test_frames_are_masked_and_never_alike(monkeypatch):
    """The foreign server takes what we send; the same message twice is not the same bytes twice."""
    written = []

    async def echo(connection):
        async for message in connection:
            await connection.send(message)

    async def story():
        async with foreign(echo) as url:
            sink, _ = await dialled(url)
            transport = sink.pipe._transport
            sink.pipe._transport = Tap(transport, written)
            for _ in range(2):
                sink.pipe.write([b"hello"])
            sink.pipe._transport = transport
            await sink.until(lambda: len(sink.heard) == 2)
            sink.pipe.close(1001)
            await sink.until(lambda: "lost" in sink.reports)
            return sink.heard

    assert asyncio.run(story()) == [b"hello", b"hello"]
    assert all(frame[:2] == b"\x82\x85" and len(frame) == 11 for frame in written)
    assert written[0] != written[1]


class Tap:
    """A transport that keeps what is written."""

    def __init__(self, behind, written):
        self._behind = behind
        self._written = written

    def write(self, data):
        self._written.append(data)
        self._behind.write(data)


def test_ends_are_told_with_their_status():
    """Our status reaches the other side behind what was written; nothing written later does."""

    async def story(site):
        sink, dialler = await dialled(site.url("/binary"))
        sink.pipe.write([b"last"])
        sink.pipe.close(1013)
        sink.pipe.write([b"too late"])
        await sink.until(lambda: "lost" in sink.reports)
        await site.binary.until(lambda: "lost" in site.binary.reports)
        return site.binary.heard, sink.reports.count("lost"), len(dialler.sweep)

    assert run(story) == ([b"last"], 1, 0)


@pytest.mark.parametrize("how", ["close", "abort"])
def test_pipe_is_lost_with_the_other_side(how):
    """However the other side ends, the sink is told once, and every command is harmless then."""

    async def story(site):
        sink, _ = await dialled(site.url("/binary"))
        getattr(await site.binary.stood(), how)()
        await sink.until(lambda: "lost" in sink.reports)
        for command in (sink.pipe.pause, sink.pipe.resume, sink.pipe.close, sink.pipe.abort):
            command()
        sink.pipe.write([b"x"])
        return sink.reports

    assert run(story) == ["connected", "lost"]


@pytest.mark.parametrize(("message", "status"), [("text", 1003), (bytes(LIMIT + 1), 1009)])
def test_other_side_that_says_what_it_must_not_is_told(message, status):
    """Text and what is too large end the connection with their status, and are not handed over."""
    closed = []

    async def talk(connection):
        await connection.send(message)
        with contextlib.suppress(websockets.ConnectionClosed):
            await connection.recv()
        closed.append(connection.close_code)

    async def story():
        async with foreign(talk) as url:
            sink, _ = await dialled(url)
            await sink.until(lambda: "lost" in sink.reports)
            return sink.heard

    assert asyncio.run(story()) == []
    assert closed == [status]


def test_masked_frame_of_a_server_closes_with_1002():
    """A server must not mask (RFC 6455 5.1); its fault is no failure of ours that anybody must read about."""
    troubles = []

    async def story():
        asyncio.get_running_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))
        said = []

        async def talk(reader, writer):
            head = await reader.readuntil(b"\r\n\r\n")
            key = head.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0].decode()
            accept = websockets.utils.accept_key(key)
            writer.write(
                f"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
                "".encode()
            )
            writer.write(b"\x82\x81\x00\x00\x00\x00x")
            said.append(await reader.read(100))
            writer.close()

        async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
            sink, _ = await dialled(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
            await sink.until(lambda: "lost" in sink.reports)
        return sink.heard, said[0]

    heard, said = asyncio.run(story())
    gc.collect()

    assert (heard, troubles) == ([], [])
    mask = said[2:6]
    assert said[0] == 0x88 and bytes(said[6 + i] ^ mask[i] for i in range(2)) == b"\x03\xea"


def test_back_pressure_is_told():
    """While the other side does not read the sink hears ``congested``, and ``drained`` once it has read everything."""

    async def story(site):
        sink, _ = await dialled(site.url("/binary"))
        theirs = await site.binary.stood()
        theirs.pause()
        while not sink.pipe.waits:
            sink.pipe.write([bytes(100_000)])
        site.binary.echoes = False
        theirs.resume()
        await sink.until(lambda: "drained" in sink.reports)
        sink.pipe.abort()
        return sink.reports[:3]

    assert run(story) == ["connected", "congested", "drained"]


def test_large_message_leaves_no_large_buffer():
    """Behind a large message the read buffer is small again, and what follows is heard and answered."""

    async def story(site):
        sink, dialler = await dialled(site.url("/binary"))
        for _ in range(3):
            sink.pipe.write([bytes(LIMIT), b"small"])
        await sink.until(lambda: len(sink.heard) == 6)
        room = len(sink.pipe._transport.get_protocol().get_buffer(-1))
        sink.pipe.write([b"again"])
        await sink.until(lambda: len(sink.heard) == 7)
        here = len(dialler.sweep)
        sink.pipe.close()
        await sink.until(lambda: "lost" in sink.reports)
        return room < 65_536, sink.heard[-1], here, sink.reports.count("connected"), len(dialler.sweep)

    assert run(story) == (True, b"again", 1, 1, 0)


def test_silent_server_is_pinged_and_cut():
    """Who stands and says nothing for long is asked, and gone when nothing comes; a server that answers stays."""

    async def story(site):
        timeouts = LivenessTimeouts(0.03, 0.03)
        answers, _ = await dialled(site.url("/binary"), timeouts=timeouts)
        silent, _ = await dialled(site.url("/binary"), timeouts=timeouts)
        site.binary.pipes[1].pause()
        await silent.until(lambda: "lost" in silent.reports)
        stays = "lost" not in answers.reports
        answers.pipe.abort()
        return stays

    assert run(story)


def test_wss_proves_the_name_of_a_given_address(folder):
    """With an address to connect to, the certificate must still be that of the host in the URL."""
    context = server_context(folder / "cert", folder / "key")

    async def story(site):
        port, trusted = site.listener.port, client_context(folder / "ca")
        sink, _ = await dialled(f"wss://localhost:{port}/binary", trusted, addresses=["127.0.0.1"])
        sink.pipe.write([b"hello"])
        await sink.until(lambda: sink.heard)
        sink.pipe.abort()
        with pytest.raises(HostError, match="certificate that is not trusted"):
            await dialled(f"wss://relay.example.org:{port}/binary", trusted, addresses=["127.0.0.1"])
        with pytest.raises(HostError, match="certificate that is not trusted"):
            await dialled(f"wss://localhost:{port}/binary", addresses=["127.0.0.1"])
        dialler = WebSocketDialler(message_bytes_max=LIMIT, authority="merk.peers_ca")
        with pytest.raises(HostError, match=r"name its authority with merk\.peers_ca$"):
            await dialler.dial(f"wss://localhost:{port}/binary", sink)
        assert {trouble["message"] for trouble in site.troubles} <= {"SSL handshake failed"}
        site.troubles.clear()  # aiofastnet tells the loop of each; the node's handler knows them
        return sink.heard

    assert run(story, context=context) == [b"hello"]


def test_given_address_is_dialled_and_no_other():
    """The name in the URL is not looked up: it is told to the server, and nothing else."""

    async def story(site):
        sink, _ = await dialled(f"ws://no.such.name.invalid:{site.listener.port}/binary", addresses=["127.0.0.1"])
        sink.pipe.abort()
        return sink.pipe.address

    assert run(story) == "no.such.name.invalid"


def test_next_address_is_tried():
    """An address where nobody listens does not hide the next one; when all fail the first reason is told."""

    async def story(site):
        places = ["127.0.0.2", "127.0.0.1"]
        sink, _ = await dialled(f"ws://x:{site.listener.port}/binary", addresses=places)
        sink.pipe.abort()
        with pytest.raises(HostError, match="nobody listens"):
            await dialled(f"ws://x:{site.listener.port}/binary", addresses=["127.0.0.2", "127.0.0.3"])
        return len(site.binary.pipes)

    assert run(story) == 1


def test_redirect_is_not_followed():
    """Wherever a redirect leads, it is a refusal: its target was never judged."""

    async def story(site):
        with pytest.raises(HostError, match="refused the handshake with HTTP status 302"):
            await dialled(site.url("/nowhere"))
        return site.binary.pipes

    target = (("Location", "/binary"),)

    assert run(story, answer=lambda *_asked: HttpAnswer(302, target)) == []


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 101 x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"x" * 20_000,
    ],
)
def test_who_is_no_websocket_server_is_an_error(said):
    """Silence, other protocols and half a handshake end with one error, and the sink hears nothing."""

    async def story():
        url, server = await raw(said)
        sink = Sink()
        async with server:
            with pytest.raises(HostError) as caught:
                await WebSocketDialler(message_bytes_max=LIMIT).dial(url, sink)
        return str(caught.value), sink.reports

    text, reports = asyncio.run(story())

    assert text.startswith("ws://127.0.0.1:")
    assert reports == []


def test_server_that_never_answers_is_given_up():
    """The time for all of it together is bounded."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"ws://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(HostError, match=r"did not answer within 0\.05 s"):
            asyncio.run(dialled(url, timeout_s=0.05))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:80",
        "http://127.0.0.1/",
        "ws://",
        "ws://127.0.0.1:99999/",
        "ws://127.0.0.1/a b",
        "ws://127.0.0.1/a\r\nX: y",
        "ws://127.0.0.1/\u00fc",
        "ws://user@127.0.0.1/",
    ],
)
def test_text_that_is_no_address_is_refused(url):
    """Nothing is dialled, and no text of a stranger becomes a line of our request."""
    with pytest.raises(LocalError, match="not a WebSocket address"):
        asyncio.run(dialled(url))


def test_text_messages_go_both_ways(folder):
    """What a dialler of text sends is text, also over TLS; it takes messages of either type."""
    context = server_context(folder / "cert", folder / "key")

    async def story(site):
        trusted = client_context(folder / "ca")
        sink, _ = await dialled(site.url(), trusted, text=True)
        sink.pipe.write([b"one", b"", b"x" * 100_000])
        await sink.until(lambda: len(sink.heard) == 3)
        lax, _ = await dialled(site.url("/binary"), trusted, text=True)
        (await site.binary.stood()).write([b"\xff"])
        await lax.until(lambda: lax.heard)
        for pipe in (sink.pipe, lax.pipe):
            pipe.abort()
        return sink.heard, lax.heard, site.sink.pipe.tls_version

    assert run(story, context=context) == ([b"one", b"", b"x" * 100_000], [b"\xff"], "TLSv1.3")


def test_no_extension_is_offered_and_no_proxy_used(monkeypatch):
    """Compression is never asked for, and no proxy of the environment is used."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    asked = []

    async def note(connection):
        asked.append(connection.request.headers)

    async def story():
        async with foreign(note) as url:
            sink, _ = await dialled(url)
            await sink.until(lambda: "lost" in sink.reports)

    asyncio.run(story())

    assert "Sec-WebSocket-Extensions" not in asked[0]


def test_ping_is_measured():
    """A ping that was answered tells how long it took; before the first there is no number."""

    async def story(site):
        sink, _ = await dialled(site.url("/binary"))
        before = sink.pipe.ping_ms
        sink.pipe.ping()
        sink.pipe.write([b"behind the ping"])
        await sink.until(lambda: sink.heard)
        sink.pipe.abort()
        return before, sink.pipe.ping_ms

    before, ping_ms = run(story)

    assert before is None
    assert 0 < ping_ms < PATIENCE_S * 1_000


def test_large_message_closes_with_1009():
    """The limit holds for what the other side sends."""

    async def story(site):
        sink, _ = await dialled(site.url("/binary"), limit=1_000)
        (await site.binary.stood()).write([b"x" * 1_001])
        await sink.until(lambda: "lost" in sink.reports)
        await site.binary.until(lambda: "lost" in site.binary.reports)
        return sink.heard, site.binary.pipe.received_status

    assert run(story) == ([], 1009)
