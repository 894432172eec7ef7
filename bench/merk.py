"""The MERK relay against a minimal Node.js relay on `ws` and a bare picows forwarder, in one run.

Usage: python -m bench.merk [--frames 200000] [--rounds 5] [--json FILE] [--only local,notices,pair,latency,idle]

The Node.js relay needs `node` and `npm`; its library is installed below build/bench. Each round measures every server
once, in turn, so that what else the machine does falls on all of them.
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from bench.bhumi import cpu_seconds, rss_kib
from bench.merk_driver import BATCH, FRAME_BYTES, Flow, connect

ROOT = Path(__file__).parents[1]
WS_FOLDER = ROOT / "build" / "bench"
WS_VERSION = "8.19.0"  # the one that the original pins
IDLE_CONNECTIONS = 2_000
IDLE_FIRST = 32  # connected before the count begins, so that what is allocated once is not counted
CASES = ("local", "notices", "pair", "latency", "idle")
LINK_PATIENCE_S = 20.0
LATENCY_BATCHES = 12


def install_ws() -> bool:
    """Install the `ws` library below build/bench; return whether the Node.js relay can run."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        print("no Node.js here: the relay on `ws` is left out")
        return False
    if not (WS_FOLDER / "node_modules" / "ws").exists():
        WS_FOLDER.mkdir(parents=True, exist_ok=True)
        quiet = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(["npm", "install", *quiet, "--prefix", str(WS_FOLDER), f"ws@{WS_VERSION}"], check=True)
    return True


def command_of(kind: str, home: Path, peer: str) -> list[str]:
    """Return the command line of a server."""
    if kind == "ws":
        return ["node", str(ROOT / "bench" / "merk_ws_relay.mjs"), str(WS_FOLDER / "package.json")]
    if kind != "node":
        return [sys.executable, "-m", "bench.merk_floor", kind]
    settings = {"merk.ws": "127.0.0.1:0", "admin.listen": "", "limits.enabled": "false"}
    settings |= {f"{name}.enabled": "false" for name in ("bhumi", "bsp", "lprp", "strata")}
    settings |= {"merk.peers": peer} if peer else {}
    flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return [sys.executable, "-m", "waystation", "serve", "--home", str(home), *flags, "--log-level", "error"]


@contextmanager
def server(kind: str, peer: str = "", core: int = 0) -> Iterator[tuple[str, int]]:
    """Run a node, or another server, on one core; yield its address and process id."""
    with tempfile.TemporaryDirectory() as home:
        process = subprocess.Popen(command_of(kind, Path(home), peer), stdout=subprocess.PIPE, text=True)
        try:
            os.sched_setaffinity(process.pid, {core % (os.cpu_count() or 1)})
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["listeners"]["merk"], process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


async def forward(
    from_url: str, to_url: str, pids: tuple[int, ...], count: int, *, notices: bool = False
) -> tuple[float, float]:
    """Send frames from a client of one server to one of another; return frames per second and CPU us per frame."""
    (receiver,) = await connect(to_url, 1, 1)
    (sender,) = await connect(from_url, 1, 2)
    if notices:
        sender.ask_for_notices()
    flow = Flow(sender, receiver)
    await asyncio.wait_for(flow.run(BATCH), LINK_PATIENCE_S)
    await flow.run(count // 10 // BATCH * BATCH)
    before = sum(map(cpu_seconds, pids))
    seconds = await flow.run(count)
    return count / seconds, (sum(map(cpu_seconds, pids)) - before) / count * 1e6


async def latency(url: str) -> tuple[float, float]:
    """Return the median and the 99th percentile of one frame's way, in microseconds."""
    (receiver,) = await connect(url, 1, 1)
    (sender,) = await connect(url, 1, 2)
    flow = Flow(sender, receiver)
    await flow.run_one_by_one(2)
    taken = sorted(await flow.run_one_by_one(LATENCY_BATCHES))
    return taken[len(taken) // 2] * 1e6, taken[int(len(taken) * 0.99)] * 1e6


async def idle(url: str, pid: int) -> float:
    """Return the KiB that an authenticated client costs which says nothing."""
    first = await connect(url, IDLE_FIRST)
    await asyncio.sleep(0.5)
    before = rss_kib(pid)
    others = await connect(url, IDLE_CONNECTIONS, 1 + IDLE_FIRST)
    await asyncio.sleep(0.5)
    grown = rss_kib(pid) - before
    assert not any(client.lost for client in (*first, *others))
    return grown / IDLE_CONNECTIONS


def wait_for_link(url: str) -> None:
    """Wait until a node has linked with another."""
    place = f"http://{urlsplit(url).netloc}/.well-known/merk-mesh.json"
    ends_at = time.monotonic() + LINK_PATIENCE_S
    while time.monotonic() < ends_at:
        with urllib.request.urlopen(place, timeout=5) as answer:
            if json.load(answer)["nodes"]:
                return
        time.sleep(0.05)
    raise TimeoutError(f"no link within {LINK_PATIENCE_S:g} s")


def run_round(cases: set[str], kinds: list[str], count: int) -> dict[str, float]:
    """Measure everything once."""
    taken: dict[str, float] = {}
    for kind in kinds if "local" in cases else ():
        with server(kind) as (url, pid):
            taken[f"{kind} frames/s"], taken[f"{kind} cpu us"] = uvloop.run(forward(url, url, (pid,), count))
    if "notices" in cases:
        with server("node") as (url, pid):
            rate, cpu_us = uvloop.run(forward(url, url, (pid,), count, notices=True))
            taken["notices frames/s"], taken["notices cpu us"] = rate, cpu_us
    if "pair" in cases:
        with server("node") as (far, far_pid), server("node", far, core=1) as (near, near_pid):
            wait_for_link(near)
            pids = (near_pid, far_pid)
            taken["pair frames/s"], taken["pair cpu us"] = uvloop.run(forward(near, far, pids, count))
    for kind in kinds if "latency" in cases else ():
        with server(kind) as (url, _):
            taken[f"{kind} p50 us"], taken[f"{kind} p99 us"] = uvloop.run(latency(url))
    for kind in ("node", "idle") if "idle" in cases else ():
        with server(kind) as (url, pid):
            taken[f"{kind} idle KiB"] = uvloop.run(idle(url, pid))
    return taken


def ratios(medians: dict[str, float]) -> dict[str, float]:
    """Return what the aims speak of, as far as it was measured."""
    found = {}
    node = medians.get("node frames/s")
    for name, other, aim in (("ws", "ws", "2"), ("bare picows", "forward", "0.7")):
        if node is not None and f"{other} frames/s" in medians:
            found[f"frames/s over {name} (at least {aim})"] = node / medians[f"{other} frames/s"]
    if "ws cpu us" in medians:
        found["CPU per frame of ws over ours"] = medians["ws cpu us"] / medians["node cpu us"]
    if node is not None and "pair frames/s" in medians:
        found["frames/s over two nodes, of one (at least 0.4)"] = medians["pair frames/s"] / node
    if "node idle KiB" in medians:
        found["idle memory over bare library (at most 1.3)"] = medians["node idle KiB"] / medians["idle idle KiB"]
    return found


def spread(values: list[float]) -> str:
    """Return median, least and most."""
    return f"{statistics.median(values):12,.1f}   {min(values):12,.1f} to {max(values):,.1f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cases, count = set(options.only.split(",")), options.frames // BATCH * BATCH
    kinds = ["node", "forward", *(["ws"] if install_ws() else [])]
    print(f"MERK, {count} DATA frames of {FRAME_BYTES} B; {os.cpu_count()} cores; {platform.platform()}")
    os.sched_setaffinity(0, {(os.cpu_count() or 1) - 1})
    rounds = [run_round(cases, kinds, count) for _ in range(options.rounds)]
    medians = {name: statistics.median(taken[name] for taken in rounds) for name in rounds[0]}
    for name in medians:
        print(f"  {name:20} {spread([taken[name] for taken in rounds])}")
    found = ratios(medians)
    for name, value in found.items():
        print(f"  {name:50} {value:,.2f}")
    if options.json:
        options.json.write_text(json.dumps({"medians": medians, "ratios": found, "rounds": rounds}, indent=1))


if __name__ == "__main__":
    main()
