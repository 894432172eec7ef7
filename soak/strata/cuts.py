"""Tests what ``soak.strata.kill`` tests, with power cuts: unsynced writes of the node are lost, or half of them."""

from pathlib import Path

from soak.shims.power_cut import Power
from soak.strata import kill


def check(folder: Path, seed: int, rounds: int = 100) -> str:
    """Try it so many times; return what happened."""
    return kill.check(folder, seed, rounds, Power(seed))
