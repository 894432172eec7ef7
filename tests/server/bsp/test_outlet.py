"""Laws of server.bsp_outlet: how BSP peers are dialled, whatever certificate they show."""

import asyncio
import datetime
import ssl

import pytest
from structlog.testing import capture_logs

from tests.server.build import Rig, eventually
from tests.server.dialling.test_dialler import Caller
from tests.transport.build import Sink, certificates
from waystation.core.effects import Dial, Peer, Send
from waystation.core.errors import HostError, LocalError
from waystation.crypto.certificates import make_local_certificates
from waystation.server.bsp.outlet import BspOutlet
from waystation.server.dialling.dialler import Dialler
from waystation.transport.listen import Listener
from waystation.transport.tls import leaf_sha256, server_context
from waystation.transport.websocket.site import Endpoint, WebSocketSite

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
    """Each is one sentence for the log."""
    outlet = BspOutlet()

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


class ProvenCaller(Caller):
    """A relay that is told which certificate was seen."""

    def connect_upstream(self, peer, name, now, certificate=b""):
        super().connect_upstream(peer, name, now)
        self.told.append((peer, certificate))


def test_peer_of_bsp_is_dialled_with_any_certificate_and_that_is_told(tmp_path):
    """TLS to a name that it does not have; what it said arrives, and its end is no refusal of the mesh."""
    folder = certificates(tmp_path)

    async def main():
        theirs = Sink(echoes=True)
        context = server_context(folder / "cert", folder / "key")
        listener = Listener(theirs, lambda _: True, lambda _: None, context)
        await listener.open("127.0.0.1", 0)
        relay = ProvenCaller()
        dialler = Dialler({"caller": BspOutlet()})
        async with Rig("caller", relay, dialler=dialler) as rig:
            relay.outbox.append(Dial("them", f"bsp+tls://localhost:{listener.port}", only_public=False))
            rig.hub.plan_turn()
            await eventually(lambda: relay.stands)
            peer = relay.stands["them"]
            relay.outbox.append(Send(Peer(peer), b"hello"))
            rig.hub.plan_turn()
            await eventually(lambda: len(relay.told) == 2)
            theirs.pipe.abort()
            await eventually(lambda: relay.calls)
            relay.outbox.append(Dial("nobody", "bsp+tls://127.0.0.1:1", only_public=False))
            relay.outbox.append(Dial("nonsense", "bsp+tls://", only_public=False))
            rig.hub.plan_turn()
            await eventually(lambda: len(relay.failed) == 2)
        listener.close()
        return relay, peer

    with capture_logs() as lines:
        relay, peer = asyncio.run(main())

    assert relay.told == [(peer, leaf_sha256(folder / "cert")), (peer, b"hello")]
    assert relay.calls == [("disconnect", peer)]
    assert sorted(relay.failed) == ["nobody", "nonsense"]
    assert {line["event"] for line in lines} == {"peer.connected", "peer.unreachable"}
