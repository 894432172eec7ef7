"""Laws of shares: what each name has, and what all have."""

import pytest

from waystation.protocols.merk.relay.shares import Shares


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
