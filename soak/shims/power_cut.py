"""What a power cut leaves of a home: every write since the last sync of its file is lost, or some blocks of it are."""

import random
from pathlib import Path
from typing import Final, NamedTuple

from soak.shims.preload import Shims, Word

__all__ = ["SHARES", "Power", "PowerCuts", "cut_power", "forget_synced"]

BLOCK_BYTES: Final = 512
"""What a disk writes whole or not at all."""
SHARES: Final = (0.0, 0.5, 1.0)
"""Of unsynced blocks, how many were written all the same: none, a random half in any order, or all of them."""


class Power(NamedTuple):
    """How the power of a node is cut."""

    seed: int
    """Draws what survives."""
    syncs: bool = True
    """Whether fsync does what it says; else the node is one with ``PRAGMA synchronous=OFF``."""


class PowerCuts:
    """The shims of one node, and its cuts."""

    def __init__(self, folder: Path, home: Path, power: Power) -> None:
        """Compile the shims; arguments as for ``Shims``."""
        self._home = home
        self._rng = random.Random(power.seed)
        self._shims = Shims(folder, home, "io_faults", "power_cut")
        self._shims[Word.FSYNC_FORGOTTEN] = int(not power.syncs)
        self.environment = self._shims.environment

    def cut(self) -> None:
        """Bring the home into the state of after a power cut, once its node was killed."""
        cut_power(self._home, self._shims.synced, self._rng, self._rng.choice(SHARES))

    def forget(self) -> None:
        """Take all that is in the home for written, once its node has ended."""
        forget_synced(self._shims.synced)

    def close(self) -> None:
        """Let the shims go."""
        self._shims.close()


def forget_synced(synced: Path) -> None:
    """Take all that is in a home for written; call it before each start."""
    for each in synced.iterdir():
        each.unlink()


def cut_power(home: Path, synced: Path, rng: random.Random, share: float) -> int:
    """Bring a home into the state of after a power cut; the process that wrote it was killed.

    Args:
        home: Its folder.
        synced: What ``power_cut.c`` has kept of each file, by inode; emptied afterwards.
        rng: Draws the blocks that survive.
        share: How many of the unsynced blocks survive, 0 to 1.

    Returns:
        How many files were changed.
    """
    files = {str(path.stat().st_ino): path for path in home.rglob("*") if path.is_file() and not path.is_symlink()}
    changed = 0
    for kept in sorted(synced.iterdir()):
        path = files.get(kept.name)
        if path is not None:
            now, then = path.read_bytes(), kept.read_bytes()
            if now != then:
                changed += 1
                path.write_bytes(_mixed(now, then, rng, share))  # the inode stays: two names of a file stay one
    forget_synced(synced)
    return changed


def _mixed(now: bytes, then: bytes, rng: random.Random, share: float) -> bytes:
    """Return the synced bytes, with some blocks of what was written later; the length is one of both."""
    size = len(now) if rng.random() < share else len(then)
    mixed = bytearray(then[:size].ljust(size, b"\0"))
    for at in range(0, size, BLOCK_BYTES):
        if rng.random() < share:
            block = now[at : at + BLOCK_BYTES]
            mixed[at : at + len(block)] = block
    return bytes(mixed[:size])
