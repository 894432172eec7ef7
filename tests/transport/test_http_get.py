import asyncio
import contextlib

import pytest

from waystation.core.errors import HostError, LocalError
from waystation.transport.http_get import http_get, http_request


def fetch(answer, **options):
    """Return what is fetched from a server that says ``answer`` and closes, or hangs when it is None."""
    done = asyncio.Event()

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await reader.read()
        else:
            writer.write(answer)
            await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        done.set()

    async def run():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            return await http_get(f"http://127.0.0.1:{port}/x?y=1", **options)
        finally:
            await done.wait()
            server.close()
            await server.wait_closed()

    return asyncio.run(run())


def test_answer_comes_whole_with_its_status():
    """Any status is an answer, with or without chunks."""
    plain = fetch(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno")
    chunked = fetch(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\n\r\n")

    assert plain == (404, b"no")
    assert chunked == (200, b"yes")


def test_too_long_answer_is_refused():
    """Memory is bounded, whatever the length says."""
    with pytest.raises(HostError, match="longer than 10"):
        fetch(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100, body_bytes_max=10)


def test_silence_ends_in_time():
    """The whole fetch has one deadline."""
    with pytest.raises(HostError, match="did not answer"):
        fetch(None, timeout_s=0.05)


def test_what_is_no_http_is_refused():
    """It is a host's failure, in one sentence."""
    with pytest.raises(HostError):
        fetch(b"nonsense\r\n\r\n")


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a b", "http://a:x/", "http://a/\n", "file:/x", ""])
def test_other_addresses_are_the_callers_mistake(url):
    """Only http and https are fetched."""
    with pytest.raises(LocalError):
        asyncio.run(http_get(url))


def test_nobody_there_is_said():
    """A refused connection names the address."""
    with pytest.raises(HostError, match="cannot fetch http://127"):
        asyncio.run(http_get("http://127.0.0.1:1/"))


def test_wrong_scheme_is_hinted_at():
    """An answer that looks like TLS, or a listener that does not speak it, names the other scheme."""
    with pytest.raises(HostError, match="if it is a TLS listener, try https://"):
        fetch(b"\x15\x03\x01\x00\x02\x02\x46")

    async def secure():
        async def serve(_reader, writer):
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            await http_get(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/")

    with pytest.raises(HostError, match="if it is a plain listener, try http://"):
        asyncio.run(secure())


def test_request_carries_method_headers_and_body():
    """What is sent is what the server gets; without a body there is none."""
    heard = []

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or b"0")
        heard.append((head, await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        writer.close()

    async def run():
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
            return [
                await http_request("PUT", url, b"\x00body", {"Authorization": "Bearer a"}),
                await http_request("DELETE", url),
            ]

    replies = asyncio.run(run())

    assert replies == [(201, b"ok")] * 2
    assert heard[0][0].startswith(b"PUT /x HTTP/1.1\r\n") and b"\r\nAuthorization: Bearer a\r\n" in heard[0][0]
    assert heard[1][0].startswith(b"DELETE /x HTTP/1.1\r\n")
    assert [body for _, body in heard] == [b"\x00body", b""]
