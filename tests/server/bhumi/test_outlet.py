"""Laws of server.bhumi.outlet: Bhumi relays that find each other over real sockets."""

import asyncio
import datetime
import socket
import time
from contextlib import ExitStack

import pytest
import structlog

from tests.server.build import Client, NodeProcess, Rig, eventually, i_am, key_pair, until
from tests.server.build_node import configured, serving
from tests.server.dialling.test_dialler import Caller
from tests.transport.build import Sink
from tools.served import free_port
from waystation.core.effects import Dial
from waystation.core.errors import HostError, LocalError
from waystation.crypto.certificates import make_local_certificates
from waystation.protocols.bhumi import extension_wire, messages, wire
from waystation.protocols.bhumi.extension_messages import RelaysRequest, Where
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.signed_records import is_signed, sign_presence
from waystation.server.bhumi.outlet import BhumiOutlet
from waystation.server.dialling.dialler import Dialler
from waystation.transport.listen import Listener
from waystation.transport.tls import server_context

PATIENCE_S = 10
ALICE = key_pair(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Certificates for a name that nobody dials here, and their authority."""
    path = tmp_path_factory.mktemp("tls")
    made = make_local_certificates(["elsewhere.example", "127.0.0.1"], datetime.datetime.now(datetime.UTC))
    for name, pem in (("ca", made.ca_pem), ("cert", made.cert_pem), ("key", made.key_pem)):
        (path / name).write_bytes(pem)
    return path


async def met(outlet, url, context=None):
    """Dial a listener and say one thing each way; return what came back."""
    theirs, ours = Sink(echoes=True), Sink()
    listener = Listener(theirs, lambda _: True, lambda _: None, context)
    await listener.open("127.0.0.1", 0)
    try:
        pipe = await outlet.dial(url.format(port=listener.port), ours, ["127.0.0.1"], PATIENCE_S)
        pipe.write([b"ping"])
        await ours.until(lambda: ours.heard)
        pipe.abort()
        await ours.until(lambda: "lost" in ours.reports)
        await theirs.until(lambda: "lost" in theirs.reports)
    finally:
        listener.close()
    return ours.heard


def test_any_certificate_will_do(folder):
    """What passes over a link is public and signed by its owner: nobody has to vouch for the name (BHUMI-LINK)."""
    context = server_context(folder / "cert", folder / "key")

    assert asyncio.run(met(BhumiOutlet(), "tls://relay.example:{port}", context)) == [b"ping"]


def test_bare_tcp_is_dialled_too():
    """Relays on one machine or in one private network need no TLS."""
    assert asyncio.run(met(BhumiOutlet(), "tcp://relay.example:{port}")) == [b"ping"]


def test_named_authority_is_demanded(folder):
    """With peers_ca the authority and the name count: the address that is dialled is not what is proved."""
    context = server_context(folder / "cert", folder / "key")
    outlet = BhumiOutlet(str(folder / "ca"))

    assert asyncio.run(met(outlet, "tls://elsewhere.example:{port}", context)) == [b"ping"]
    with pytest.raises(HostError, match=r"does not name relay\.example"):
        asyncio.run(met(outlet, "tls://relay.example:{port}", context))


def test_foreign_authority_is_refused(folder, tmp_path):
    """A certificate of somebody else's authority is not taken."""
    other = make_local_certificates(["relay.example"], datetime.datetime.now(datetime.UTC))
    (tmp_path / "ca").write_bytes(other.ca_pem)
    context = server_context(folder / "cert", folder / "key")

    with pytest.raises(HostError, match="not trusted"):
        asyncio.run(met(BhumiOutlet(str(tmp_path / "ca")), "tls://elsewhere.example:{port}", context))


def test_missing_authority_is_one_sentence(tmp_path):
    """The node does not start without what it was told to trust."""
    with pytest.raises(HostError, match="cannot use"):
        BhumiOutlet(str(tmp_path / "none"))


def test_nobody_there_is_one_sentence():
    """The dialler logs it as it is."""
    with pytest.raises(HostError, match="nobody listens on"):
        asyncio.run(BhumiOutlet().dial("tcp://relay.example:1", Sink(), ["127.0.0.1"], PATIENCE_S))


@pytest.mark.parametrize("url", ["wss://a:1", "tls://", "tls://a:99999", "tls://a:1/path"])
def test_what_is_no_address_is_refused(url):
    """Adverts are checked before; the operator's list too."""
    with pytest.raises(LocalError, match="not a relay address"):
        BhumiOutlet().parse(url)


def test_place_that_is_not_public_is_not_dialled_for_a_stranger():
    """A name of an advert is judged where it leads; the operator's own may lead anywhere (BHUMI-PRIVATE)."""

    async def main():
        theirs, relay = Sink(echoes=True), Caller()
        listener = Listener(theirs, lambda _: True, lambda _: None, None)
        await listener.open("127.0.0.1", 0)
        dialler = Dialler({"bhumi": BhumiOutlet()})
        url = f"tcp://localhost:{listener.port}"
        async with Rig("bhumi", relay, dialler=dialler) as rig:
            relay.outbox.append(Dial("stranger", url, only_public=True))
            relay.outbox.append(Dial("ours", url, only_public=False))
            relay.outbox.append(Dial("nonsense", "tcp://", only_public=False))
            rig.hub.plan_turn()
            await eventually(lambda: len(relay.failed) == 2 and relay.stands, "the dials")
        listener.close()
        return relay

    with structlog.testing.capture_logs() as lines:
        relay = asyncio.run(main())

    assert sorted(relay.failed) == ["nonsense", "stranger"]
    assert list(relay.stands) == ["ours"]
    assert any("not on the open internet" in line.get("error", "") for line in lines)


def negotiated(node, name="bhumi_plain"):
    """Return a client that has agreed on presence."""
    client = node.client(name)
    client.say(messages.Options(Feature.PRESENCE))
    frame_type, payload = client.frame()
    assert (frame_type, wire.decode_options(payload).features) == (FrameType.OPTIONS, Feature.PRESENCE)
    return client


def asked(client, message):
    """Return the payload that answers a question."""
    client.say(extension_wire.encode_extension(message))
    return client.frame()[1]


def relay_at(home, peers):
    """Return a node process that gossips, tells its address, and dials loopback."""
    address = f"127.0.0.1:{free_port()}"
    told = {"bhumi__plain": address, "bhumi__advertise": f"tcp://{address}", "bhumi__dials_private": "true"}
    return NodeProcess(home, **told, bhumi__peers=",".join(peers)), f"tcp://{address}"


def test_three_processes_gossip_a_presence(tmp_path):
    """Each names only the one before; all three link, and a device at the first is found at the last."""
    with ExitStack() as stack:
        nodes, addresses = [], []
        for number in range(3):
            node, address = relay_at(tmp_path / str(number), addresses[-1:])
            node.start()
            stack.callback(node.stop)
            nodes.append(node)
            addresses.append(address)

        def linked():
            views = [node.ask("GET", "/admin/v1/bhumi")[1] for node in nodes]
            return all(len(view["contacts"]) == len(view["neighbours"]) == 2 for view in views)

        until(linked, "links among all three")
        device = stack.enter_context(negotiated(nodes[0]))
        device.say(i_am(ALICE, device.hello.relay_nonce))
        guest = stack.enter_context(negotiated(nodes[2]))
        adverts = extension_wire.decode_relays(asked(guest, RelaysRequest())).adverts
        relay_id = next(advert.relay_id for advert in adverts if advert.address == addresses[0])
        presence = sign_presence(ALICE, relay_id, int(time.time()), 600)
        device.say(extension_wire.encode_extension(presence))

        def found():
            return extension_wire.decode_where_result(asked(guest, Where(ALICE.public))).entries

        (entry,) = until(found, "a hint")

    assert entry.presence == presence
    assert entry.address == addresses[0]
    assert sorted(advert.address for advert in adverts) == sorted(addresses)
    assert all(is_signed(advert) for advert in adverts)


def test_nodes_of_one_process_link_over_tls(tmp_path):
    """A node that names another one by its TLS address is linked with it, certificate or not, and both say so."""

    async def story():
        async with serving(tmp_path / "far", configured(tmp_path / "far", bhumi__tls="127.0.0.1:0")) as (far, _):
            peer = far.operations.status()["listeners"]["bhumi"]
            async with serving(tmp_path / "near", configured(tmp_path / "near", bhumi__peers=peer)) as (near, _):
                await eventually(
                    lambda: near.operations.view("bhumi")["contacts"] and far.operations.view("bhumi")["contacts"],
                    "a link",
                )
                return (
                    near.operations.view("bhumi")["contacts"],
                    far.operations.view("bhumi")["contacts"],
                    far.operations.status()["sizes"]["bhumi"],
                    peer,
                )

    (ours,), (theirs,), sizes, peer = asyncio.run(story())

    assert (ours["address"], ours["dialled"], theirs["dialled"]) == (peer, True, False)
    assert (sizes["contacts"], sizes["links"], sizes["identities"]) == (1, 0, 1)


def test_node_that_does_not_gossip_dials_nobody(tmp_path):
    """With gossip off the relay has the core only, whatever peers it is told."""

    async def story():
        async with serving(tmp_path / "far") as (far, _):
            port = far.operations.status()["listeners"]["bhumi_plain"].rpartition(":")[2]
            config = configured(tmp_path / "near", bhumi__peers=f"tcp://127.0.0.1:{port}", bhumi__gossip="false")
            async with serving(tmp_path / "near", config) as (near, _):
                return near.operations.view("bhumi")["contacts"], near.operations.status()["sizes"]["bhumi"].get(
                    "links"
                )

    assert asyncio.run(story()) == ([], None)


def test_admin_says_when_there_is_no_relay(tmp_path):
    """The page of a protocol that is off is a refusal, not an empty answer."""
    node = NodeProcess(tmp_path / "node", bhumi__enabled="false")
    node.start()
    try:
        answer = node.ask("GET", "/admin/v1/bhumi")
    finally:
        node.stop()

    assert answer == (404, {"ok": False, "error": "[bhumi] is not enabled", "status": 404})


def test_upstream_door_takes_more_connections_than_one_address_may_have(tmp_path):
    """Nodes of the original speak no TLS, so that all of them come from one forwarder on this machine."""
    node = NodeProcess(tmp_path / "node", bhumi__upstream_listen="127.0.0.1:0")
    node.start()
    with ExitStack() as stack:
        stack.callback(node.stop)
        clients = [stack.enter_context(Client(node.url("bhumi_upstream"))) for _ in range(100)]
        for client in clients:
            client.say(messages.Send(ALICE.public, b"p" * 32, b"ping"))

        assert [client.frame()[0] for client in clients] == [FrameType.SEND_RESULT] * 100


def test_client_that_writes_a_frame_in_pieces_does_not_wait_at_the_upstream_door(tmp_path):
    """The original writes type, length and body one by one, with Nagle on: without quick ACKs each takes 40 ms."""
    node = NodeProcess(tmp_path / "node", bhumi__upstream_listen="127.0.0.1:0", limits__enabled="false")
    node.start()
    with ExitStack() as stack:
        stack.callback(node.stop)
        durations = []
        frame = wire.encode(messages.Send(ALICE.public, b"p" * 32, b"ping"))
        for without_nagle in (True, False):
            client = stack.enter_context(Client(node.url("bhumi_upstream")))
            client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, without_nagle)
            began = time.monotonic()
            for _ in range(50):
                for piece in (frame[:2], frame[2:6], frame[6:]):
                    client.socket.sendall(piece)
                client.frame()
            durations.append(time.monotonic() - began)

    assert durations[1] < durations[0] + 50 * 0.02


def test_upstream_door_shows_the_preimage(tmp_path):
    """Who comes by upstream_listen gets the original's layout without asking (BHUMI-2)."""
    node = NodeProcess(tmp_path / "node", bhumi__upstream_listen="127.0.0.1:0")
    node.start()
    with ExitStack() as stack:
        stack.callback(node.stop)
        assert node.url("bhumi_upstream").startswith("tcp://127.0.0.1:")
        device = stack.enter_context(Client(node.url("bhumi_upstream")))
        device.identify(ALICE, b"p" * 32)
        sender = stack.enter_context(node.client())
        sender.say(messages.Send(ALICE.public, b"p" * 32, b"ping"))
        frame_type, payload = device.frame()

    assert frame_type == FrameType.DELIVER
    assert wire.decode_deliver(payload, with_preimage=True).preimage == b"p" * 32
