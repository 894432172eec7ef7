"""Observations of BSP villages are plain tuples that a trace can show."""

from waystation.sim import bsp_observations as seen
from waystation.sim.trace import canonical


def test_what_devices_do_has_a_line_in_the_trace():
    """Each observation that has no line of its own form is one readable line."""
    shown = [
        seen.Made(b"g", b"m", b"body", has_dependencies=True),
        seen.Shared("a", "b", b"g", is_shared=False),
        seen.LineUp("a", "b"),
        seen.Told("a", b"g", b"m", 1, b"body"),
        seen.Sized("a", {"offered": 1, "messages": 2}),
        seen.LeftHanging("nothing came"),
    ]

    lines = [canonical(each) for each in shown]
    assert len(set(lines)) == len(shown)
    assert lines[1] == "Shared a b 67 False"
    assert lines[4] == "Sized a {messages=2 offered=1}"
