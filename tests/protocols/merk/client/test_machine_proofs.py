"""Laws of merk.client: what it proves of itself, what it believes of others, and what fits."""

from itertools import pairwise

from tests.protocols.merk.build import ALICE, BOB, NODE, OTHER_NODE, signed_anew
from tests.protocols.merk.build_client import (
    FEATURES,
    PEER,
    RELAY_NONCE,
    Pair,
    bound_for_alice,
    encrypted_for_alice,
    original_pair,
    ready_pair,
    text_for_alice,
    text_for_bob,
)
from waystation.core.instant import after_ms
from waystation.crypto.signing import verify
from waystation.protocols.merk import messages, wire
from waystation.protocols.merk.client.events import FrameOutcome, ReceiptArrived
from waystation.protocols.merk.client.machine import (
    ORIGINAL_FRAME_BYTES_MAX,
    PRESENCE_MS,
    PRESENCE_RENEWED_MS,
)
from waystation.protocols.merk.client.seen_messages import SEEN_MS
from waystation.protocols.merk.messages import DeliveryCode, Feature, PresenceKind, Role
from waystation.protocols.merk.payload.contents import Extended, Receipt
from waystation.protocols.merk.payload.sealing import Auth, signed_frame
from waystation.protocols.merk.refusals import Refusal

# What is taken


def test_bound_message_of_another_time_is_dropped():
    """What is older than the memory of messages is refused, whether it is new or not."""
    pair = ready_pair()
    pair.machine.set_wall(pair.now, 1_790_000_000_000_000)
    pair.say(bound_for_alice(time_ms=1_790_000_000_000 - SEEN_MS))

    assert pair.dropped() == [Refusal.STALE]


def test_less_is_not_taken_of_who_is_known_to_say_more():
    """A legacy form in the name of a sender that uses the bound form is refused; of others it is taken as legacy."""
    able, unable = (ready_pair(is_able=lambda key, able=able: able and key == BOB.signing.public) for able in (1, 0))
    stripped = signed_anew(text_for_alice("signed"), bytes(64))
    for pair in (able, unable):
        for frame in (encrypted_for_alice(), stripped, bound_for_alice(number=1), text_for_alice("whole")):
            pair.say(frame)

    assert able.dropped() == [Refusal.DOWNGRADED] * 2
    assert [each.auth for each in able.opened()] == [Auth.BOUND, Auth.BOUND]
    assert [each.auth for each in unable.opened()] == [Auth.LEGACY, Auth.LEGACY, Auth.BOUND, Auth.BOUND]


def test_receipt_counts_in_the_bound_form_alone():
    """What a recipient has taken it says itself, encrypted to us; a signed or redirected word of it is nothing."""
    receipt = Receipt((b"m" * 16, b"n" * 16))
    pair = ready_pair()
    (event,) = pair.say(bound_for_alice(content=receipt))
    pair.say(signed_frame(BOB.signing, ALICE.signing.public, Extended(0, b"r" * 16, receipt)))

    assert event[:2] == ReceiptArrived(BOB.signing.public, receipt.message_ids)[:2]
    assert (pair.arrived(), pair.dropped()) == ([], [Refusal.BAD_CONTENT])


# Proofs


def test_proof_of_the_relay_is_answered_with_ours():
    """AUTH signs our key, this relay's key and both nonces in the roles of client and node; PRESENCE follows."""
    pair = Pair()
    pair.machine.set_wall(pair.now, 1_790_000_000_000_000)
    pair.challenge()
    pair.confirm()
    pair.hello(features=FEATURES | Feature.PRESENCE)
    pair.auth()
    hello, auth, presence = pair.infos()
    ours = ALICE.signing.public
    signed = wire.auth_message(ours, NODE.public, hello.nonce, RELAY_NONCE, Role.CLIENT, Role.NODE)

    assert verify(ours, signed, auth.signature)
    assert wire.is_presence_valid(presence)
    assert (presence.kind, presence.client, presence.node) == (PresenceKind.CONNECTED, ours, NODE.public)
    assert (presence.issued_ms, presence.until_ms) == (1_790_000_000_000, 1_790_000_600_000)


def test_presence_is_renewed_before_it_ends():
    """Every five minutes a new one of ten minutes is said, as long as the connection stands."""
    pair = Pair()
    pair.challenge()
    pair.confirm()
    pair.hello(features=FEATURES | Feature.PRESENCE)
    pair.auth()
    for _ in range(3):
        assert pair.machine.deadline() == after_ms(pair.now, PRESENCE_RENEWED_MS)
        pair.pass_ms(PRESENCE_RENEWED_MS)
    issued = [each.issued_ms for each in pair.infos() if isinstance(each, messages.Presence)]

    assert [later - earlier for earlier, later in pairwise(issued)] == [PRESENCE_RENEWED_MS] * 3
    assert PRESENCE_MS > PRESENCE_RENEWED_MS
    pair.machine.disconnect(PEER, pair.now)
    assert pair.machine.deadline() is None


def test_relay_that_proves_nothing_gets_no_proof():
    """Neither AUTH nor PRESENCE leaves before the relay has proved the key that they name."""
    pair = Pair()
    pair.challenge()
    pair.confirm()
    pair.hello(features=FEATURES | Feature.PRESENCE)
    pair.auth(OTHER_NODE)

    assert [type(each) for each in pair.infos()] == [messages.Hello]
    assert pair.refusal is Refusal.BAD_PEER_AUTH


def test_frame_larger_than_the_relay_takes_is_not_sent():
    """LIMITS says what fits; beyond it nothing leaves, and the connection and all other frames stay."""
    pair = ready_pair()
    pair.tell(messages.Limits(1_000))
    frames = [text_for_bob("x" * size) for size in (1_000, 700)]
    large, small = (pair.machine.send_frame(frame, pair.now) for frame in frames)

    assert pair.collect() == [FrameOutcome(large, DeliveryCode.TOO_LARGE, sent=False)]
    assert pair.sent[-1] == wire.decode_frame(frames[1])
    assert pair.notice(frames[1]) == [FrameOutcome(small, DeliveryCode.DELIVERED)]


def test_relay_of_ours_takes_the_usual_size_until_it_says_otherwise():
    """A relay that says HELLO and no LIMITS takes 8 MiB, an original what its library does."""
    assert ready_pair().machine.frame_bytes_max == messages.FRAME_BYTES_USUAL
    assert original_pair().machine.frame_bytes_max == ORIGINAL_FRAME_BYTES_MAX
    pair = original_pair()
    pair.tell(messages.Limits(1_000))
    assert pair.machine.frame_bytes_max == ORIGINAL_FRAME_BYTES_MAX
