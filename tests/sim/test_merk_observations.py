"""Observations have lines that say what matters."""

from waystation.sim import merk_observations as seen
from waystation.sim.trace import canonical


def test_missing_nodes_are_named():
    """A line about the mesh names the nodes that have not been found."""
    assert str(seen.Meshed(0, (1, 2))) == "Meshed 0 1,2"
    assert str(seen.Meshed(3, ())) == "Meshed 3 -"


def test_frames_are_named_in_traces():
    """Other observations are shown by their fields."""
    assert canonical(seen.Due(bytes(8), is_owed=True)) == "Due 0000000000000000 True"
