"""Laws of engine.refused_peers: the latest peers of each reason, within bounds."""

from waystation.core.facts import Refused
from waystation.core.instant import Instant
from waystation.engine.refused_peers import PEERS_PER_REASON_MAX, REASONS_MAX, RefusedPeers


def identity(number):
    """Return the 32 bytes of an identity."""
    return number.to_bytes(32, "big")


def test_latest_peer_comes_first_with_its_count():
    """A peer's refusals are summed; the one refused last is listed first."""
    refused = RefusedPeers()
    refused.note(Refused("merk", identity(1), "strikes", 2), Instant(10))
    refused.note(Refused("merk", identity(2), "strikes"), Instant(20))
    refused.note(Refused("merk", identity(1), "strikes", 3), Instant(30))

    assert refused.of("merk", "strikes") == [
        (f"id:{identity(1).hex()}", 5, 30),
        (f"id:{identity(2).hex()}", 1, 20),
    ]
    assert refused.of("bhumi", "strikes") == refused.of("merk", "other") == []


def test_peer_without_identity_is_its_network():
    """A connection that admission refused is named by its network; a fact that names neither is left out."""
    refused = RefusedPeers()
    refused.note(Refused("merk", None, "address_full", 1, b"net:203.0.113.0/24"), Instant(1))
    refused.note(Refused("merk", None, "address_full"), Instant(2))

    assert refused.of("merk", "address_full") == [("net:203.0.113.0/24", 1, 1)]


def test_tables_are_bounded():
    """More peers or more reasons than there is room for push out the oldest peer, and are left out."""
    refused = RefusedPeers()
    for number in range(PEERS_PER_REASON_MAX + 1):
        refused.note(Refused("merk", identity(number), "full"), Instant(number))
    for number in range(REASONS_MAX):
        refused.note(Refused("merk", identity(1), f"reason {number}"), Instant(number))

    listed = [peer.subject for peer in refused.of("merk", "full")]
    assert len(listed) == PEERS_PER_REASON_MAX
    assert f"id:{identity(0).hex()}" not in listed
    assert refused.of("merk", f"reason {REASONS_MAX - 2}")
    assert not refused.of("merk", f"reason {REASONS_MAX - 1}")
