"""Laws of a mailbox in memory, and of shares: what each name has, and what all have."""

import pytest

from tests.protocols.merk.build_mail import BOB, HOME, presence_of
from tests.protocols.merk.net import WALL_MS
from waystation.protocols.merk.relay.mail import Mailbox, Shares


@pytest.mark.parametrize(("at_ms", "takes"), [(WALL_MS, True), (WALL_MS + 4, True), (WALL_MS + 5, False)])
def test_a_mailbox_takes_frames_while_its_owners_word_holds(at_ms, takes):
    """At ``until`` it is over."""
    box = Mailbox(BOB.public, presence_of(BOB, until_ms=WALL_MS + 5), WALL_MS, HOME)

    assert box.takes_at(at_ms) is takes


def test_a_mailbox_without_its_owners_word_takes_nothing():
    """What is left of a damaged one could not be proved to other nodes."""
    assert not Mailbox(BOB.public, None, WALL_MS, HOME).takes_at(WALL_MS)
    assert Mailbox(BOB.public, None, WALL_MS, HOME).mail_bytes == 0


def test_what_is_counted_out_is_forgotten():
    """A name without frames takes no memory."""
    shares = Shares()
    shares.add("a", 5)
    shares.add("a", 7)
    shares.add("b", 1)
    shares.add("a", 7, -1)
    shares.add("a", 5, -1)

    assert (len(shares), shares.count, shares.size) == (1, 1, 1)
    assert shares.of("a") == (0, 0)


@pytest.mark.parametrize(
    ("size", "count_max", "bytes_max", "fits"), [(5, 3, 15, True), (6, 3, 15, False), (0, 2, 99, False)]
)
def test_a_share_ends_at_its_count_and_at_its_bytes(size, count_max, bytes_max, fits):
    """One more is one too many, and so is one byte more."""
    shares = Shares()
    shares.add("a", 5)
    shares.add("a", 5)

    assert shares.has_room(size, count_max, bytes_max) is fits
    assert shares.has_room_for("a", size, count_max, bytes_max) is fits
    assert shares.has_room_for("b", size, count_max, bytes_max)


def test_nobody_has_no_share_to_fill():
    """Where neither address nor node is known, only the limits of all hold."""
    shares = Shares()
    shares.add("", 100)

    assert shares.has_room_for("", 1, 1, 1)
    assert not shares.has_room(1, 1, 1)
