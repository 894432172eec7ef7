"""Benchmark: the proof-of-work search compared with bare loops over hashlib, in one process and one run.

Usage: python -m bench.lprp --only work [--hashes 300000] [--rounds 9] [--json FILE]

No loop can find a solution, so each tries all hashes. The loops are interleaved, so that other load on the machine
affects all of them. A ratio compares loops of the same round.
"""

import hashlib
import time
from collections.abc import Callable

from bench.report import Figures
from waystation.protocols.lprp.work import search

BITS = 64  # no search of this length meets them
CHALLENGE = hashlib.shake_256(b"challenge").digest(208)


def copied_state(challenge: bytes, bits: int, start: int, count: int) -> int | None:
    """Search in a plain loop that copies the state of the challenge and counts bits as the digest words it."""
    state = hashlib.blake2b(challenge, digest_size=32)
    for counter in range(start, start + count):
        hashed = state.copy()
        hashed.update(counter.to_bytes(8, "big"))
        if int.from_bytes(hashed.digest(), "big") >> (256 - bits) == 0:
            return counter
    return None


def no_test(challenge: bytes, _bits: int, start: int, count: int) -> int | None:
    """Hash as above and look at nothing: the floor under every loop that makes one call per hash."""
    copy = hashlib.blake2b(challenge, digest_size=32).copy
    for counter in range(start, start + count):
        hashed = copy()
        hashed.update(counter.to_bytes(8, "big"))
        hashed.digest()
    return None


Search = Callable[[bytes, int, int, int], int | None]
BARE: dict[str, Search] = {"copied state": copied_state, "no test": no_test}


def measure(count: int) -> Figures:
    """Return CPU microseconds per hash of every loop, and how many hashes ``search`` makes in the time of one.

    Args:
        count: Hashes per loop, in three turns; the order turns over each time.
    """
    loops: dict[str, Search] = {"search": search, **BARE}
    taken = dict.fromkeys(loops, 0.0)
    for turn in range(3):
        for name in list(loops)[:: 1 if turn % 2 else -1]:
            before = time.process_time()
            found = loops[name](CHALLENGE, BITS, turn * count // 3, count // 3)
            taken[name] += (time.process_time() - before) / count * 1e6
            assert found is None
    return {f"{name} us": us for name, us in taken.items()} | {
        f"{name} over search": taken[name] / taken["search"] for name in BARE
    }
