"""Laws of protocols.strata.trust."""

import pytest

from tests.protocols.strata.build import ALICE, BOB, NOW, did, in_force, packet
from tests.protocols.strata.drive import Drive
from waystation.protocols.strata.limits import DEFAULT_LIMITS, StrataLimits
from waystation.protocols.strata.relay.trust import WINDOW_S, TrustBudget, is_strong
from waystation.store.memory import MemoryStore


def budget():
    """Return a budget over an empty store."""
    return TrustBudget(MemoryStore().packets, in_force())


def edge(number, strength=0.9, pair=ALICE, **fields):
    """Return a trust edge."""
    return packet(
        {"type": "TRUST_EDGE", "from": did(pair), "to": f"did:a:{number}", "strength": strength}, pair, **fields
    )


@pytest.mark.parametrize(
    ("content", "strong"),
    [
        ({"type": "TRUST_EDGE", "strength": 0.51}, True),
        ({"type": "TRUST_EDGE", "strength": 1}, True),
        ({"type": "TRUST_EDGE", "strength": 0.5}, False),
        ({"type": "TRUST_EDGE"}, False),
        ({"type": "TRUST_REVOCATION", "strength": 1}, False),
    ],
)
def test_strength(content, strong):
    """Above one half is strong, and a revocation never is."""
    assert is_strong(content) is strong


@pytest.mark.parametrize(
    ("strong", "limit"), [(True, DEFAULT_LIMITS.trust_edges_strong), (False, DEFAULT_LIMITS.trust_edges_weak)]
)
def test_the_window_rolls(strong, limit):
    """The edge after the last allowed one waits until the first is 24 hours old, and then one place is free."""
    edges = budget()
    for number in range(limit):
        assert edges.refuses("a", strong=strong, received_at=NOW + number) is None
        edges.spend("a", strong=strong, received_at=NOW + number)
    refusal = edges.refuses("a", strong=strong, received_at=NOW + limit)
    assert dict(refusal.extra)["retry_after"] == WINDOW_S - limit
    assert edges.refuses("a", strong=strong, received_at=NOW + WINDOW_S - 1) is not None
    assert edges.refuses("a", strong=strong, received_at=NOW + WINDOW_S) is None
    edges.spend("a", strong=strong, received_at=NOW + WINDOW_S)

    assert edges.refuses("a", strong=strong, received_at=NOW + WINDOW_S) is not None
    assert edges.refuses("b", strong=strong, received_at=NOW) is None
    assert edges.refuses("a", strong=not strong, received_at=NOW + WINDOW_S) is None


def test_replicas_out_of_order_are_counted_in_their_own_day():
    """Edges of another relay come with old witness times in any order; each counts where it was received."""
    edges = budget()
    for number in range(DEFAULT_LIMITS.trust_edges_strong):
        edges.spend("a", strong=True, received_at=NOW + number)
    edges.spend("a", strong=True, received_at=NOW - 2 * WINDOW_S)

    assert edges.refuses("a", strong=True, received_at=NOW - 2 * WINDOW_S) is None
    assert edges.refuses("a", strong=True, received_at=NOW + DEFAULT_LIMITS.trust_edges_strong) is not None
    assert edges.refuses("a", strong=True, received_at=NOW + WINDOW_S) is None


def test_those_forgotten_are_counted_again_from_the_store():
    """Memory holds a bounded number of authors; the count of the others is found again."""
    drive = Drive(rate_limits=False, limits=StrataLimits(trust_authors=1))
    peer = drive.connect()
    for number in range(DEFAULT_LIMITS.trust_edges_strong):
        drive.publish(peer, edge(number))
    drive.publish(peer, edge(0, pair=BOB))

    assert drive.publish(peer, edge(99))["code"] == "rate_limited"
    assert drive.publish(peer, edge(99, pair=BOB))["type"] == "OK"


def test_refused_edges_spend_nothing():
    """Only what is stored counts: duplicates and edges over the limit are free."""
    drive = Drive(rate_limits=False)
    peer = drive.connect()
    for number in range(DEFAULT_LIMITS.trust_edges_strong - 1):
        drive.publish(peer, edge(number))
        drive.publish(peer, edge(number))

    assert drive.publish(peer, edge(99))["type"] == "OK"


def test_the_budget_can_be_switched_off():
    """An operator may leave it to others."""
    drive = Drive(rate_limits=False, trust_edge_budget=False)
    peer = drive.connect()

    assert {drive.publish(peer, edge(number))["type"] for number in range(30)} == {"OK"}
