"""Laws of protocols.lprp.seen_packets."""

from waystation.protocols.lprp.client.seen_packets import SeenInMemory


def test_only_what_was_added_is_had():
    """A packet is had from the moment it is added."""
    seen = SeenInMemory()
    seen.add(b"a" * 64, 5)

    assert seen.has(b"a" * 64)
    assert not seen.has(b"b" * 64)


def test_the_first_is_forgotten_beyond_the_bound():
    """Memory is bounded; adding one again does not push another out."""
    seen = SeenInMemory(count_max=2)
    for name in (b"a", b"b", b"b", b"c"):
        seen.add(name * 64, 5)

    assert [seen.has(name * 64) for name in (b"a", b"b", b"c")] == [False, True, True]
    assert len(seen) == 2
