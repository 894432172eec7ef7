"""Laws of server.http_port; tests/server/box/test_server.py tries it over TLS."""

import asyncio
import socket

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from tests.server.build import eventually
from waystation.core.errors import HostError
from waystation.server.config.settings import Address, NodeSettings, parse_address
from waystation.server.http import port as http_port
from waystation.server.http.connection import LateAnswer
from waystation.server.http.port import HttpPort
from waystation.server.proxies.rules import ProxyRules
from waystation.transport.http_get import http_get

LOOPBACK = Address("127.0.0.1", 0)
LATE = LateAnswer({})


def application(asked=None):
    """Return what says yes; or sets an event once it is asked, and says nothing for ever."""

    async def say(_request):
        if asked is not None:
            asked.set()
            await asyncio.Event().wait()
        return PlainTextResponse("yes")

    return Starlette(routes=[Route("/", say)])


def test_application_answers_until_it_is_closed():
    """The address tells the port that was free; afterwards nobody is there."""

    async def scenario():
        port = HttpPort(application(), LATE)
        before = port.url
        await port.open(LOOPBACK)
        reply = await http_get(port.url)
        await port.close()
        with pytest.raises(HostError):
            await http_get(port.url)
        return before, port.url, reply

    before, url, reply = asyncio.run(scenario())

    assert before == ""
    assert url.startswith("http://127.0.0.1:")
    assert reply == (200, b"yes")


def test_taken_port_is_told():
    """The exit code is that of a port."""
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(HostError) as caught:
        asyncio.run(HttpPort(application(), LATE).open(Address("127.0.0.1", other.getsockname()[1])))

    assert caught.value.exit_code == 4


def test_closing_takes_no_longer_than_it_may(monkeypatch):
    """A request that never ends is cut off."""
    monkeypatch.setattr(http_port, "GRACE_S", 30)
    monkeypatch.setattr(http_port, "CLOSE_S", 0.05)

    async def scenario():
        asked = asyncio.Event()
        port = HttpPort(application(asked), LATE)
        await port.open(LOOPBACK)
        asking = asyncio.ensure_future(http_get(port.url, timeout_s=1))
        await asked.wait()
        await port.close()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    asyncio.run(scenario())


def test_request_that_never_ends_does_not_hold_the_close(monkeypatch):
    """A client that owes the rest of its body is cut off after the grace; the server ends by itself."""
    monkeypatch.setattr(http_port, "GRACE_S", 0.01)

    async def read(request):
        await request.body()

    async def scenario():
        port = HttpPort(Starlette(routes=[Route("/", read, methods=["POST"])]), LATE)
        await port.open(LOOPBACK)
        _, writer = await asyncio.open_connection("127.0.0.1", int(port.url.rpartition(":")[2]))
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        await eventually(lambda: port._server.server_state.tasks, "the request")
        async with asyncio.timeout(20):
            await port.close()
        writer.close()
        return port._task.cancelled()

    assert asyncio.run(scenario()) is False


def test_closing_what_was_never_opened_is_harmless():
    """So that a node may close everything it has."""
    port = HttpPort(application(), LATE)
    asyncio.run(port.close())

    assert port.url == ""


def clients(requests, **settings):
    """Return the client that the application sees for each of these requests, one connection each."""

    async def say(request):
        return PlainTextResponse(request.client.host)

    async def ask(address, source, sent):
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port, local_addr=(source, 0))
        writer.write(sent)
        try:
            return (await reader.read()).rpartition(b"\r\n")[2].decode()
        except ConnectionError:
            return ""
        finally:
            writer.close()

    async def scenario():
        proxies = ProxyRules(NodeSettings(trusted_proxies=["127.0.0.1"], **settings))
        port = HttpPort(Starlette(routes=[Route("/", say)]), LATE, None, proxies, "bsp.box")
        await port.open(LOOPBACK)
        address = parse_address(port.url.removeprefix("http://"))
        seen = [await ask(address, source, sent) for source, sent in requests]
        await port.close()
        return seen

    return asyncio.run(scenario())


def get(forwarded=""):
    """Return a request whose X-Forwarded-For is this."""
    return f"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Forwarded-For: {forwarded}\r\n\r\n".encode()


def test_request_has_the_client_that_a_trusted_proxy_names():
    """Nobody else names one: the application counts wrong tokens of 127.0.0.2 under 127.0.0.2."""
    requests = [("127.0.0.1", get("203.0.113.7")), ("127.0.0.2", get("203.0.113.7")), ("127.0.0.1", get())]

    assert clients(requests) == ["203.0.113.7", "127.0.0.2", "127.0.0.1"]


def test_request_behind_a_proxy_header_has_its_client():
    """The header of the connection names the client; a proxy that sends none is refused."""
    header = b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n"
    requests = [("127.0.0.1", header + get("198.51.100.1")), ("127.0.0.1", get()), ("127.0.0.2", get())]

    assert clients(requests, proxy_protocol=["bsp.box"]) == ["203.0.113.7", "", "127.0.0.2"]
