"""Laws of transport.websocket_dial, against our own site."""

import asyncio
import socket

import pytest
import websockets

from tests.transport.build import PATIENCE_S, Sink, certificates, run
from waystation.core.answers import HttpAnswer
from waystation.core.errors import HostError, LocalError
from waystation.transport.tls import client_context, server_context
from waystation.transport.websocket_dial import LinkPipe, dial_websocket


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Certificates for localhost."""
    return certificates(tmp_path_factory.mktemp("tls"))


def test_messages_go_both_ways():
    """What is sent is text, whole and in order; the host is the one that was dialled; the end has a status."""

    async def story(site):
        link = await dial_websocket(site.url())
        for message in (b"one", b"", b"x" * 100_000, b"\xff"):
            await link.send(message)
        got = [await link.receive() for _ in range(3)]
        open_status = link.status
        await link.close(1001)
        await link.close()
        return got == [b"one", b"", b"x" * 100_000], site.sink.heard[3], open_status, link.status, link.host

    assert run(story) == (True, b"\xff", None, 1001, "127.0.0.1")


def test_binary_link_sends_and_takes_binary():
    """What a binary link says are binary messages, empty ones too; what it is told comes back as it was."""

    async def story(site):
        link = await dial_websocket(site.url("/binary"), text=False)
        for message in (b"\x00\xff", b""):
            await link.send(message)
        got = [await link.receive() for _ in range(2)]
        await link.close()
        return got, site.binary.heard

    assert run(story) == ([b"\x00\xff", b""], [b"\x00\xff", b""])


@pytest.mark.parametrize("message", [b"text", b"\xff"])
def test_binary_link_refuses_text(message):
    """Text, even such that is no UTF-8, is not handed over; the other side sees why the link ended."""

    async def story(site):
        link = await dial_websocket(site.url("/quiet"), text=False)
        pipe = await site.quiet.stood()
        pipe.write([message])
        got = await link.receive()
        await site.quiet.until(lambda: "lost" in site.quiet.reports)
        return got, link.status

    assert run(story) == (None, 1003 if message == b"text" else 1007)


def test_end_is_none_and_then_an_error():
    """After the other side closed, receiving says None with its status, and sending says what is wrong."""

    async def story(site):
        link = await dial_websocket(site.url("/quiet"))
        pipe = await site.quiet.stood()
        pipe.write([b"last"])
        pipe.close(1012)
        got = [await link.receive(), await link.receive(), await link.receive()]
        with pytest.raises(HostError, match=r"connection to 127\.0\.0\.1 is over"):
            await link.send(b"too late")
        return got, link.status

    assert run(story) == ([b"last", None, None], 1012)


def test_tls_with_headers(folder):
    """Over TLS with the authority given; extra headers reach the other side."""
    context = server_context(folder / "cert", folder / "key")

    async def story(site):
        link = await dial_websocket(site.url(), context=client_context(folder / "ca"), extra_headers={"X-Who": "me"})
        sent = link._connection.request.headers["X-Who"]
        await link.send(b"hello")
        got, version = await link.receive(), site.sink.pipe.tls_version
        await link.close()
        return got, sent, version

    assert run(story, context=context) == (b"hello", "me", "TLSv1.3")


def test_no_extension_is_offered():
    """Compression is never asked for, and no proxy of the environment is used."""

    async def story(site):
        link = await dial_websocket(site.url())
        headers = link._connection.request.headers
        await link.close()
        return "Sec-WebSocket-Extensions" in headers

    assert not run(story)


def test_untrusted_certificate(folder):
    """A certificate that nobody vouches for is refused with its reason."""
    context = server_context(folder / "cert", folder / "key")

    async def story(site):
        with pytest.raises(HostError, match=r"not trusted \(.*\); name its authority with --ca FILE$"):
            await dial_websocket(site.url())

    run(story, context=context)


def test_refusal_names_its_status():
    """A path that is none is told with its HTTP status."""

    async def story(site):
        with pytest.raises(HostError, match=r"/nowhere refused the handshake with HTTP status 404"):
            await dial_websocket(site.url("/nowhere"))

    run(story, answer=lambda _path, _host: HttpAnswer(404))


def test_redirect_is_not_followed():
    """A redirect is a refusal, wherever it leads."""

    async def story(site):
        with pytest.raises(HostError, match="refused the handshake with HTTP status 302"):
            await dial_websocket(site.url("/nowhere"))
        return site.sink.pipes

    target = (("Location", "/text"),)

    assert run(story, answer=lambda _path, _host: HttpAnswer(302, target)) == []


def test_large_message_closes_with_1009():
    """The limit holds for what the other side sends."""

    async def story(site):
        link = await dial_websocket(site.url("/quiet"), message_bytes_max=1_000)
        pipe = await site.quiet.stood()
        pipe.write([b"x" * 1_001])
        got = await link.receive()
        return got, link.status

    assert run(story) == (None, 1009)


@pytest.mark.parametrize(
    ("url", "why"),
    [("ws://127.0.0.1:1", "nobody listens"), ("ws://a..b:1", "cannot find the host"), ("wss://127.0.0.1:1", "nobody")],
)
def test_unreachable(url, why):
    """Who cannot be reached is named with the reason."""
    with pytest.raises(HostError, match=why):
        asyncio.run(dial_websocket(url))


@pytest.mark.parametrize("scheme", ["ws", "wss"])
def test_silence_is_a_timeout(scheme):
    """A host that accepts and never answers is given up in time."""
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(HostError, match=r"did not answer within 0\.05 s"),
    ):
        asyncio.run(dial_websocket(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}", open_timeout_s=0.05))


def test_something_else_listens():
    """An answer that is no HTTP is told as such."""

    async def story():
        async def greet(_reader, writer):
            writer.write(b"220 mail.example ESMTP\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        async with server:
            await dial_websocket(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")

    with pytest.raises(HostError, match="does not speak WebSocket"):
        asyncio.run(story())


@pytest.mark.parametrize("url", ["", "http://x/", "ws://", "relay.example", "ws://x:99999", "ws://[::1"])
def test_no_address(url):
    """Anything that is no WebSocket address is refused with a sentence."""
    with pytest.raises(LocalError, match="not a WebSocket address"):
        asyncio.run(dial_websocket(url))


# The pipe


async def dialled_pipe(site, path="/text"):
    """Return a sink whose pipe goes to the site."""
    sink = Sink()
    LinkPipe(sink, await dial_websocket(site.url(path))).stand()
    return sink


def test_pipe_writes_and_hears():
    """Chunks leave as messages in their order and their echoes come back; nothing waits in the end."""

    async def story(site):
        sink = await dialled_pipe(site)
        sink.pipe.write([b"one", b"two"])
        sink.pipe.write([b"three"])
        await sink.until(lambda: len(sink.heard) == 3 and not sink.pipe.waits)
        heard, unsent = list(sink.heard), sink.pipe.unsent_bytes
        sink.pipe.close()
        await sink.until(lambda: "lost" in sink.reports)
        return heard, unsent, sink.pipe.address, sink.reports[0], sink.reports[-1]

    assert run(story) == ([b"one", b"two", b"three"], 0, "127.0.0.1", "connected", "lost")


def test_pipe_closes_behind_what_was_written():
    """``close`` lets written messages leave first and carries its status; later writes are dropped."""

    async def story(site):
        sink = await dialled_pipe(site, "/quiet")
        sink.pipe.write([b"x" * 100_000, b"last"])
        sink.pipe.close(1001)
        sink.pipe.write([b"too late"])
        await sink.until(lambda: "lost" in sink.reports)
        await site.quiet.until(lambda: "lost" in site.quiet.reports)
        return site.quiet.heard[1:], sink.pipe._link.status, sink.pipe.unsent_bytes

    assert run(story) == ([b"last"], 1001, 0)


@pytest.mark.parametrize("how", ["close", "abort"])
def test_pipe_is_lost_with_the_other_side(how):
    """However the other side ends, the sink is told once, and every command is harmless then."""

    async def story(site):
        sink = await dialled_pipe(site, "/quiet")
        getattr(await site.quiet.stood(), how)()
        await sink.until(lambda: "lost" in sink.reports)
        for command in (sink.pipe.pause, sink.pipe.resume, sink.pipe.close, sink.pipe.abort):
            command()
        sink.pipe.write([b"x"])
        return sink.reports

    assert run(story) == ["connected", "lost"]


def test_pipe_aborts_at_once():
    """``abort`` ends the pipe although the other side reads nothing."""

    async def story(site):
        sink = await dialled_pipe(site, "/quiet")
        (await site.quiet.stood()).pause()
        sink.pipe.write([bytes(1_000_000)] * 20)
        waits = sink.pipe.waits
        sink.pipe.abort()
        await sink.until(lambda: "lost" in sink.reports)
        return waits, sink.pipe.unsent_bytes

    assert run(story) == (True, 0)


def test_foreign_server_is_understood():
    """The link talks to the library's own server as well."""

    async def story():
        async def echo(connection):
            async for message in connection:
                await connection.send(message)

        async with asyncio.timeout(PATIENCE_S), websockets.serve(echo, "127.0.0.1", 0) as server:
            link = await dial_websocket(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
            await link.send(b"hello")
            got = await link.receive()
            await link.close()
            return got

    assert asyncio.run(story()) == b"hello"


def test_wrong_scheme_is_hinted_at(folder):
    """TLS to a plain listener and plain to a TLS listener name the other scheme."""

    async def story(site):
        there = site.url()
        other = there.replace("wss:", "ws:") if there.startswith("wss:") else there.replace("ws:", "wss:")
        with pytest.raises(HostError) as caught:
            await dial_websocket(other, open_timeout_s=0.1)
        return str(caught.value)

    assert run(story).endswith("if it is a plain listener, try ws://")
    assert run(story, context=server_context(folder / "cert", folder / "key")).endswith(
        "if it is a TLS listener, try wss://"
    )
