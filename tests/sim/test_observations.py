"""Observations that all protocols share."""

from waystation.sim.observations import Sized


def test_sizes_have_a_line_of_their_own():
    """A line says node, sizes, what the bounds depend on, and whether everything must be empty where that matters."""
    assert str(Sized(1, {"b": 2, "a": 1}, {"peers_count": 7}, settled=True)) == "Sized 1 {a=1 b=2} 7 True"
    assert str(Sized("d0", {"a": 1})) == "Sized d0 {a=1}"
