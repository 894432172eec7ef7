"""Benchmark: a Bhumi node over TLS compared with a bare byte forwarder on the same transport, in one run.

Usage: python -m bench.bhumi [--seconds 4] [--idle 1000] [--rounds 3] [--json FILE]
"""

import subprocess
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bench.bhumi.driver import IDLE_COMMITS, SIZE, Pair, Server, run_pairs
from bench.report import Bench, Figures, idle_kib, measured, module, percentile
from waystation.transport.tls import client_context

PAIRS = 64
T = TypeVar("T")


async def exchange(server: Server, seconds: float) -> Figures:
    """Run many pairs against a server, and then one."""
    many_us, took_s, cpu_s = await run_pairs(server, PAIRS, seconds)
    one_us, _, _ = await run_pairs(server, 1, max(1.0, seconds / 2))
    return {
        "exchanges/s": len(many_us) / took_s,
        "cpu us": cpu_s / max(1, len(many_us)) * 1e6,
        "p50 us": percentile(many_us, 0.5),
        "p99 us": percentile(many_us, 0.99),
        "single p50 us": percentile(one_us, 0.5),
    }


async def idle(server: Server, count: int) -> float:
    """Return the server's KiB per idle connection; on a node each is an identified device."""

    async def connect(many: int, first: int) -> Sequence[Any]:
        return [await Pair(first + number, server).connect_device(IDLE_COMMITS) for number in range(many)]

    return await idle_kib(server.process, count, connect)


def figures(options: Any, home: Path, *, forwards: bool) -> Figures:
    """Measure a forwarder or a node, with the certificate of this home."""
    floor = module("bench.bhumi.floor", home / "tls") if forwards else []
    context = client_context(home / "tls" / "ca.pem")

    def measure(work: Callable[[Server], Coroutine[Any, Any, T]]) -> T:
        return measured(lambda process: work(Server(process, context, forwards)), "bhumi", *floor, home=home)

    found = measure(lambda server: exchange(server, options.seconds))
    found["idle KiB"] = measure(lambda server: idle(server, options.idle))
    return {f"{'forwarder' if forwards else 'node'} {name}": value for name, value in found.items()}


def both(options: Any) -> Figures:
    """Measure a forwarder and a node."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        subprocess.run(module("waystation", "init", "--home", home), check=True, capture_output=True)
        return figures(options, home, forwards=True) | figures(options, home, forwards=False)


AIMS: dict[str, Callable[[Figures], float]] = {
    "rate (at least 0.7)": lambda m: m["node exchanges/s"] / m["forwarder exchanges/s"],
    "rate by CPU (at least 0.7)": lambda m: m["forwarder cpu us"] / m["node cpu us"],
    "p99 (at most 2)": lambda m: m["node p99 us"] / m["forwarder p99 us"],
    "idle memory (at most 1.3)": lambda m: m["node idle KiB"] / m["forwarder idle KiB"],
    "single exchange p50, ms (below 1)": lambda m: m["node single p50 us"] / 1_000,
}


if __name__ == "__main__":
    bench = Bench(__doc__, {"both": both}, rounds=3, pins=True, seconds=4.0, idle=1_000)
    bench.run(f"Bhumi over TLS, {PAIRS} devices and {PAIRS} senders, {SIZE} B each way", AIMS)
