"""What a power cut leaves of a home: every write since the last sync of its file is lost, or some blocks of it are."""

import random
import signal
from pathlib import Path
from typing import Final, NamedTuple

from soak.shims.preload import Shims, Word
from tools.served import ServedProcess

__all__ = ["SHARES", "Power", "cut_power", "cut_when_killed", "forget_synced"]

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


def cut_when_killed(process: ServedProcess, home: Path, power: Power) -> None:
    """Make each SIGKILL of a process a power cut.

    Args:
        process: Has not been started yet.
        home: Its folder; the shims go beside it. Its logs (``*.log``) are ours and stay whole.
        power: What survives.
    """
    shims = Shims(home.with_name(f"{home.name}-shims"), home, "io_faults", "power_cut")
    shims[Word.FSYNC_FORGOTTEN] = int(not power.syncs)
    rng = random.Random(power.seed)

    def on_end(code: int) -> None:
        if code == -signal.SIGKILL:
            cut_power(home, shims.synced, rng, rng.choice(SHARES))
        forget_synced(shims.synced)

    process.environment = shims.environment
    process.on_end = on_end


def forget_synced(synced: Path) -> None:
    """Take all that is in a home for written; call it before each start."""
    for each in synced.iterdir():
        each.unlink()


def cut_power(home: Path, synced: Path, rng: random.Random, share: float) -> int:
    """Bring a home into the state of after a power cut; the process that wrote it was killed.

    Args:
        home: Its folder; files named ``*.log`` stay as they are.
        synced: What ``power_cut.c`` has kept of each file, by inode; emptied afterwards.
        rng: Draws the blocks that survive.
        share: How many of the unsynced blocks survive, 0 to 1.

    Returns:
        How many files were changed.
    """
    found = [path for path in home.rglob("*") if path.is_file() and not path.is_symlink() and path.suffix != ".log"]
    files = {str(path.stat().st_ino): path for path in found}
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
