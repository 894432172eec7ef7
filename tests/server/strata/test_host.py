"""Laws of server.strata.host: what the Strata relay of a node is given, and what the node reports of it."""

import json

import pytest

from tests.protocols.strata.build import ALICE, BOB, NOW, did, packet_of, sign_bytes, signed, unsigned
from tests.protocols.strata.build_keys import NAMED, document
from tests.server.build_hosts import OWN, at, hosts, relays
from waystation.core.effects import Peer
from waystation.core.errors import ConfigError
from waystation.core.instant import Instant
from waystation.server.config.load import load_config

NAMED_DID = "did:strata:somebody"


def strata(**flags):
    """Return the relay of a configuration, its clock set."""
    return at(relays(**flags)["strata"], NOW)


def answers_to(relay, *packets):
    """Return what a connection is told that publishes these, before any signature is checked."""
    relay.connect(Peer(1), Instant(0), "192.0.2.1")
    for packet in packets:
        relay.receive(Peer(1), json.dumps({"type": "PUBLISH", "packet": packet}).encode(), Instant(0))
    return [json.loads(effect.data) for effect in relay.take() if hasattr(effect, "data")]


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
    relay = at(relays(config)["strata"], NOW)
    known, unknown = (signed(unsigned(author_id=name)) for name in (NAMED_DID, "did:strata:nobody_"))
    answers = answers_to(relay, known, unknown)

    assert packet_of(known).author_id == NAMED_DID
    assert [answer.get("detail") for answer in answers if answer["type"] == "ERROR"] == ["unresolved_author"]


def test_identity_that_the_node_does_not_admit_is_rejected():
    """The relay asks the node about an identity that has proved itself."""
    asked = []
    relay = at(relays(admits=lambda identity: bool(asked.append(identity)))["strata"], NOW)
    relay.connect(Peer(1), Instant(0))
    challenge = json.loads(relay.take()[0].data)
    signature = sign_bytes(ALICE, (challenge["challenge"] + challenge["server_id"]).encode())
    message = {"type": "AUTH", "author_id": did(ALICE), "challenge": challenge["challenge"], "signature": signature}
    relay.receive(Peer(1), json.dumps(message).encode(), Instant(0))

    assert asked == [ALICE.public]
    assert json.loads(relay.take()[1].data)["detail"] == "banned"


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


def test_status_has_upstreams_and_rejected_clients():
    """Both are there from the start, so that a reader of the status need not ask whether they are."""
    assert hosts()["strata"].status() == {"upstreams": {}, "turned_away": []}


def test_block_lists_reload():
    """A packet of an author who was blocked meanwhile is refused."""
    host = hosts()["strata"]
    relay = at(host.relay, NOW)
    host.reload(load_config(None, {}, {"strata.blocked_authors": did(ALICE)}))

    (refusal,) = [answer for answer in answers_to(relay, signed(unsigned())) if answer["type"] == "ERROR"]
    assert refusal["code"] == "blocked_author"


def test_description_follows_the_settings():
    """Path, limits and public address are those in force."""
    found = hosts(strata__path="/s", strata__max_age_s="3600")["strata"].describe({"strata": 3})

    assert (found["port"], found["paths"], found["limits"]["max_age_s"], found["url"]) == (3, ["/s"], 3_600, None)


def manifest(asked_as="", **flags):
    """Return the manifest of a configuration as somebody gets it who asked for ``Host``."""
    host = hosts(**flags)["strata"]
    at(host.relay, NOW)
    return json.loads(host.pages()("/.well-known/strata-relay.json", "192.0.2.1", Instant(0), asked_as).body)


@pytest.mark.parametrize(
    ("asked_as", "flags", "endpoint"),
    [
        ("relay.example:8080", {}, "ws://relay.example:8080/strata"),
        ("[2001:db8::1]:80", {"strata__tls": "true", "merk__tls": "true"}, "wss://[2001:db8::1]:80/strata"),
        ("relay.example", {"strata__path": "/other"}, "ws://relay.example/other"),
        ("relay.example", {"strata__public_url": "wss://a.example/strata"}, "wss://a.example/strata"),
        ("", {}, None),
        ("a b", {}, None),
        ("x/../y", {}, None),
    ],
)
def test_manifest_names_the_address_that_was_asked(asked_as, flags, endpoint):
    """Without ``public_url`` it is derived from the request's Host; what is no host gives none."""
    assert manifest(asked_as, **flags)["ws_endpoint"] == endpoint


def test_manifest_says_how_long_is_logged():
    """Journal and archive keep what they record of packets; addresses are logged where the operator wants them."""
    assert manifest()["privacy"] == {"log_retention_hours": 14 * 24, "addresses_logged": False}
    flags = {"journal__archive": "false", "journal__retention_days": "2", "node__connection_log": "address"}
    assert manifest(**flags)["privacy"] == {"log_retention_hours": 48, "addresses_logged": True}
    assert manifest(journal__enabled="false")["privacy"]["log_retention_hours"] == 0
