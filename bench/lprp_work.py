"""The search for proof of work against bare loops over hashlib, in one process and one run.

Usage: python -m bench.lprp_work [--count 200000] [--rounds 9] [--json FILE]

Nothing is found, so that every loop tries all. The rounds are interleaved, so that what else the machine does falls on
all loops; ratios are those of the same round.
"""

import argparse
import hashlib
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

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


def whole_text(challenge: bytes, bits: int, start: int, count: int) -> int | None:
    """Search in the plainest loop, which hashes the challenge anew each time."""
    for counter in range(start, start + count):
        digest = hashlib.blake2b(challenge + counter.to_bytes(8, "big"), digest_size=32).digest()
        if int.from_bytes(digest, "big") >> (256 - bits) == 0:
            return counter
    return None


LOOPS: dict[str, Callable[[bytes, int, int, int], int | None]] = {
    "search": search,
    "copied state": copied_state,
    "no test": no_test,
    "whole text": whole_text,
}


def measure(count: int, rounds: int) -> dict[str, list[float]]:
    """Return CPU microseconds per hash of every loop, one number per round.

    Args:
        count: Hashes per loop and round.
        rounds: How often each loop runs, in turn; the order turns over each time.
    """
    taken: dict[str, list[float]] = {name: [] for name in LOOPS}
    for number in range(rounds):
        for name in list(LOOPS)[:: 1 if number % 2 else -1]:
            before = time.process_time()
            found = LOOPS[name](CHALLENGE, BITS, number * count, count)
            taken[name].append((time.process_time() - before) / count * 1e6)
            assert found is None
    return taken


def ratios(taken: dict[str, list[float]]) -> dict[str, float]:
    """Return how many hashes ``search`` makes in the time of one of each bare loop: the median over the rounds."""
    ours = taken["search"]
    return {
        name: statistics.median(other / own for own, other in zip(ours, theirs, strict=True))
        for name, theirs in taken.items()
        if name != "search"
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"LPRP work, {options.count} hashes a round; {os.cpu_count()} cores; {platform.platform()}")
    taken = measure(options.count, options.rounds)
    found = ratios(taken)
    for name, values in taken.items():
        ratio = f"  search makes {found[name]:.2f} times as many" if name in found else ""
        spread = f"{min(values):.3f} to {max(values):.3f}"
        print(f"{name:>12}: {statistics.median(values):.3f} us CPU per hash ({spread}){ratio}")
    if options.json:
        options.json.write_text(json.dumps({"us": taken, "ratios": found}, indent=1))


if __name__ == "__main__":
    main()
