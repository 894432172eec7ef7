"""What a power cut leaves of a home: every write since the last sync of its file is lost, or some blocks of it are."""

import random
from pathlib import Path
from typing import Final

__all__ = ["SHARES", "cut_power"]

BLOCK_BYTES: Final = 512
"""What a disk writes whole or not at all."""
SHARES: Final = (0.0, 0.5)
"""Of unsynced blocks, how many were written all the same: none, or a random half in any order."""


def cut_power(home: Path, synced: Path, rng: random.Random, share: float) -> int:
    """Bring a home into the state of after a power cut; the process that wrote it was killed.

    Args:
        home: Its folder.
        synced: What ``power_cut.c`` has kept of each file, by inode; emptied.
        rng: Draws the blocks that survive.
        share: How many of the unsynced blocks survive, 0 to 1.

    Returns:
        How many files were changed.
    """
    files = {str(path.stat().st_ino): path for path in home.rglob("*") if path.is_file() and not path.is_symlink()}
    changed = 0
    for kept in synced.iterdir():
        path = files.get(kept.name)
        if path is not None:
            now, then = path.read_bytes(), kept.read_bytes()
            if now != then:
                changed += 1
                path.write_bytes(_mixed(now, then, rng, share))  # the inode stays: two names of a file stay one
        kept.unlink()
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
