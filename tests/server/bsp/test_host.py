"""Laws of server.bsp.host: what the BSP peer of a node is given, and what the node reports of it."""

import json

import pytest

from tests.server.bsp.stand_in import proof_bytes
from tests.server.build_hosts import OWN, hosts, relays
from waystation.core.effects import Close, Peer
from waystation.core.errors import ConfigError
from waystation.core.ids import encode_id52
from waystation.core.instant import Instant
from waystation.crypto.signing import KeyPair, sign
from waystation.server.home import Home
from waystation.transport.tls import leaf_sha256


def test_bsp_has_the_identity_of_the_node_and_whom_the_operator_bans_is_turned_away():
    """Its hello names the node's key, and every proven key is put to the same question as in other protocols."""
    banned = KeyPair.from_seed(b"b" * 32)
    asked = []
    relay = relays(admits=asked.append, bsp__peers=f'[{{key="{banned.public.hex()}"}}]')["bsp"]
    relay.use_certificate(b"c" * 32)
    relay.connect(Peer(1), Instant(0))
    (hello,) = relay.take()
    nonce = b"n" * 32
    proof = sign(banned, proof_bytes(b"client", hello.data[8:40], nonce, OWN.public, banned.public, b"c" * 32))
    relay.receive(Peer(1), hello.data[:8] + nonce + banned.public + proof, Instant(1))
    said = relay.take()

    assert hello.data[40:] == OWN.public
    assert asked == [banned.public]
    assert [effect.reason.value for effect in said if isinstance(effect, Close)] == ["identity_banned"]


@pytest.mark.parametrize("key", [OWN.public.hex(), encode_id52(OWN.public)], ids=["hexadecimal", "id52"])
@pytest.mark.parametrize(("name", "value"), [("plain_peer", '"{}"'), ("owners", '["{}"]')])
def test_bsp_takes_nobody_for_the_node_itself(tmp_path, name, value, key):
    """An owner or peer of bare records with the node's own key is a mistake, told with its place in the file."""
    path = tmp_path / "node.toml"
    path.write_text(f"[bsp]\n{name} = {value.format(key)}\n")
    with pytest.raises(ConfigError, match=f"bsp.{name} has the key of this node") as caught:
        hosts(path)

    assert (caught.value.origin, caught.value.line) == (str(path), 2)


def test_bsp_takes_other_keys():
    """Those are what the settings are for; the node among its own peers is passed over."""
    other = KeyPair.from_seed(b"b" * 32).public.hex()
    relay = relays(bsp__owners=other, bsp__plain_peer=other, bsp__peers=f'[{{key="{OWN.public.hex()}"}}]')["bsp"]

    assert [peer["key"] for peer in relay.view()["peers"]] == [other]


def test_description_has_the_address_and_nothing_about_groups():
    """The address to hand out has the node's key; the path of bsp+wss is there when a port carries it."""
    groups = f'[{{client_id = "{"01" * 32}", descriptor = "aa", name = "tea", share_with = ["{"22" * 32}"]}}]'
    host = hosts(bsp__groups=groups)["bsp"]
    plain, web = host.describe({"bsp": 5}), host.describe({"bsp": 5, "bsp_wss": 6})

    assert plain["address"] == f"bsp+tls://{encode_id52(OWN.public)}@HOST:5"
    assert (plain["web_port"], plain["paths"]) == (None, [])
    assert (web["web_port"], web["paths"]) == (6, ["/bsp"])
    assert not any(word in json.dumps(plain) for word in ("tea", "22" * 32, "01" * 32))


def test_description_tells_whether_the_node_is_a_mailbox():
    """Without owners it keeps nothing for others, and does not claim to."""
    assert hosts(bsp__owners="22" * 32)["bsp"].describe({})["features"] == ["mailbox"]
    assert hosts()["bsp"].describe({})["features"] == []


def test_each_endpoint_has_the_hash_of_its_own_certificate(tmp_path):
    """Tables may name different certificates; behind a foreign proxy it is the one that the operator names."""
    homes = {table: Home(tmp_path / table) for table in ("bsp", "merk", "strata")}
    for home in homes.values():
        home.ensure()
    host = hosts(
        merk__tls="true", merk__ws="127.0.0.1:1", strata__ws="127.0.0.1:2", bsp__terminator_certificate="ab" * 32
    )["bsp"]
    host.use_certificates(lambda table: leaf_sha256(homes[table].cert_path))

    assert host.relay._machine._certificates == {
        "": leaf_sha256(homes["bsp"].cert_path),
        "wss_merk": leaf_sha256(homes["merk"].cert_path),
        "wss_strata": b"\xab" * 32,
    }
