"""Laws of protocols.merk.greeting: what is signed, and what is demanded."""

import itertools
import random

import pytest

from tests.protocols.merk.build import SMALL_ORDER_POINTS, changed, malleable
from tests.protocols.merk.net import START, key_of
from waystation.core.effects import Peer
from waystation.crypto.signing import sign
from waystation.protocols.merk import wire
from waystation.protocols.merk.messages import Auth, Frame, Hello, MessageType, Role
from waystation.protocols.merk.relay import authentication
from waystation.protocols.merk.session import Session, State

NODE, ALICE, X = key_of("node"), key_of("alice"), key_of("x")
CHALLENGE = authentication.new_challenge(random.Random(1))


def answer(payload=CHALLENGE, key=ALICE, *, kind=MessageType.HANDSHAKE, signature=None, sender=None):
    """Return an answer to a challenge."""
    return Frame(kind, sender or key.public, signature or sign(key, payload), payload)


def test_challenges_are_fresh_and_cannot_be_typed_content():
    """A thousand differ, and every first byte is 0x80 or more."""
    rng = random.Random(2)
    made = [authentication.new_challenge(rng) for _ in range(1_000)]

    assert len(set(made)) == 1_000
    assert {len(each) for each in made} == {32}
    assert min(each[0] for each in made) >= 0x80
    assert len({each[0] for each in made}) > 100


def test_challenge_and_confirmation_are_as_the_original_sends_them():
    """Zero signature on both; zero sender on the challenge, our key on the confirmation."""
    challenge = wire.decode_frame(authentication.challenge_frame(CHALLENGE))
    confirm = wire.decode_frame(authentication.confirm_frame(NODE.public))

    assert challenge == Frame(1, bytes(32), bytes(64), CHALLENGE)
    assert confirm == Frame(1, NODE.public, bytes(64), b"\x01")


def test_our_own_answer_is_one():
    """What we send to a relay that challenges us would pass with us."""
    assert authentication.is_answer(wire.decode_frame(authentication.answer_frame(CHALLENGE, ALICE)), CHALLENGE)


@pytest.mark.parametrize(
    "frame",
    [
        answer(b"\x80" * 32),
        answer(b"\x80" * 32, signature=sign(ALICE, CHALLENGE)),
        answer(kind=MessageType.DATA),
        answer(signature=sign(X, CHALLENGE)),
        answer(sender=X.public),
        answer(signature=bytes(64)),
        answer(signature=malleable(sign(ALICE, CHALLENGE))),
        answer(signature=changed(sign(ALICE, CHALLENGE), 63)),
        answer(CHALLENGE + b"x"),
        answer(b""),
    ],
    ids=["other", "signed another", "kind", "foreign", "sender", "zero", "malleable", "changed", "long", "empty"],
)
def test_any_other_answer_is_none(frame):
    """The very challenge, signed by the key that sends it, in the one spelling of the signature."""
    assert not authentication.is_answer(frame, CHALLENGE)


@pytest.mark.parametrize("key", SMALL_ORDER_POINTS)
def test_keys_of_small_order_prove_nothing(key):
    """Whatever they sign: with them a zero signature would hold by chance."""
    rng = random.Random(3)
    challenges = [authentication.new_challenge(rng) for _ in range(50)]
    signatures = [bytes(64), key + bytes(32), (1).to_bytes(32, "little") + bytes(32)]

    assert not any(
        authentication.is_answer(Frame(1, key, signature, each), each)
        for each, signature in itertools.product(challenges, signatures)
    )


def test_a_challenge_is_signed_unless_it_reads_as_typed_content():
    """1 to 3 begin text, JSON and files, 0x10 our extended content; everything else is noise."""
    challenges = [bytes((first,)) + b"x" * 31 for first in range(256)]
    refused = [each[0] for each in challenges if not authentication.is_challenge(Frame(1, bytes(32), bytes(64), each))]

    assert refused == [1, 2, 3, 0x10]


@pytest.mark.parametrize(
    ("frame", "holds"),
    [
        (Frame(1, X.public, bytes(64), CHALLENGE), True),
        (Frame(1, bytes(32), b"\x01" + bytes(63), CHALLENGE), False),
        (Frame(1, bytes(32), bytes(64), CHALLENGE[:31]), False),
        (Frame(1, bytes(32), bytes(64), CHALLENGE + b"x"), False),
        (Frame(3, bytes(32), bytes(64), CHALLENGE), False),
    ],
    ids=["named", "signed", "short", "long", "kind"],
)
def test_what_is_a_challenge(frame, holds):
    """32 bytes, unsigned; who sends it may say so, as the original ignores it."""
    assert authentication.is_challenge(frame) is holds


@pytest.mark.parametrize(
    ("frame", "holds"),
    [
        (Frame(1, X.public, bytes(64), b"\x01"), True),
        (Frame(1, bytes(32), bytes(64), b"\x01"), False),
        (Frame(1, X.public, b"\x01" + bytes(63), b"\x01"), False),
        (Frame(1, X.public, bytes(64), b"\x02"), False),
        (Frame(1, X.public, bytes(64), b""), False),
        (Frame(3, X.public, bytes(64), b"\x01"), False),
    ],
    ids=["right", "nameless", "signed", "two", "empty", "kind"],
)
def test_what_is_a_confirmation(frame, holds):
    """One byte 01, unsigned, from a key."""
    assert authentication.is_confirmation(frame) is holds


def pair():
    """Return the two sessions of one link, after both HELLOs: at the node, and at X."""
    ours, theirs = Session(Peer(1), State.CLIENT, START), Session(Peer(2), State.AWAITING_HELLO, START)
    for one, key, other, seed in ((ours, NODE, theirs, 4), (theirs, X, ours, 5)):
        frame = authentication.hello_frame(one, key.public, "ws://me", random.Random(seed))
        other.hello = wire.decode_info_frame(frame)
    return ours, theirs


def test_our_hello_says_who_we_are_and_is_remembered():
    """Role of a node, all features, our address, and the nonce that the proof will cover."""
    one = Session(Peer(1), State.CLIENT, START)
    hello = wire.decode_info_frame(authentication.hello_frame(one, NODE.public, "ws://me", random.Random(4)))

    assert hello == Hello(0b11111, Role.NODE, NODE.public, one.nonce, "ws://me")
    assert len(one.nonce) == 32


def test_proofs_hold_on_both_sides():
    """What each builds the other accepts."""
    ours, theirs = pair()
    from_us = wire.decode_info_frame(authentication.auth_frame(ours, NODE))
    from_them = wire.decode_info_frame(authentication.auth_frame(theirs, X))

    assert authentication.is_proof(theirs, X.public, from_us)
    assert authentication.is_proof(ours, NODE.public, from_them)


def test_a_proof_is_not_its_own_answer():
    """Sent back to the side that made it, it proves nothing."""
    ours, _ = pair()
    mirrored = wire.decode_info_frame(authentication.auth_frame(ours, NODE))

    assert not authentication.is_proof(ours, NODE.public, mirrored)


@pytest.mark.parametrize("part", ["signer", "other", "signer nonce", "other nonce", "signer role", "other role"])
def test_a_proof_covers_every_part(part):
    """Another key, nonce or role on either side breaks it."""
    ours, theirs = pair()
    parts = {
        "signer": X.public,
        "other": NODE.public,
        "signer nonce": theirs.nonce,
        "other nonce": ours.nonce,
        "signer role": 1,
        "other role": 1,
    }
    whole = Auth(sign(X, wire.auth_message(*parts.values())))
    parts[part] = parts[part] ^ 1 if isinstance(parts[part], int) else changed(parts[part], 7)

    assert authentication.is_proof(ours, NODE.public, whole)
    assert not authentication.is_proof(ours, NODE.public, Auth(sign(X, wire.auth_message(*parts.values()))))


def test_a_malleable_proof_is_none():
    """A signature has one spelling."""
    ours, theirs = pair()
    auth = wire.decode_info_frame(authentication.auth_frame(theirs, X))

    assert not authentication.is_proof(ours, NODE.public, Auth(malleable(auth.signature)))


def test_there_is_no_proof_before_both_greetings():
    """Without their HELLO or ours there is nothing to prove."""
    ours, theirs = pair()
    auth = wire.decode_info_frame(authentication.auth_frame(theirs, X))
    kept, ours.nonce = ours.nonce, b""
    unsaid = authentication.is_proof(ours, NODE.public, auth)
    ours.nonce, ours.hello = kept, None

    assert not unsaid
    assert not authentication.is_proof(ours, NODE.public, auth)
