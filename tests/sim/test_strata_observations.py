"""Observations have lines that do not depend on the order of a set."""

from tests.sim.build_strata import caught_up, kept
from waystation.sim import strata_observations as seen


def test_long_observations_have_short_lines():
    """A whole store, or all that a reader has, is told by its size."""
    assert str(seen.Stored(1, (kept(1), kept(2)), final=True)) == "Stored 1 2 True"
    assert str(caught_up(3, 2, 1, promised=4)) == "CaughtUp 0 0 0 4 3 False"
