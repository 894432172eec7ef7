"""What a client says whose address has the wrong scheme or path: a sentence with the way out, and soon."""

import asyncio

import pytest

from tests.server.build_node import configured, serving
from waystation import bhumi, bsp, merk, strata
from waystation.sdk.bhumi import connection
from waystation.sdk.bhumi.connection import SILENT_S, TRY_S
from waystation.sdk.bsp import connections
from waystation.sdk.errors import RelayUnreachableError
from waystation.server.home import Home
from waystation.transport.tls import client_context

PATIENCE_S = 60
SOON_S = 2

OPEN = {
    "bhumi__plain": "127.0.0.1:0",
    "bhumi__tls": "127.0.0.1:0",
    "merk__ws": "127.0.0.1:0",
    "strata__ws": "127.0.0.1:0",
}


@pytest.fixture(autouse=True)
def _a_look_may_take_long(request, monkeypatch):
    """A busy machine may need more than a second for a handshake; the look ends as soon as there is an answer."""
    if "tmp_path" in request.fixturenames:
        for module in (connection, connections):
            monkeypatch.setattr(module, "TRY_S", 20.0)


async def use_bhumi(home, url):
    """Open a client."""
    async with bhumi.open(home, url):
        pass


async def use_merk(home, url):
    """Open a client."""
    async with merk.open(home, url, only=True):
        pass


async def publish(home, url):
    """Send a packet."""
    async with strata.open(home, url) as client:
        await client.send({"type": "POST", "text": "hello"})


async def follow(home, url):
    """Read packets."""
    async with strata.open(home, url) as client:
        async for _ in client.messages():
            pass


@pytest.mark.parametrize(
    ("use", "scheme", "listener", "path", "says"),
    [
        (use_bhumi, "tcp", "bhumi", "", "it is a TLS port; try tls://"),
        (use_bhumi, "tls", "bhumi_plain", "", "is it a plain tcp:// listener?"),
        (use_bhumi, "tls", "merk", "", "is it a plain tcp:// listener?"),
        (use_bhumi, "tcp", "merk", "", "an HTTP server answers there; is the port right?"),
        (use_merk, "ws", "strata", "/strata", "this is no MERK relay; is the path right?"),
        (use_merk, "wss", "merk", "/merk", "try ws://"),
        (publish, "ws", "merk", "/merk", "does not say what a Strata relay says; is the path right?"),
        (follow, "ws", "merk", "/merk", "does not say what a Strata relay says; is the path right?"),
        (publish, "ws", "strata", "/nowhere", "is the path right?"),
        (follow, "wss", "strata", "/strata", "try ws://"),
        (publish, "ws", "bhumi", "/strata", "try wss://"),
    ],
)
def test_wrong_address_says_what_is_wrong(tmp_path, use, scheme, listener, path, says):
    """Nobody is left waiting for a timeout that says nothing."""
    if use is use_merk:
        merk.create_keys(tmp_path / "client")

    async def main():
        home = tmp_path / "node"
        async with asyncio.timeout(PATIENCE_S), serving(home, configured(home, **OPEN)) as (server, _):
            place = server.operations.status()["listeners"][listener].partition("://")[2].partition("/")[0]
            with pytest.raises(RelayUnreachableError) as caught:
                await use(tmp_path / "client", f"{scheme}://{place}{path}")
        return str(caught.value)

    assert says in asyncio.run(main())


@pytest.mark.parametrize("protocol", ["bhumi", "bsp"])
def test_tls_address_of_a_web_port_says_so(tmp_path, protocol):
    """TLS succeeds there, and then nobody greets: HTTP waits for a request."""
    settings = OPEN | {"strata__tls": "true", "strata__ws": "127.0.0.1:0", "merk__enabled": "false"}

    async def main():
        home = tmp_path / "node"
        async with asyncio.timeout(PATIENCE_S), serving(home, configured(home, **settings)) as (server, _):
            place = server.operations.status()["listeners"]["strata"].partition("://")[2].partition("/")[0]
            if protocol == "bsp":
                return await bsp_reason(tmp_path / "client", f"bsp+tls://{place}")
            with pytest.raises(RelayUnreachableError) as caught:
                async with bhumi.open(tmp_path / "client", f"tls://{place}", tls=client_context(Home(home).ca_path)):
                    pass
            return str(caught.value)

    assert "an HTTP server answers there; is the port right?" in asyncio.run(main())


async def bsp_reason(home, url):
    """Return why a BSP peer at an address is not reached."""
    async with bsp.BspPeer(home) as peer:
        news = peer.news()
        await peer.meet(bytes(range(32)), url=url)
        return next(each.reason for each in [await anext(news)] if isinstance(each, bsp.PeerUnreachable))


def test_silence_on_a_port_is_explained_soon():
    """Waiting for the first word and the look for TLS and HTTP together."""
    assert SILENT_S + TRY_S <= SOON_S
    assert connections.SILENT_S + connections.TRY_S <= SOON_S
