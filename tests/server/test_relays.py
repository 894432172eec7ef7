"""Laws of server.relays: which relays a configuration gives, and what they are given."""

import json
import random

import pytest

from tests.protocols.strata.build import ALICE, BOB, NOW, did, packet_of, sign_bytes, signed, unsigned
from tests.protocols.strata.build_keys import NAMED, document
from tests.server.bsp_stand_in import proof_bytes
from waystation.core.effects import Close, Peer
from waystation.core.errors import ConfigError
from waystation.core.ids import encode_id52
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.crypto.signing import KeyPair, sign
from waystation.engine.policy import Policy, Stance
from waystation.protocols.bhumi.relay import BhumiRelay
from waystation.protocols.bsp.relay import BspRelay
from waystation.protocols.lprp.relay import LprpRelay
from waystation.protocols.merk.relay import MerkRelay
from waystation.protocols.strata.relay import StrataRelay
from waystation.server.config import load_config
from waystation.server.relays import build_relays
from waystation.store.memory import MemoryStore

OWN = KeyPair.from_seed(b"o" * 32)
NAMED_DID = "did:strata:somebody"


def built(admits=lambda _identity: True, **flags):
    """Return the relays that these flags ask for, ``strata__x="y"`` being strata.x = y."""
    config = load_config(None, {}, {name.replace("__", "."): value for name, value in flags.items()})
    return build_relays(config, OWN, MemoryStore(), random.Random(1), admits)


def strata(**flags):
    """Return the one relay of a configuration without Bhumi, its clock set."""
    relay = built(bhumi__enabled="false", **flags)["strata"]
    relay.set_wall(Instant(0), NOW * MICROSECONDS_PER_SECOND)
    return relay


def answers_to(relay, *packets):
    """Return what a connection is told that publishes these, before any signature is checked."""
    relay.connect(Peer(1), Instant(0), "192.0.2.1")
    for packet in packets:
        relay.receive(Peer(1), json.dumps({"type": "PUBLISH", "packet": packet}).encode(), Instant(0))
    return [json.loads(effect.data) for effect in relay.take() if hasattr(effect, "data")]


def test_every_relay_that_is_on_is_built():
    """All by default, each off by itself."""
    kinds = {"bhumi": BhumiRelay, "bsp": BspRelay, "lprp": LprpRelay, "merk": MerkRelay, "strata": StrataRelay}
    off = {f"{name}__enabled": "false" for name in kinds}

    assert {name: type(relay) for name, relay in built().items()} == kinds
    for name in kinds:
        assert list(built(**{f"{name}__enabled": "false"})) == [other for other in kinds if other != name]
    assert built(**off) == {}


def test_bsp_has_the_identity_of_the_node_and_whom_the_operator_bans_is_turned_away():
    """Its hello names the node's key, and every proven key is put to the same question as in other protocols."""
    banned = KeyPair.from_seed(b"b" * 32)
    asked = []
    relay = built(asked.append, bsp__peers=f'[{{key="{banned.public.hex()}"}}]')["bsp"]
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
    config = load_config(path, {}, {})
    with pytest.raises(ConfigError, match=f"bsp.{name} has the key of this node") as caught:
        build_relays(config, OWN, MemoryStore(), random.Random(1), lambda _: True)

    assert (caught.value.origin, caught.value.line) == (str(path), 2)


def test_bsp_takes_other_keys():
    """Those are what the settings are for; the node among its own peers is passed over."""
    other = KeyPair.from_seed(b"b" * 32).public.hex()
    relay = built(bsp__owners=other, bsp__plain_peer=other, bsp__peers=f'[{{key="{OWN.public.hex()}"}}]')["bsp"]

    assert [peer["key"] for peer in relay.view()["peers"]] == [other]


def test_lprp_has_the_identity_of_the_node_and_its_settings():
    """Clients are told the node's key and what the operator chose."""
    info = built(lprp__leases="closed", lprp__lease_ms="5000")["lprp"].info()

    assert info["public_key"] == OWN.public.hex()
    assert (info["leases"], info["lease_ms"], info["byte_order"]) == ("closed", 5_000, "big")


def test_merk_has_the_identity_of_the_node_and_its_settings():
    """Its key is the node's, and it tells the address that the operator gave."""
    mesh = built(merk__public_url="wss://relay.example.org/merk")["merk"].mesh(Instant(0))

    assert (mesh["node"], mesh["address"]) == (OWN.public.hex(), "wss://relay.example.org/merk")


def test_strata_has_the_identity_of_the_node():
    """Its DID is the one of the node's key."""
    assert strata().relay_id == did(OWN)


def test_limits_are_switched_for_all():
    """With them the 31st packet of a minute is refused, without them none is."""
    packet = signed(unsigned())
    limited = answers_to(strata(), *[packet] * 31)
    free = answers_to(strata(limits__enabled="false"), *[packet] * 31)

    assert [answer["code"] for answer in limited if answer["type"] == "ERROR"] == ["rate_limited"]
    assert [answer["type"] for answer in free] == ["AUTH_CHALLENGE"]


def test_pinned_dids_are_resolved(tmp_path):
    """A name the operator vouches for may publish; one that nobody knows may not."""
    config = tmp_path / "node.toml"
    config.write_text(f'[bhumi]\nenabled = false\n[strata.static_dids]\n"{NAMED_DID}" = "{ALICE.public.hex()}"\n')
    loaded = load_config(config, {}, {})
    relay = build_relays(loaded, OWN, MemoryStore(), random.Random(1), lambda _: True)["strata"]
    relay.set_wall(Instant(0), NOW * MICROSECONDS_PER_SECOND)
    known, unknown = (signed(unsigned(author_id=name)) for name in (NAMED_DID, "did:strata:nobody_"))
    answers = answers_to(relay, known, unknown)

    assert packet_of(known).author_id == NAMED_DID
    assert [answer.get("detail") for answer in answers if answer["type"] == "ERROR"] == ["unresolved_author"]


def test_documents_are_read_from_the_folder(tmp_path):
    """Each *.json is a DID document; other files are none of its business."""
    (tmp_path / "one.json").write_text(json.dumps(document("one")))
    (tmp_path / "notes.txt").write_text("not a document")
    relay = strata(strata__did_documents=str(tmp_path))
    named = signed(unsigned(author_id=NAMED), BOB)

    assert [answer["type"] for answer in answers_to(relay, named)] == ["AUTH_CHALLENGE"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "is not a JSON object"),
        ("{", "cannot be read"),
        ("{}", "did_documents"),
        (b"\xff", "cannot be read"),
        ('{"id": "nothing"}', "did_documents"),
    ],
)
def test_what_is_no_document_is_refused(tmp_path, text, says):
    """The node does not start half informed; the message names the place."""
    (tmp_path / "one.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=says) as caught:
        strata(strata__did_documents=str(tmp_path))

    assert str(tmp_path) in str(caught.value)


def test_a_folder_that_is_none_is_refused(tmp_path):
    """A mistyped path is no empty folder."""
    with pytest.raises(ConfigError, match="is not a folder"):
        strata(strata__did_documents=str(tmp_path / "missing"))


def test_whoever_the_node_does_not_admit_is_sent_away():
    """Both relays ask the node about an identity that has proved itself."""
    asked = []
    relays = built(admits=lambda identity: bool(asked.append(identity)), bhumi__enabled="false")
    relay = relays["strata"]
    relay.set_wall(Instant(0), NOW * MICROSECONDS_PER_SECOND)
    relay.connect(Peer(1), Instant(0))
    challenge = json.loads(relay.take()[0].data)
    signature = sign_bytes(ALICE, (challenge["challenge"] + challenge["server_id"]).encode())
    message = {"type": "AUTH", "author_id": did(ALICE), "challenge": challenge["challenge"], "signature": signature}
    relay.receive(Peer(1), json.dumps(message).encode(), Instant(0))

    assert asked == [ALICE.public]
    assert json.loads(relay.take()[1].data)["detail"] == "banned"


def test_published_rules_are_asked_about():
    """The host of LPRP makes work harder, the relay of Strata lets authors wait, as the policy says."""
    policy = Policy(Stance.ENFORCE)
    policy.set_wall(Instant(0), NOW * MICROSECONDS_PER_SECOND)
    config = load_config(None, {}, {})
    relays = build_relays(config, OWN, MemoryStore(), random.Random(1), lambda _: True, policy)

    assert relays["lprp"]._working._extra_bits == policy.extra_bits
    assert relays["strata"]._throttle._waits == policy.throttle
