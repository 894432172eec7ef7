"""Laws of server.bsp_outlet: how BSP peers are dialled, whatever certificate they show."""

import asyncio
import datetime
import ssl

import pytest

from tests.transport.build import Sink
from waystation.core.errors import HostError, LocalError
from waystation.crypto.certificates import make_local_certificates
from waystation.server.bsp_outlet import BspOutlet
from waystation.transport.listen import Listener
from waystation.transport.tls import leaf_sha256, server_context
from waystation.transport.websocket import Endpoint, WebSocketSite

PATIENCE_S = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Certificates for a name that nobody dials here, of an authority that nobody knows."""
    path = tmp_path_factory.mktemp("tls")
    made = make_local_certificates(["elsewhere.example"], datetime.datetime.now(datetime.UTC))
    for name, pem in (("cert", made.cert_pem), ("key", made.key_pem)):
        (path / name).write_bytes(pem)
    return path


async def met(context, url, *, web=False):
    """Dial a listener and say one thing each way; return the two sinks and our pipe's certificate."""
    theirs, ours = Sink(echoes=True), Sink()
    site = WebSocketSite({"/bsp": Endpoint(theirs, text=False)}, None) if web else None
    listener = Listener(theirs, lambda _: True, lambda _: None, context, site.arrive if site else None)
    await listener.open("127.0.0.1", 0)
    try:
        pipe = await BspOutlet().dial(url.format(port=listener.port), ours, PATIENCE_S)
        pipe.write([b"ping"])
        await ours.until(lambda: ours.heard)
        shown, version = pipe.certificate_sha256, pipe.tls_version
        pipe.abort()
        await ours.until(lambda: "lost" in ours.reports)
        await theirs.until(lambda: "lost" in theirs.reports)
    finally:
        listener.close()
    return ours.heard, shown, version


@pytest.mark.parametrize(
    ("url", "web"), [("bsp+tls://127.0.0.1:{port}", False), ("bsp+wss://127.0.0.1:{port}/bsp", True)]
)
def test_any_certificate_will_do_and_its_hash_is_known(folder, url, web):
    """Neither name nor authority is right; who is there proves it over the hash that we have seen."""
    context = server_context(folder / "cert", folder / "key")

    assert asyncio.run(met(context, url, web=web)) == ([b"ping"], leaf_sha256(folder / "cert"), "TLSv1.3")


@pytest.mark.parametrize("url", ["bsp+tls://127.0.0.1:{port}", "bsp+wss://127.0.0.1:{port}/bsp"])
def test_tls_12_is_not_spoken(folder, url):
    """A listener that has nothing newer is not reached."""
    context = server_context(folder / "cert", folder / "key")
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    with pytest.raises(HostError, match=r"did not complete the TLS handshake|does not speak WebSocket"):
        asyncio.run(met(context, url, web="wss" in url))


@pytest.mark.parametrize("url", ["bsp+tls://127.0.0.1:1", "bsp+wss://127.0.0.1:1/bsp"])
def test_nobody_there_is_one_sentence(url):
    """The dialler logs it as it is."""
    with pytest.raises(HostError, match="nobody listens on"):
        asyncio.run(BspOutlet().dial(url, Sink(), PATIENCE_S))


@pytest.mark.parametrize(
    "url",
    ["bsp+tls://", "bsp+tls://a:99999", "bsp+tls://a:1/path", "bsp+tls://[a", "bsp+x://a:1", "bsp+wss://", "bsp+"],
)
def test_what_is_no_address_is_refused(url):
    """A text that begins like one of ours is ours to refuse."""
    outlet = BspOutlet()

    assert outlet.knows(url)
    with pytest.raises(LocalError, match="not a "):
        asyncio.run(outlet.dial(url, Sink(), PATIENCE_S))


def test_port_that_is_left_out_is_that_of_the_listener(monkeypatch):
    """bsp+tls without a port means 7443."""
    asked = []

    async def story():
        async def refuse(host, port, **_options):
            asked.append((host, port))
            raise ConnectionRefusedError

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "getaddrinfo", refuse)
        with pytest.raises(HostError):
            await BspOutlet().dial("bsp+tls://peer.example", Sink(), PATIENCE_S)

    asyncio.run(story())

    assert asked == [("peer.example", 7_443)]


def test_other_schemes_are_not_ours():
    """The mesh's addresses are dialled as they always were."""
    outlet = BspOutlet()

    assert not any(map(outlet.knows, ("ws://a/merk", "wss://a/merk", "tls://a:1", "https://a", "")))
