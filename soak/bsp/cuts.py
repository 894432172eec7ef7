"""Tests what ``soak.bsp.kills`` tests, with power cuts: unsynced writes are lost, or half of them."""

from pathlib import Path

from soak.bsp import kills
from soak.shims.power_cut import Power


def check(folder: Path, seed: int, rounds: int = 100) -> str:
    """Try it so many times; return what happened."""
    return kills.check(folder, seed, rounds, Power(seed))
