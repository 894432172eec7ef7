"""Laws of protocols.bhumi.extension_messages: what each says that the wire does not."""

from tests.protocols.bhumi.build import ALICE, BOB
from waystation.protocols.bhumi import messages
from waystation.protocols.bhumi.extension_messages import FRAME_TYPES, Presence, QaVerdict, RelayAd


def test_each_message_has_its_frame():
    """Every extension type but OPTIONS carries something, and nothing else does."""
    extensions = {kind for kind in messages.FrameType if kind > messages.FrameType.OPTIONS}

    assert set(FRAME_TYPES.values()) == extensions


def test_a_record_belongs_to_who_signs_it():
    """A presence is the device's, an advert the relay's (spec 7.1)."""
    assert Presence(ALICE.public, BOB.public, 1, 2, b"").owner == ALICE.public
    assert RelayAd(BOB.public, 1, 2, "tcp://a:1", b"").owner == BOB.public


def test_verdicts_are_those_of_the_document():
    """The numbers of QA_REPORT."""
    assert [verdict.name for verdict in QaVerdict] == ["REFUSED", "OK", "WRONG", "UNREACHABLE", "SLOW"]
    assert list(map(int, QaVerdict)) == [0, 1, 2, 3, 4]
