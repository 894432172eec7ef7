"""Laws of protocols.bsp.groups."""

from waystation.protocols.bsp.device.groups import Group


def test_group_has_no_major_version_unless_told():
    """Only profile briar knows one, and its first is 0 (clarification 9)."""
    assert Group(bytes(32), b"c" * 32, b"d", "opaque").major == 0


def test_groups_are_compared_by_what_they_are():
    """The same group named twice is one entry of a set."""
    first, again, other = (Group(bytes(32), b"c" * 32, descriptor, "opaque") for descriptor in (b"d", b"d", b"e"))

    assert {first, again, other} == {first, other}
