"""Benchmark: the MERK relay compared with a minimal Node.js relay on `ws` and a bare picows forwarder, in one run.

Usage: python -m bench.merk [--frames 200000] [--rounds 5] [--json FILE] [--only local,notices,pair,latency,idle]

The Node.js relay needs `node` and `npm`; its library is installed below build/bench. Each round measures every server
once, so that other load on the machine affects all of them.
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.merk.driver import BATCH, BINARY, FRAME_BYTES, Flow, connect, data_frame
from bench.report import Bench, Figures, idle_kib, measured, module, percentile, served
from bench.websocket import client_frame
from tools.served import ServedProcess, free_port

ROOT = Path(__file__).parents[2]
WS_FOLDER = ROOT / "build" / "bench"
WS_VERSION = "8.19.0"  # the one that the original pins
LINK_TIMEOUT_S = 20.0
ATTEMPT_S = 0.25
LATENCY_BATCHES = 12


@cache
def has_ws() -> bool:
    """Install the `ws` library below build/bench; return whether the Node.js relay can run."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        print("no Node.js here: the relay on `ws` is left out")
        return False
    if not (WS_FOLDER / "node_modules" / "ws").exists():
        WS_FOLDER.mkdir(parents=True, exist_ok=True)
        quiet = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(["npm", "install", *quiet, "--prefix", str(WS_FOLDER), f"ws@{WS_VERSION}"], check=True)
    return True


def floor(kind: str) -> list[str]:
    """Return the command of a server that is no node."""
    if kind == "ws":
        return ["node", str(ROOT / "bench" / "merk" / "ws_relay.mjs"), str(WS_FOLDER / "package.json")]
    return [] if kind == "node" else module("bench.merk.floor", kind)


async def forward(near: ServedProcess, far: ServedProcess, count: int, *, notices: bool = False) -> tuple[float, float]:
    """Send frames from a client of one server to one of another; return frames per second and CPU us per frame."""
    (receiver,) = await connect(far.address_of("merk"), 1, 1)
    (sender,) = await connect(near.address_of("merk"), 1, 2)
    if notices:
        sender.ask_for_notices()
    flow = Flow(sender, receiver)
    await asyncio.wait_for(flow.run(BATCH), LINK_TIMEOUT_S)
    await flow.run(count // 10 // BATCH * BATCH)
    servers = {near, far}
    before = sum(server.cpu_s() for server in servers)
    seconds = await flow.run(count)
    return count / seconds, (sum(server.cpu_s() for server in servers) - before) / count * 1e6


async def send_singly(server: ServedProcess) -> tuple[float, float]:
    """Return the median and the 99th percentile of one frame's way, in microseconds."""
    (receiver,) = await connect(server.address_of("merk"), 1, 1)
    (sender,) = await connect(server.address_of("merk"), 1, 2)
    flow = Flow(sender, receiver)
    await flow.run_one_by_one(2)
    taken = await flow.run_one_by_one(LATENCY_BATCHES)
    return percentile(taken, 0.5) * 1e6, percentile(taken, 0.99) * 1e6


async def wait_for_way(near: ServedProcess, far: ServedProcess) -> None:
    """Wait until frames of one node's clients reach those of another, which names it and must have found it so."""
    (receiver,) = await connect(far.address_of("merk"), 1, 3)
    (sender,) = await connect(near.address_of("merk"), 1, 4)
    arrived = asyncio.Event()
    receiver.on_bytes = lambda _data: arrived.set()
    async with asyncio.timeout(LINK_TIMEOUT_S):
        while not arrived.is_set():
            sender.transport.write(client_frame(data_frame(sender.pair.public, receiver.pair.public, 0), BINARY))
            with suppress(TimeoutError):
                await asyncio.wait_for(arrived.wait(), ATTEMPT_S)


async def cross(near: ServedProcess, far: ServedProcess, count: int) -> tuple[float, float]:
    """Send frames from one node's client to another's, once there is a way; return what ``forward`` does."""
    await wait_for_way(near, far)
    return await forward(near, far, count)


def each_relay(
    measure: Callable[[ServedProcess], Coroutine[Any, Any, tuple[float, float]]], names: Iterable[str]
) -> Figures:
    """Measure two figures of every relay that a client's frames may take."""
    taken: Figures = {}
    for kind in ("node", "forward", *(["ws"] if has_ws() else [])):
        found = measured(measure, "merk", *floor(kind))
        taken |= {f"{kind} {name}": value for name, value in zip(names, found, strict=True)}
    return taken


def local(options: Any) -> Figures:
    """Measure frames between two clients of each relay."""
    return each_relay(lambda server: forward(server, server, options.frames), ("frames/s", "cpu us"))


def notices(options: Any) -> Figures:
    """Measure them at a node that tells the sender what became of each frame."""
    rate, cpu_us = measured(lambda node: forward(node, node, options.frames, notices=True), "merk")
    return {"notices frames/s": rate, "notices cpu us": cpu_us}


def pair(options: Any) -> Figures:
    """Measure frames between clients of two linked nodes that name each other."""
    other_core = {1 % (os.cpu_count() or 1)}
    places = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    urls = [f"ws://{place}/" for place in places]
    with (
        served("merk", merk__ws=places[0], merk__peers=urls[1]) as far,
        served("merk", cores=other_core, merk__ws=places[1], merk__peers=urls[0]) as near,
    ):
        rate, cpu_us = uvloop.run(cross(near, far, options.frames))
    return {"pair frames/s": rate, "pair cpu us": cpu_us}


def latency(_options: Any) -> Figures:
    """Measure the way of one frame through each relay."""
    return each_relay(send_singly, ("p50 us", "p99 us"))


def idle(options: Any) -> Figures:
    """Measure the memory of idle authenticated clients at a node and at a bare server."""

    def stay(server: ServedProcess) -> Coroutine[Any, Any, float]:
        return idle_kib(server, options.idle, partial(connect, server.address_of("merk")))

    return {f"{kind} idle KiB": measured(stay, "merk", *floor(kind)) for kind in ("node", "idle")}


CASES: Final = {"local": local, "notices": notices, "pair": pair, "latency": latency, "idle": idle}
AIMS: Final[dict[str, Callable[[Figures], float]]] = {
    "frames/s over ws (at least 2)": lambda m: m["node frames/s"] / m["ws frames/s"],
    "frames/s over bare picows (at least 0.7)": lambda m: m["node frames/s"] / m["forward frames/s"],
    "CPU per frame of ws over ours": lambda m: m["ws cpu us"] / m["node cpu us"],
    "frames/s over two nodes, of one (at least 0.4)": lambda m: m["pair frames/s"] / m["node frames/s"],
    "idle memory over bare library (at most 1.3)": lambda m: m["node idle KiB"] / m["idle idle KiB"],
}


if __name__ == "__main__":
    bench = Bench(__doc__, CASES, rounds=5, pins=True, frames=200_000, idle=2_000)
    bench.options.frames -= bench.options.frames % BATCH
    bench.run(f"MERK, {bench.options.frames} DATA frames of {FRAME_BYTES} B", AIMS)
