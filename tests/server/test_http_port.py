"""Laws of server.http_port; tests/server/test_bsp_box.py tries it over TLS."""

import asyncio
import socket

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from waystation.core.errors import HostError
from waystation.server import http_port
from waystation.server.http_connection import LateAnswer
from waystation.server.http_port import HttpPort, TlsFiles
from waystation.server.settings import Address
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


def test_certificate_that_cannot_be_used_is_told(tmp_path):
    """Nothing is bound then."""
    port = HttpPort(application(), LATE)
    with pytest.raises(HostError, match="certificate"):
        asyncio.run(port.open(LOOPBACK, TlsFiles(tmp_path / "none", tmp_path / "none")))

    assert port.url == ""


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


def test_closing_what_was_never_opened_is_harmless():
    """So that a node may close everything it has."""
    port = HttpPort(application(), LATE)
    asyncio.run(port.close())
    port.reload_certificate(TlsFiles(None, None))

    assert port.url == ""
