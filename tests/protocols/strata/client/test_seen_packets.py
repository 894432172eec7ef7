"""Laws of strata.client.seen_packets."""

from waystation.protocols.strata.client import seen_packets
from waystation.protocols.strata.client.seen_packets import SeenPackets


def test_packet_is_new_once_per_subscription():
    """The second time it is a duplicate; to another subscription it is new."""
    seen = SeenPackets()

    assert [seen.is_new(1, b"a"), seen.is_new(1, b"a"), seen.is_new(2, b"a"), seen.is_new(1, b"b")] == [
        *(True, False, True, True)
    ]


def test_memory_is_bounded(monkeypatch):
    """The oldest is forgotten, and would be new again."""
    monkeypatch.setattr(seen_packets, "SEEN_MAX", 2)
    seen = SeenPackets()
    for packet_id in (b"a", b"b", b"c"):
        seen.is_new(1, packet_id)

    assert [seen.is_new(1, b"c"), seen.is_new(1, b"b"), seen.is_new(1, b"a")] == [False, False, True]
