"""Laws of cli.bhumi_show: every event has a document and a sentence, and no peer steers the terminal."""

import json

import pytest

from waystation.cli.bhumi.show import as_document, document_of, print_reply, sentence_of
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.extension_messages import QaVerdict
from waystation.protocols.bhumi.payload.contents import ContentType
from waystation.sdk.bhumi import (
    AuthorityLearned,
    Denied,
    DeviceEvent,
    Disconnected,
    Handled,
    Listening,
    Moved,
    Outcome,
    PeerJoined,
    PeerOffline,
    PeerOnline,
    PresenceAsserted,
    Probed,
    ProbeRefused,
    Reply,
    Request,
    Trouble,
)

PEER = KeyPair.from_seed(bytes(32)).public
EVENTS = [
    Listening("tls://a:1", True),
    Disconnected("tls://a:1", "it broke", 1.234),
    PeerJoined(PEER, "bob"),
    Denied(Request(PEER, "bob", ContentType.COMMAND, b"{}"), "this peer may not send 'led'"),
    Handled(Request(PEER, "bob", ContentType.TEXT, b"hi"), True),
    Trouble("no room"),
    Moved("tls://a:1", "tls://b:1"),
    AuthorityLearned("tls://a:1", bytes(32)),
    PresenceAsserted("tls://a:1", 600),
    ProbeRefused("tls://a:1", "tls://c:1", "unknown"),
    PeerOffline(PEER, "bob", 1_000.0),
    PeerOnline(PEER, "bob", 1_060.5),
    Probed("tls://c:1", QaVerdict.SLOW, 2.5),
]


def test_every_event_is_known():
    """An event that nobody can show would end the listener."""
    assert {type(event) for event in EVENTS} == set(DeviceEvent.__args__)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_event_has_a_document_and_a_sentence(event):
    """The document is JSON that names its kind; all but a request can be said in a sentence."""
    document = document_of(event, "me")

    assert json.loads(json.dumps(document)) == document
    assert document["event"]
    if not isinstance(event, Handled):
        assert sentence_of(document)


def test_probe_is_shown_with_its_verdict():
    """Only whoever runs the device sees it."""
    document = document_of(EVENTS[-1], "me")

    assert document == {"event": "probed", "candidate": "tls://c:1", "verdict": "slow", "latency_ms": 2500.0}
    assert sentence_of(document) == "tried tls://c:1: slow, 2500.0 ms; the result stays here"


def test_legacy_pairing_is_named():
    """Whoever joins by an invite without a secret is shown as legacy, with what that means."""
    document = document_of(PeerJoined(PEER, "bob", is_legacy=True), "me")

    assert document["legacy"] is True
    assert sentence_of(document).endswith("legacy: the invite had no secret, so a relay may have used it")


def test_control_characters_are_shown():
    """What a peer sends is printed, not obeyed."""
    assert "\x1b" not in sentence_of(document_of(Trouble("\x1b[2J"), "me"))


@pytest.mark.parametrize(("content", "document"), [(b"hi", {"content": "hi"}), (b"\xff", {"content_base64": "/w=="})])
def test_content_is_text_or_base64(content, document):
    """JSON has no bytes."""
    assert as_document("content", content) == document


@pytest.mark.parametrize("as_json", [True, False])
def test_reply_goes_to_stdout(capsys, as_json):
    """A refusal is an answer, with a sentence for people."""
    print_reply("alice", Reply(Outcome.FAILED, 1, b"no", 0.5, 2), as_json=as_json)
    out, err = capsys.readouterr()

    if as_json:
        shown = {"status": "refused", "peer": "alice", "reply": "no", "latency_ms": 500.0, "tries": 2}
        assert (json.loads(out), err) == (shown, "")
    else:
        assert (out, err) == ("no\n", "waystation: alice: the peer could not handle the request: no\n")
