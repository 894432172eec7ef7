"""Observations of LPRP towns are plain tuples that a trace can show."""

from waystation.sim import lprp_observations as seen
from waystation.sim.trace import canonical


def test_what_people_see_has_a_line_in_the_trace():
    """Each observation that only people make is one readable line of its own."""
    shown = [
        seen.Clocked(0, 1, -5),
        seen.Made(b"s", b"d"),
        seen.Sending(b"k", 0, b"t"),
        seen.Finished(b"k", 0, b"t", "ACCEPTED"),
        seen.LeaseTold(b"k", 0),
        seen.WhitelistTold(b"k", 0, (b"a", b"b")),
        seen.AppGot(b"k", 0, 1, b"d"),
        seen.HandedBack(b"k", 0, 1, b"s"),
        seen.Confirmed(b"k", b"s"),
        seen.AppKept(b"k", b"s"),
        seen.LeftHanging("nothing came"),
    ]

    lines = [canonical(each) for each in shown]
    assert len(set(lines)) == len(shown)
    assert lines[3] == "Finished 6b 0 74 ACCEPTED"
