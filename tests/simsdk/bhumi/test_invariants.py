"""Each law, shown a history that breaks it and the one beside it that does not."""

import pytest

from waystation.core.instant import Instant
from waystation.sim.invariants import ViolationError, Watch
from waystation.sim.observations import Unfulfilled
from waystation.simsdk.bhumi import observations as seen
from waystation.simsdk.bhumi.invariants import all_invariants

ALICE, BOB, EVE = bytes([1]) * 32, bytes([2]) * 32, bytes([3]) * 32
PAIRED = (seen.Named("alice", ALICE), seen.Named("bob", BOB), seen.Accepts("bob", "alice"))
ASKS = seen.Asks("bob", "alice", b"on")
CALLED = seen.Called("alice", "bob", BOB, b"on")
ANSWERS = seen.Answers("alice", b"on", b"done")


def broken_by(*history):
    """Return the name of the law that a history breaks, or None."""
    watch = Watch(all_invariants())
    try:
        for observation in (*PAIRED, *history):
            watch.observe(observation, Instant(0))
    except ViolationError as error:
        return error.invariant
    return None


@pytest.mark.parametrize(
    ("law", "history"),
    [
        ("asked-for", [CALLED]),
        ("asked-for", [ASKS, CALLED._replace(peer=EVE)]),
        ("asked-for", [ASKS, CALLED._replace(device="dave")]),
        ("handled-once", [ASKS, CALLED, CALLED]),
        ("true-answer", [ASKS, CALLED, ANSWERS, seen.Replied(b"on", "answered", b"forged")]),
        ("true-answer", [ASKS, seen.Replied(b"on", "answered", b"done")]),
        ("true-answer", [ASKS, seen.Replied(b"on", "failed", b"no")]),
        ("true-answer", [ASKS, seen.Replied(b"on", "uncertain", b"done")]),
        ("true-answer", [ASKS, CALLED, ANSWERS, seen.Recovers("bob", ALICE, "answered", b"forged")]),
        ("only-invited", [seen.Joined("alice", "bob", EVE)]),
        ("only-invited", [seen.Joined("dave", "bob", BOB)]),
        ("only-invited", [seen.Peers("alice", (EVE,))]),
        ("liveness", [Unfulfilled("bob cannot reach alice")]),
    ],
)
def test_breach_is_seen(law, history):
    """Each of these histories breaks its law."""
    assert broken_by(*history) == law


def test_good_history_breaks_nothing():
    """What was asked is handled once and answered, now or later, between two that were paired."""
    history = [
        seen.Joined("alice", "bob", BOB),
        *(ASKS, CALLED, ANSWERS),
        seen.Replied(b"on", "answered", b"done"),
        seen.Recovers("bob", ALICE, "answered", b"done"),
        seen.Peers("alice", (BOB,)),
        seen.Peers("bob", (ALICE,)),
    ]

    assert broken_by(*history) is None
