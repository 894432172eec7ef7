"""Observations of the open world have one line each in a trace."""

from tests.sim.build_bhumi_open import DEVICE, RELAY, began, sized
from waystation.sim import bhumi_open_observations as seen
from waystation.sim.trace import canonical


def test_observations_have_a_line_in_the_trace():
    """Keys are cut, sizes are sorted, and nothing depends on an address in memory."""
    assert canonical(began(2)).startswith("RelayBegan 2 0101010101010101..32/")
    assert canonical(seen.LookedUp(3, DEVICE.public, True, False)).endswith(" True False")
    assert canonical(seen.Dialled(0, "tcp://relay-1.sim:4819", True, False)) == (
        "Dialled 0 tcp://relay-1.sim:4819 True False"
    )
    assert "{addresses=0 alarms=0 commits=0 connections=2 " in canonical(sized())
    assert canonical(seen.Made(bytes(RELAY), True)).startswith("Made 0101010101010101..32/")
