"""Laws of rules.twins: ourselves are no twin, another node with our key is, and so are two that take turns."""

from waystation.core.instant import Instant
from waystation.rules.twins import OVERLAPS_MIN, OVERLAPS_WITHIN_MS, TWINS_MAX, Overlaps, Twin, Twins

KEY = b"k" * 32
NOW = Instant(5_000_000)
HERE, THERE = Twin(KEY, ("here",)), Twin(KEY, ("there",))


def test_own_connection_is_no_twin():
    """Both ends of a connection to ourselves have the same challenge, signed before it is checked."""
    twins = Twins()
    twins.sign(b"challenge")
    twins.proved_ours(b"challenge", HERE, NOW)

    assert not twins.names_ours(b"challenge", THERE, NOW)
    assert twins.since(Instant(0)) == []


def test_challenge_that_we_did_not_sign_was_signed_by_a_twin():
    """Somebody else proves our key to us."""
    twins = Twins()
    twins.sign(b"another")
    twins.proved_ours(b"challenge", HERE, NOW)

    assert twins.since(NOW) == [HERE]
    assert twins.since(Instant(NOW + 1)) == []


def test_challenge_that_we_did_not_send_came_from_a_twin():
    """Somebody else answers under our key where we dialled."""
    twins = Twins()
    twins.sign(b"challenge")

    assert twins.names_ours(b"challenge", THERE, NOW)
    assert twins.since(NOW) == [THERE]


def test_memory_is_bounded():
    """The twin that was met longest ago is forgotten."""
    twins = Twins()
    for number in range(TWINS_MAX + 5):
        twins.note(Twin(bytes([number]), ()), Instant(number))

    assert [twin.key[0] for twin in twins.since(Instant(0))] == list(range(5, TWINS_MAX + 5))


def test_turns_within_ten_minutes_are_two_nodes():
    """A node that moves leaves a connection behind once; two that replace each other do so again and again."""
    overlaps, step = Overlaps(), OVERLAPS_WITHIN_MS * 1_000 // (OVERLAPS_MIN - 1)

    assert [overlaps.note("merk", KEY, Instant(number * step)) for number in range(OVERLAPS_MIN)] == [
        False,
        False,
        True,
    ]
    assert not overlaps.note("merk", b"other", NOW)


def test_rare_turns_are_not():
    """What lies further apart is a network that changes."""
    overlaps, step = Overlaps(), OVERLAPS_WITHIN_MS * 1_000

    assert not any(overlaps.note("merk", KEY, Instant(number * step)) for number in range(10))
