"""Benchmark: BSP (Bramble Sync Protocol) compared with copying its rows, in one run.

Usage: python -m bench.bsp [--messages 10000] [--bytes 1024] [--rounds 5] [--json FILE]

Two processes sync over TLS, durably; the floor is a plain copy of the same rows (``bench/bsp/floor.py``). Tests count
what loss-free scenarios cost to the byte, and that a message of a long chain costs no more than one of a short chain.
"""

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from bench.bsp import driver, floor
from bench.report import Bench, Figures, working
from waystation.sdk.bsp import BspHome


def sync(options: Any) -> Figures:
    """Sync a full home into an empty one; return how long that took, and the floor of the same rows and commits."""
    messages = options.messages
    with tempfile.TemporaryDirectory(prefix="bench-bsp-") as folder:
        full, empty = Path(folder) / "full", Path(folder) / "empty"
        keys = {}
        for path in (full, empty):
            with closing(BspHome(path)) as home:
                keys[path] = home.key
        asyncio.run(driver.prepare(full, keys[empty], messages, options.bytes))
        asyncio.run(driver.prepare(empty, keys[full], 0, options.bytes))
        with working(driver.receive, empty, messages) as receiving:
            with working(driver.send, full, receiving.recv()) as sending:
                seconds, sender_s = sending.recv()
            receiving.send("enough")
            commits, receiver_s = receiving.recv()
        with (
            working(floor.receive, Path(folder) / "floor.db", empty, messages, commits) as receiving,
            working(floor.send, full / "bsp.db", receiving.recv(), messages) as sending,
        ):
            floor_s = sending.recv()
    return {
        "sync s": seconds,
        "messages/s": messages / seconds,
        "floor s": floor_s,
        "commits": commits,
        "sender cpu us": sender_s / messages * 1e6,
        "receiver cpu us": receiver_s / messages * 1e6,
        "floor over sync": floor_s / seconds,
    }


AIMS: Final[dict[str, Callable[[Figures], float]]] = {
    "copying the rows over syncing them (at least 0.5)": lambda m: m["floor over sync"],
}


if __name__ == "__main__":
    bench = Bench(__doc__, {"sync": sync}, rounds=5, messages=10_000, bytes=1_024)
    bench.run(f"BSP, {bench.options.messages} messages of {bench.options.bytes} bytes", AIMS)
