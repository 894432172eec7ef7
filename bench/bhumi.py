"""Bhumi over TLS against a bare forwarder on the same transport, in one run.

Usage: python -m bench.bhumi [--seconds 4] [--rounds 3] [--json FILE]
"""

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from bench.load import Pair, Result, connect_pairs, run_pairs
from waystation.transport.tls import client_context

PAIRS = 64
SIZE = 256
IDLE_CONNECTIONS = 1_000
IDLE_FIRST = 32  # connected before the count begins, so that what is allocated once is not counted
_TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def server(kind: str, home: Path) -> Iterator[tuple[str, int]]:
    """Run a node or a forwarder on the first core; yield its URL and process id."""
    if kind == "node":
        quiet = ["--set", "admin.listen=", "--set", "limits.enabled=false", "--log-level", "error"]
        quiet += [part for name in ("bsp", "lprp", "merk", "strata") for part in ("--set", f"{name}.enabled=false")]
        command = ["serve", "--home", str(home), "--set", "bhumi.tls=127.0.0.1:0", *quiet]
        arguments = ["-m", "waystation", *command]
    else:
        arguments = ["-m", "bench.forwarder", str(home / "tls")]
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        os.sched_setaffinity(process.pid, {0})
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["listeners"]["bhumi"], process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_kib(pid: int) -> int:
    """Return the resident memory of a process in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


async def exchange(url: str, pid: int, context: Any, kind: str, pairs: int, seconds: float) -> tuple[Result, float]:
    """Run pairs against a server; return the result and the server's CPU microseconds per exchange."""
    connected = await connect_pairs(url, pairs, SIZE, context, forwarder=kind == "forwarder")
    before = cpu_seconds(pid)
    warmup_s = min(1.0, seconds / 4)
    result = await run_pairs(connected, seconds, warmup_s)
    spent = cpu_seconds(pid) - before
    for pair in connected:
        pair.device.transport.abort()
        pair.sender.transport.abort()
    share = result.seconds / (result.seconds + warmup_s)
    return result, spent * share / max(1, result.exchanges) * 1e6


async def idle(url: str, pid: int, context: Any, kind: str) -> float:
    """Return the server's KiB per idle connection; on a node each is an identified device."""
    host, _, port = url.partition("://")[2].rpartition(":")
    pairs = [Pair(number, SIZE) for number in range(IDLE_CONNECTIONS + IDLE_FIRST)]
    before = 0
    for pair in pairs:
        if pair.number == IDLE_FIRST:
            await asyncio.sleep(0.5)
            before = rss_kib(pid)
        await pair.connect_idle(host, int(port), context, forwarder=kind == "forwarder")
    await asyncio.sleep(0.5)
    grown = rss_kib(pid) - before
    for pair in pairs:
        pair.device.transport.abort()
    return grown / IDLE_CONNECTIONS


def measure(home: Path, seconds: float, rounds: int) -> dict[str, Any]:
    """Run node and forwarder in turns and return medians and ratios."""
    context = client_context(home / "tls" / "ca.pem")
    rows: dict[str, list[dict[str, float]]] = {"forwarder": [], "node": []}
    for _ in range(rounds):
        for kind, taken in rows.items():
            with server(kind, home) as (url, pid):
                many, cpu_us = uvloop.run(exchange(url, pid, context, kind, PAIRS, seconds))
                one, _ = uvloop.run(exchange(url, pid, context, kind, 1, max(1.0, seconds / 2)))
            with server(kind, home) as (url, pid):
                memory = uvloop.run(idle(url, pid, context, kind))
            taken.append(
                {
                    "exchanges_per_s": many.rate,
                    "cpu_us": cpu_us,
                    "p50_us": many.percentile(0.5),
                    "p99_us": many.percentile(0.99),
                    "single_p50_us": one.percentile(0.5),
                    "idle_kib": memory,
                }
            )
            print(f"  {kind:9} " + "  ".join(f"{name} {value:,.1f}" for name, value in taken[-1].items()), flush=True)
    medians = {
        kind: {name: statistics.median(row[name] for row in taken) for name in taken[0]} for kind, taken in rows.items()
    }
    node, floor = medians["node"], medians["forwarder"]
    ratios = {
        "rate (at least 0.7)": node["exchanges_per_s"] / floor["exchanges_per_s"],
        "rate by CPU (at least 0.7)": floor["cpu_us"] / node["cpu_us"],
        "p99 (at most 2)": node["p99_us"] / floor["p99_us"],
        "idle memory (at most 1.3)": node["idle_kib"] / floor["idle_kib"],
        "single exchange p50, ms (below 1)": node["single_p50_us"] / 1_000,
    }
    return {"medians": medians, "ratios": ratios, "rounds": rows}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.sched_setaffinity(0, {(os.cpu_count() or 1) - 1})
    print(f"Bhumi over TLS, {PAIRS} devices and {PAIRS} senders, {SIZE} B each way; {platform.platform()}")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        command = [sys.executable, "-m", "waystation", "init", "--home", str(home)]
        subprocess.run(command, check=True, capture_output=True)
        report = measure(home, options.seconds, options.rounds)
    print("ratios of medians:")
    for name, value in report["ratios"].items():
        print(f"  {name:36} {value:.2f}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
