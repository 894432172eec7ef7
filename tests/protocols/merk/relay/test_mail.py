"""Laws of a mailbox in memory."""

import pytest

from tests.protocols.merk.build_mail import BOB, HOME, presence_of
from tests.protocols.merk.net import WALL_MS
from waystation.protocols.merk.relay.mail import Mailbox


@pytest.mark.parametrize(("at_ms", "takes"), [(WALL_MS, True), (WALL_MS + 4, True), (WALL_MS + 5, False)])
def test_a_mailbox_takes_frames_while_its_owners_word_holds(at_ms, takes):
    """At ``until`` it is over."""
    box = Mailbox(BOB.public, presence_of(BOB, until_ms=WALL_MS + 5), WALL_MS, HOME)

    assert box.takes_at(at_ms) is takes


def test_a_mailbox_without_its_owners_word_takes_nothing():
    """What is left of a damaged one could not be proved to other nodes."""
    assert not Mailbox(BOB.public, None, WALL_MS, HOME).takes_at(WALL_MS)
    assert Mailbox(BOB.public, None, WALL_MS, HOME).mail_bytes == 0
