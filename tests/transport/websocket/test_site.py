"""Laws of transport.websocket before a pipe stands: routes, plain GETs, and hostile requests."""

import asyncio
import contextlib
import random

import pytest
import websockets

from tests.transport.build import PATIENCE_S, UPGRADE_HEADERS, Sink, Site, connect, frame, request_bytes, run
from waystation.core.answers import HttpAnswer
from waystation.transport import listen
from waystation.transport.websocket.site import Endpoint


def test_handshake_accepts_what_firefox_sends():
    """A Connection header is a list in any case; no extension is ever accepted, whatever is offered."""
    headers = dict(UPGRADE_HEADERS) | {
        "Connection": "keep-alive, Upgrade",
        "Upgrade": "WebSocket",
        "Sec-WebSocket-Extensions": "permessage-deflate",
    }

    async def story(site):
        _, writer, head = await site.upgrade("/quiet?since=%zz", headers.items())
        writer.close()
        return head

    head = run(story).lower()

    assert head.startswith(b"http/1.1 101 ")
    assert b"sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=" in head
    assert b"extensions" not in head


def test_first_message_may_come_with_the_request():
    """Who does not wait for our answer is heard all the same."""

    async def story(site):
        reader, writer = await asyncio.open_connection("127.0.0.1", site.listener.port)
        writer.write(request_bytes() + frame(0x81, b"impatient"))
        await site.quiet.until(lambda: site.quiet.heard)
        writer.close()
        return site.quiet.heard, reader is not None

    assert run(story) == ([b"impatient"], True)


def test_other_version_is_told_ours():
    """A version that we do not speak gets 426 with the one that we do."""
    headers = dict(UPGRADE_HEADERS) | {"Sec-WebSocket-Version": "8"}

    async def story(site):
        return await site.ask(request_bytes(headers=headers.items())), site.released

    said, released = run(story)

    assert said.startswith(b"HTTP/1.1 426 ") and b"Sec-WebSocket-Version: 13" in said
    assert released == ["127.0.0.1"]


@pytest.mark.parametrize(
    "path", ["/", "/nodeinfo?x=1", "/%00%ff/../..", "/\xff\xfe", "//x", "/" + "a" * 15_000, "*", "?"]
)
def test_other_get_is_answered(path):
    """Any path gets what the answerer says, as it was asked; the connection closes and its place is given back."""

    async def story(site):
        said = await site.ask(request_bytes(path, [("Host", "x")]))
        await site.sink.until(lambda: site.released)
        assert site.named == ["x"]
        return said, site.asked, site.released

    said, asked, released = run(story)

    assert said.endswith(b"\r\n\r\n{}")
    assert b"200 OK" in said and b"Access-Control-Allow-Origin: *" in said and b"Content-Length: 2" in said
    assert (asked, released) == ([(path, "127.0.0.1")], ["127.0.0.1"])


@pytest.mark.parametrize("path", ["/", "/page?x=1", "/text"])
def test_head_is_a_get_without_its_body(path):
    """HEAD gets what GET gets, length and all, but for the body (RFC 9110 9.3.2)."""

    async def story(site):
        said = await site.ask(request_bytes(path, [("Host", "x")]))
        return said, await site.ask(request_bytes(path, [("Host", "x")]).replace(b"GET", b"HEAD", 1)), site.asked

    said, headed, asked = run(story)
    header, _, body = said.partition(b"\r\n\r\n")

    assert sorted(headed.split(b"\r\n")) == sorted([*header.split(b"\r\n"), b"", b""])
    assert (body, asked) == ((b"", []) if path == "/text" else (b"{}", [(path, "127.0.0.1")] * 2))


def test_head_never_becomes_a_websocket():
    """A handshake is a GET (RFC 6455 4.1)."""

    async def story(site):
        return await site.ask(request_bytes("/text").replace(b"GET", b"HEAD", 1)), site.sink.pipes

    said, pipes = run(story)

    assert said.startswith(b"HTTP/1.1 426 ")
    assert pipes == []


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT"])
@pytest.mark.parametrize("path", ["/", "/text"])
def test_other_methods_are_told_ours(method, path):
    """A method that we do not have gets 405 with those that we do (RFC 9110 15.5.6); the connection closes."""

    async def story(site):
        said = await site.ask(request_bytes(path).replace(b"GET", method, 1))
        await site.sink.until(lambda: site.released)
        return said, site.released, site.asked, site.sink.pipes

    said, *rest = run(story)

    assert said.startswith(b"HTTP/1.1 405 ") and b"\r\nAllow: GET, HEAD\r\n" in said
    assert rest == [["127.0.0.1"], [], []]


def test_tls_to_a_plain_port_is_answered_at_once():
    """The beginning of a TLS handshake gets 400 in place of silence, so that a client sees that this is no TLS."""

    async def story(site):
        said = await site.ask(b"\x16\x03\x01\x02\x00" + bytes(20))
        await site.sink.until(lambda: site.released)
        return said, site.sink.pipes

    said, pipes = run(story)

    assert said.startswith(b"HTTP/1.1 400 ") and said.endswith(b"does not speak TLS: try ws or http\n")
    assert pipes == []


def test_request_may_come_in_pieces():
    """A GET or HEAD that is cut anywhere after its method is answered all the same."""

    async def one(site, request, at):
        reader, writer = await asyncio.open_connection("127.0.0.1", site.listener.port)
        writer.write(request[:at])
        await site.sink.until(lambda: site.sink.reports.count("admitted") > len(site.released))
        writer.write(request[at:])
        async with asyncio.timeout(PATIENCE_S):
            said = await reader.read()
        writer.close()
        return said

    async def story(site):
        head = request_bytes("/", [("Host", "x")]).replace(b"GET", b"HEAD", 1)
        return [await one(site, request_bytes("/", [("Host", "x")]), 2), await one(site, head, 6)]

    got, headed = run(story)

    assert got.startswith(b"HTTP/1.1 200 ") and got.endswith(b"{}")
    assert headed.startswith(b"HTTP/1.1 200 ") and headed.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("headers", [[("Host", "x")], [("Upgrade", "h2c"), ("Connection", "Upgrade")]])
def test_plain_get_of_an_endpoint_is_told_to_upgrade(headers):
    """An endpoint's path without a WebSocket handshake gets 426; what lies below that path is a GET like any other."""

    async def story(site):
        said = await site.ask(request_bytes("/text?x=1", headers))
        return said, (await site.ask(request_bytes("/text/more", headers)))[:15], site.asked

    said, below, asked = run(story)

    assert said.startswith(b"HTTP/1.1 426 ") and b"\r\nUpgrade: websocket\r\n" in said
    assert (below, asked) == (b"HTTP/1.1 200 OK", [("/text/more", "127.0.0.1")])


def test_endpoint_may_have_a_page():
    """A path with both gives the page to a plain GET, and the WebSocket to who asks for that."""

    async def story(site):
        said = await site.ask(request_bytes("/?x=1", [("Host", "x")]))
        async with connect(site, "/") as client:
            await client.send("hello")
            await both.until(lambda: both.heard)
        return said, site.asked, both.heard

    both = Sink()
    said, asked, heard = run(story, more={"/": Endpoint(both, has_page=True)})

    assert said.startswith(b"HTTP/1.1 200 ") and said.endswith(b"{}")
    assert (asked, heard) == ([("/?x=1", "127.0.0.1")], [b"hello"])


def test_handshake_at_an_unknown_path_is_answered():
    """A WebSocket client at a wrong address gets the answerer's word instead of a pipe."""

    async def story(site):
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(websockets.InvalidStatus) as caught:
                await connect(site, "/nowhere")
        return caught.value.response.status_code, site.sink.pipes

    assert run(story, answer=lambda *_asked: HttpAnswer(404)) == (404, [])


def test_answerer_that_fails_tells_nothing():
    """A bug of ours is a bare 500 for the stranger, and goes to the loop's handler."""

    def explode(*_asked):
        raise ZeroDivisionError("our secret")

    async def main():
        async with Site(answer=explode) as site:
            return await site.ask(request_bytes("/", [("Host", "x")])), site.troubles

    said, troubles = asyncio.run(main())

    assert said.startswith(b"HTTP/1.1 500 ") and b"secret" not in said
    assert [type(context["exception"]) for context in troubles] == [ZeroDivisionError]


HOSTILE = {
    "nothing": b"",
    "line end": b"\r\n\r\n",
    "binary": bytes(range(256)) + b"\r\n\r\n",
    "TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
    "other method": b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.0": b"GET / HTTP/1.0\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "two blanks": b"GET  / HTTP/1.1\r\n\r\n",
    "header without a colon": b"GET / HTTP/1.1\r\nHost\r\n\r\n",
    "header with a null": b"GET / HTTP/1.1\r\nA: \x00\r\n\r\n",
    "header that is no ASCII": b"GET / HTTP/1.1\r\n\xc3\xa4: x\r\n\r\n",
    "folded header": b"GET / HTTP/1.1\r\nA: x\r\n y\r\n\r\n",
    "body": b"GET / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
    "two lengths": b"GET / HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
    "chunked": b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "too many headers": b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
    "too long": b"GET /" + b"a" * 20_000,
    "no key": request_bytes(headers=[each for each in UPGRADE_HEADERS if each[0] != "Sec-WebSocket-Key"]),
    "short key": request_bytes(headers=(dict(UPGRADE_HEADERS) | {"Sec-WebSocket-Key": "AAAA"}).items()),
    "key that is no base64": request_bytes(headers=(dict(UPGRADE_HEADERS) | {"Sec-WebSocket-Key": "\xff"}).items()),
    "no Connection": request_bytes(headers=[each for each in UPGRADE_HEADERS if each[0] != "Connection"]),
    "Connection: close": request_bytes(headers=(dict(UPGRADE_HEADERS) | {"Connection": "close"}).items()),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_request_makes_no_pipe(case, monkeypatch):
    """Whatever comes instead of a handshake ends with an HTTP error or silence, and its place is given back once."""
    monkeypatch.setattr(listen, "HANDSHAKE_TIMEOUT_S", 0.05)

    async def story(site):
        said = await site.ask(HOSTILE[case])
        await site.sink.until(lambda: site.released)
        return said, site.released, site.quiet.reports

    said, released, reports = run(story)

    assert said == b"" or said.startswith(b"HTTP/1.1 4")
    assert (released, reports) == (["127.0.0.1"], [])


@pytest.mark.parametrize("seed", range(6))
def test_mutated_request_is_survived(seed):
    """Any change to a good request leaves the site as it was: no exception, and a place that is counted once."""
    rng = random.Random(seed)
    good = request_bytes()

    async def one(site):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data) - 4)] = rng.randrange(256)
        reader, writer = await asyncio.open_connection("127.0.0.1", site.listener.port)
        with contextlib.suppress(ConnectionError):
            writer.write(bytes(data))
            async with asyncio.timeout(PATIENCE_S):
                await reader.read(12)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def story(site):
        for _ in range(20):
            await one(site)
        sinks = (site.sink, site.quiet, site.binary)
        await site.sink.until(lambda: len(site.released) + sum(len(sink.pipes) for sink in sinks) == 20)

    run(story)


def test_handshake_that_never_comes_is_given_up(monkeypatch):
    """Who connects and asks for nothing is gone after the time for handshakes, and its place is given back."""
    monkeypatch.setattr(listen, "HANDSHAKE_TIMEOUT_S", 0.05)

    async def story(site):
        return await site.ask(b"GET / HTTP/1.1\r\nHost: "), site.released

    said, released = run(story)

    assert (said, released) == (b"", ["127.0.0.1"])


def test_closing_listener_drops_handshakes():
    """A handshake that has not come when the listener closes ends, and is released."""

    async def story(site):
        asking = asyncio.create_task(site.ask(b"GET /"))
        async with asyncio.timeout(PATIENCE_S):
            await site.sink.until(lambda: "admitted" in site.sink.reports)
            site.listener.close()
            return await asking, site.released

    assert run(story) == (b"", ["127.0.0.1"])
