"""NODE-ACCESS on real sockets: a relay for friends is one setting, for all five protocols, and a reload ends visits."""

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from tests.server.bsp.stand_in import StandIn
from tests.server.build import Client, key_pair
from tests.server.build_node import configured, serving
from tests.server.lprp import stand_in as other
from tests.server.whole.test_node_datagrams import party_of
from waystation.core.errors import HostError, RemoteError
from waystation.core.ids import encode_id52
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.client.identity import Identity
from waystation.protocols.strata.packet import packet_id_text
from waystation.sdk import merk
from waystation.sdk.errors import RelayUnreachableError
from waystation.sdk.strata.relay import RelayClient
from waystation.transport.http_get import http_get

FRIEND, STRANGER = key_pair(7), key_pair(8)
OPEN = {
    "lprp__udp": "127.0.0.1:0",
    "lprp__pow_base_bits_lease": "0",
    "lprp__pow_adaptive": "false",
    "merk__ws": "127.0.0.1:0",
    "strata__ws": "127.0.0.1:0",
    "bsp__tls": "127.0.0.1:0",
    "bsp__peers": json.dumps([{"key": pair.public.hex()} for pair in (FRIEND, STRANGER)]).replace(":", "="),
}


async def visit(tmp_path, look, **settings):
    """Return what ``look`` sees of a node for friends, and why the node has refused."""
    async with serving(tmp_path, configured(tmp_path, **(OPEN | settings))) as (server, _):
        seen = await look(server, server.operations.status()["listeners"])
        return seen, server.operations.status()["totals"]["refusals"]


def told(function, *arguments):
    """Return in another thread what a blocking client says, or that its connection is closed."""

    def ask():
        try:
            return function(*arguments)
        except (ConnectionError, EOFError):
            return "closed"

    return asyncio.to_thread(ask)


def test_bhumi_takes_the_devices_of_friends(tmp_path):
    """I_AM of anybody else closes the connection; a connection without I_AM, as senders have, stands."""

    def identify(url, pair):
        with Client(url) as device:
            device.identify(pair)
            return "taken"

    async def look(_server, urls):
        sender = await asyncio.to_thread(Client, urls["bhumi_plain"])
        answers = [await told(identify, urls["bhumi_plain"], pair) for pair in (FRIEND, STRANGER)]
        sender.close()
        return answers

    with capture_logs() as logged:
        answers, refused = asyncio.run(visit(tmp_path, look, access__allow=FRIEND.public.hex()))
    named = [(line["protocol"], line["id52"], line["why"]) for line in logged if line["event"] == "identity.refused"]

    assert answers == ["taken", "closed"]
    assert refused == {("bhumi", "identity_banned"): 1}
    assert named == [("bhumi", encode_id52(STRANGER.public), "not in access.allow")]


def test_lprp_leases_to_friends(tmp_path):
    """Anybody else gets 404 for a lease, and no answer to the rest."""

    async def look(server, _urls):
        friend, stranger = party_of(server, 2), party_of(server, 3)
        leases = [await asyncio.to_thread(party.lease) for party in (friend, stranger)]
        await asyncio.to_thread(stranger.say, stranger.packet(other.HEARTBEAT))
        silence = await asyncio.to_thread(stranger.hear, 0.05)
        for party in (friend, stranger):
            party.socket.close()
        return leases, silence

    friend = KeyPair.from_seed(bytes([2]) * 32).public
    (leases, silence), refused = asyncio.run(visit(tmp_path, look, access__allow=friend.hex()))

    assert leases[0] == other.GRANTED
    assert leases[1] != other.GRANTED
    assert silence is None
    assert refused[("lprp", "identity_banned")] == 1


def test_merk_takes_the_clients_of_friends(tmp_path):
    """Anybody else is closed after its proof."""
    friend, _ = (merk.create_keys(tmp_path / name) for name in ("friend", "stranger"))

    async def look(_server, urls):
        async with merk.open(tmp_path / "friend", urls["merk"], only=True) as client:
            with pytest.raises(RelayUnreachableError):
                async with merk.open(tmp_path / "stranger", urls["merk"], only=True):
                    pass
            return client.public_key

    key, refused = asyncio.run(visit(tmp_path / "home", look, access__allow=friend.signing.public.hex()))

    assert key == friend.signing.public
    assert refused[("merk", "identity_banned")] >= 1


def test_strata_takes_who_proves_to_be_a_friend(tmp_path):
    """A friend publishes; another identity is closed, and who proves none may neither write, nor read, nor fetch."""
    friend, stranger = Identity.of(FRIEND), Identity.of(STRANGER)

    async def look(_server, urls):
        url = urls["strata"]
        async with RelayClient(url, identity=friend) as one:
            posted = await one.post({"type": "POST", "text": "hello"})
        for client in (RelayClient(url, identity=stranger), RelayClient(url, identity=friend, authenticate=False)):
            async with client as two:
                with pytest.raises((RemoteError, HostError)):
                    await two.post({"type": "POST", "text": "hello"}, timeout_s=2)
        page = url.replace("ws:", "http:")
        packet = await http_get(f"{page}/packets/{packet_id_text(posted.packet.packet_id)}")
        about = await http_get(page.removesuffix("/strata") + "/.well-known/strata-relay.json")
        return packet.status, about.status

    statuses, counted = asyncio.run(visit(tmp_path, look, access__allow=friend.did))

    assert statuses == (403, 200)
    assert counted[("strata", "unauthenticated")] >= 2


def test_bsp_takes_friends_among_its_peers(tmp_path):
    """A peer of the configuration that is not in the list hears what an unknown key hears."""

    def shake(url, pair, key):
        with StandIn(url) as device:
            return device.shake_hands(pair, key)

    async def look(server, urls):
        key = bytes.fromhex(server.operations.status()["node"]["public_key"])
        return [await asyncio.to_thread(shake, urls["bsp"], pair, key) for pair in (FRIEND, STRANGER)]

    statuses, refused = asyncio.run(visit(tmp_path, look, access__allow=FRIEND.public.hex()))

    assert statuses == [0, 1]
    assert refused == {("bsp", "identity_banned"): 1}


@pytest.mark.parametrize("line", ['allow = ["192.0.2.0/24"]', 'deny = ["127.0.0.0/8"]', 'deny = ["{friend}"]'])
def test_reload_ends_who_is_excluded(tmp_path, line):
    """A list that is changed while the node runs closes the connections of those whom it leaves out, and no others."""
    file = tmp_path / "node.toml"
    file.write_text("")

    async def look():
        async with serving(tmp_path / "home", configured(tmp_path / "home", file)) as (server, _):
            device = await asyncio.to_thread(Client, server.operations.status()["listeners"]["bhumi_plain"])
            await asyncio.to_thread(device.identify, FRIEND)
            server.reload()
            await asyncio.to_thread(device.identify, FRIEND)
            file.write_text("[access]\n" + line.replace("{friend}", FRIEND.public.hex()))
            server.reload()
            said = await asyncio.to_thread(device.rest)
            device.close()
            return said, server.operations.status()["totals"]["refusals"]

    said, refused = asyncio.run(look())
    reason = {"a": "not_allowed", "d": "denied"}[line[0]] if "/" in line else "identity_banned"

    assert said == b""
    assert refused == {("bhumi", reason): 1}


def test_lists_together_demand_both(tmp_path):
    """A friend from elsewhere is not even heard: its address is judged first."""

    async def look(_server, urls):
        return await told(lambda: Client(urls["bhumi_plain"]).hello)

    said, refused = asyncio.run(visit(tmp_path, look, access__allow=f"192.0.2.0/24,{FRIEND.public.hex()}"))

    assert said == "closed"
    assert refused == {("bhumi", "not_allowed"): 1}
