"""Laws of merk.client about relays that break the rules: what is refused, and what is never signed."""

import pytest

from tests.protocols.merk.build import (
    ALICE,
    BOB,
    NODE,
    OTHER_NODE,
    changed,
)
from tests.protocols.merk.build_client import (
    FEATURES,
    PEER,
    Pair,
    ready_pair,
)
from waystation.core.instant import after_ms
from waystation.protocols.merk import messages, wire
from waystation.protocols.merk.client.events import (
    Ended,
    Ready,
)
from waystation.protocols.merk.client.machine import (
    HANDSHAKE_MS,
    HELLO_ANSWER_MS,
)
from waystation.protocols.merk.messages import MessageType, Role
from waystation.protocols.merk.payload.contents import Raw, decode_signed_content
from waystation.protocols.merk.payload.sealing import data_frame
from waystation.protocols.merk.refusals import Refusal

DATA = data_frame(BOB.signing, ALICE.signing.public, b"x", header_signature=True)
CONTENT_TYPES = (0x01, 0x02, 0x03, 0x10)  # specs/merk.md 2

# Hostile relays


@pytest.mark.parametrize("first", CONTENT_TYPES)
def test_challenge_that_reads_as_signed_content_is_refused(first):
    """A signature of 32 bytes that begin like a content would be that content, signed by us: nothing is signed."""
    pair = Pair()
    events = pair.challenge(bytes([first]) + b"give him the money, please! ok?")

    assert pair.sent == []
    assert pair.refusal is Refusal.HOSTILE_CHALLENGE
    assert events == [Ended(Refusal.HOSTILE_CHALLENGE)]


@pytest.mark.parametrize("first", range(256))
def test_no_answer_is_signed_content(first):
    """Every challenge is answered but those whose signature would be typed content to our own receivers."""
    pair, challenge = Pair(), bytes([first]) + bytes(24) + b"\x01sixth!"
    pair.challenge(challenge)

    assert bool(pair.sent) is (first not in CONTENT_TYPES)
    assert not pair.sent or isinstance(decode_signed_content(challenge), Raw)


@pytest.mark.parametrize("size", [0, 1, 31, 33, 64])
def test_challenge_of_another_size_is_refused(size):
    """Only 32 bytes are signed."""
    pair = Pair()
    pair.challenge(b"\x80" * size)

    assert (pair.sent, pair.refusal) == ([], Refusal.HOSTILE_CHALLENGE)


def test_second_challenge_is_not_answered():
    """One challenge per connection, before and after the confirmation."""
    early, late = Pair(), ready_pair()
    early.challenge()
    early.challenge(b"\x81" + bytes(31))
    count = len(late.sent)
    late.challenge()

    assert (len(early.sent), early.refusal) == (1, Refusal.MISPLACED_HANDSHAKE)
    assert (len(late.sent), late.refusal) == (count, Refusal.MISPLACED_HANDSHAKE)


def test_signed_challenge_and_confirmation_are_refused():
    """A relay's handshake frames bear no signature."""
    challenged, confirmed = Pair(), Pair()
    challenged.challenge(signature=b"s" * 64)
    confirmed.challenge()
    confirmed.confirm(signature=b"s" * 64)

    assert (challenged.sent, challenged.refusal) == ([], Refusal.MISPLACED_HANDSHAKE)
    assert confirmed.refusal is Refusal.MISPLACED_HANDSHAKE


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\x01\x01", b"\x02"])
def test_confirmation_is_one_byte(payload):
    """Nothing else ends the handshake."""
    pair = Pair()
    pair.challenge()
    pair.confirm(payload)

    assert pair.refusal is Refusal.MISPLACED_HANDSHAKE


def test_confirmation_before_the_challenge_is_refused():
    """A relay that does not ask who we are is none."""
    pair = Pair()
    pair.confirm()

    assert pair.refusal is Refusal.HOSTILE_CHALLENGE


def test_pinned_relay_must_be_the_one():
    """Another key is refused at the confirmation, before HELLO."""
    pair = Pair(pinned_server=OTHER_NODE.public)
    pair.challenge()
    pair.confirm()

    assert pair.refusal is Refusal.WRONG_SERVER
    assert pair.infos() == []


def test_pinned_relay_must_prove_itself():
    """Naming the pinned key is not enough: silence about HELLO is refused, too."""
    pair = Pair(pinned_server=NODE.public)
    pair.challenge()
    pair.confirm()
    events = pair.pass_ms(HELLO_ANSWER_MS)

    assert events == [Ended(Refusal.WRONG_SERVER)]


def test_pinned_relay_that_proves_itself_is_taken():
    """The right key and its proof make it ready."""
    pair = Pair(pinned_server=NODE.public)
    pair.challenge()
    pair.confirm()
    pair.hello()

    assert pair.auth() == [Ready(NODE.public, True, int(FEATURES))]


def test_hello_of_another_key_is_refused():
    """HELLO must name the key of the confirmation, and speak as a node."""
    other, as_client = Pair(), Pair()
    for pair in (other, as_client):
        pair.challenge()
        pair.confirm()
    other.hello(OTHER_NODE.public)
    as_client.hello(role=Role.CLIENT)

    assert (other.refusal, as_client.refusal) == (Refusal.WRONG_SERVER, Refusal.WRONG_SERVER)


@pytest.mark.parametrize("lie", [{"key_pair": OTHER_NODE}, {"roles": (Role.CLIENT, Role.NODE)}])
def test_wrong_proof_is_refused(lie):
    """AUTH of another key, or with the roles exchanged as our own would be, ends the connection."""
    pair = Pair()
    pair.challenge()
    pair.confirm()
    pair.hello()
    pair.auth(**lie)

    assert pair.refusal is Refusal.BAD_PEER_AUTH


def test_second_hello_and_auth_without_hello_are_refused():
    """Both come once, in their order."""
    twice, early = ready_pair(), Pair()
    twice.hello()
    early.challenge()
    early.confirm()
    early.tell(messages.Auth(b"s" * 64))

    assert (twice.refusal, early.refusal) == (Refusal.MISPLACED_HANDSHAKE, Refusal.MISPLACED_HANDSHAKE)


@pytest.mark.parametrize("kind", [MessageType.DATA, MessageType.SIGNED_DATA, MessageType.ENCRYPTED_DATA, 9])
@pytest.mark.parametrize("challenged", [False, True])
def test_frame_before_the_confirmation_is_refused(kind, challenged):
    """Nothing but the handshake comes first."""
    pair = Pair()
    if challenged:
        pair.challenge()
    pair.say(wire.encode_frame(kind, bytes(32)))

    assert pair.refusal is Refusal.FRAME_BEFORE_AUTH


def test_node_info_before_the_confirmation_is_ignored():
    """What a relay says too early does not count, as with the original client."""
    pair = Pair()
    pair.hello()
    pair.tell(messages.AddServer("ws://a"))
    pair.challenge()

    assert pair.closes == []
    assert pair.events == []
    assert len(pair.sent) == 1


@pytest.mark.parametrize("state", ["waiting", "confirming", "ready"])
@pytest.mark.parametrize(
    ("frame", "refusal"),
    [
        (b"", Refusal.SHORT),
        (DATA[:119], Refusal.SHORT),
        (b"Y" + DATA[1:], Refusal.BAD_MAGIC),
        (changed(DATA, 1, 2), Refusal.BAD_VERSION),
        (DATA + b"x", Refusal.BAD_LENGTH),
        (DATA[:-1], Refusal.BAD_LENGTH),
    ],
)
def test_malformed_frame_ends_the_connection(state, frame, refusal):
    """In every state a message that is no frame is one documented refusal, with its status."""
    pair = ready_pair() if state == "ready" else Pair()
    if state == "confirming":
        pair.challenge()
    pair.say(frame)

    assert pair.refusal is refusal
    assert pair.closes[0].status == 1002


def test_closed_machine_ignores_everything():
    """After the end nothing is answered, told or due."""
    pair = Pair()
    pair.challenge(b"")
    count = len(pair.events)
    pair.challenge()
    pair.pass_ms(60_000)
    pair.machine.disconnect(PEER, pair.now)
    pair.collect()

    assert len(pair.events) == count
    assert pair.sent == []
    assert pair.machine.deadline() is None


def test_frames_of_another_connection_are_ignored():
    """A peer that the machine does not know changes nothing."""
    pair = Pair()
    pair.machine.receive(PEER + 1, b"", pair.now)
    pair.machine.disconnect(PEER + 1, pair.now)

    assert pair.collect() == []
    assert pair.machine.deadline() == after_ms(pair.now, HANDSHAKE_MS)


@pytest.mark.parametrize("challenged", [False, True])
def test_handshake_has_a_deadline(challenged):
    """A relay that stops in the middle is left after ten seconds, counted from the connection."""
    pair = Pair()
    if challenged:
        pair.challenge()
    early = pair.pass_ms(HANDSHAKE_MS - 1)
    late = pair.pass_ms(1)

    assert early == []
    assert late == [Ended(Refusal.AUTH_TIMEOUT)]
    assert pair.closes[0].status == 4408
