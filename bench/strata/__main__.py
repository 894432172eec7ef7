"""Benchmark: the Strata relay compared with the cost of its parts, of a disk sync, and of bare picows servers.

Usage: python -m bench.strata [--packets 20000] [--rounds 3] [--json FILE] [--only ingest,latency,history,fan,idle]
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.report import Bench, Figures, idle_kib, measured, module, percentile
from bench.strata.driver import connect, publish_all, publish_frames, read_history
from bench.strata.parts import parts, sync_us
from bench.websocket import client_frame
from tools.served import ServedProcess

CONNECTIONS = 8
IN_FLIGHT = 64
READERS = 8
SUBSCRIBERS = 100
node = partial(measured, protocol="strata", cores=())  # its worker checks signatures where there is room


def floor(measure: Any, kind: str) -> Any:
    """Return what is measured of a bare server."""
    return measured(measure, "strata", *module("bench.strata.floor", kind), cores=())


async def publish(server: ServedProcess, count: int) -> tuple[float, float]:
    """Publish over 8 connections as fast as a server takes it; return packets per second and its CPU us for each."""
    frames = publish_frames(count + 1_000, int(time.time()))
    clients = await connect(server.address_of("strata"), CONNECTIONS)
    await publish_all(clients, frames[:1_000], IN_FLIGHT)
    before = server.cpu_s()
    seconds = await publish_all(clients, frames[1_000:], IN_FLIGHT)
    return count / seconds, (server.cpu_s() - before) / count * 1e6


async def publish_singly(server: ServedProcess) -> Figures:
    """Publish one packet at a time."""
    frames = publish_frames(600, int(time.time()))
    (client,) = await connect(server.address_of("strata"), 1)
    await publish_all([client], frames[:100], 1)
    taken = []
    for entry in frames[100:]:
        began = time.perf_counter()
        await publish_all([client], [entry], 1)
        taken.append((time.perf_counter() - began) * 1e6)
    return {"ok_p50_us": percentile(taken, 0.5), "ok_p99_us": percentile(taken, 0.99)}


async def read_all(server: ServedProcess, count: int) -> Figures:
    """Read everything stored with 8 readers at once."""
    clients = await connect(server.address_of("strata"), CONNECTIONS)
    await publish_all(clients, publish_frames(count, int(time.time())), IN_FLIGHT)
    readers = await connect(server.address_of("strata"), READERS)
    began = time.perf_counter()
    events = await asyncio.gather(*(read_history(reader) for reader in readers))
    seconds = time.perf_counter() - began
    assert events == [count] * READERS, events
    return {"events_per_s": sum(events) / seconds}


async def fan_out(server: ServedProcess, count: int, *, node: bool) -> float:
    """Publish to 100 subscribers; return deliveries per second."""
    loop = asyncio.get_running_loop()
    subscribers = await connect(server.address_of("strata"), SUBSCRIBERS)
    publishers = await connect(server.address_of("strata"), 1)
    done = loop.create_future()
    all_ready = loop.create_future()
    left = count * SUBSCRIBERS
    ready = 0

    def on_messages(messages: list[bytes]) -> None:
        nonlocal left, ready
        for message in messages:
            if len(message) > 500:
                left -= 1
            elif message.startswith(b'{"type":"EOSE"'):
                ready += 1
                if ready == SUBSCRIBERS:
                    all_ready.set_result(None)
        if left <= 0 and not done.done():
            done.set_result(None)

    for subscriber in subscribers:
        subscriber.on_messages = on_messages
        if node:
            text = b'{"type":"SUBSCRIBE","subscription_id":"s","want_eose":true}'
            subscriber.transport.write(client_frame(text))
    if node:
        await all_ready
    frames = publish_frames(count, int(time.time()), size=600 if node else 800)
    began = loop.time()
    await publish_all(publishers, frames, 32)
    await done
    return count * SUBSCRIBERS / (loop.time() - began)


async def stay_idle(server: ServedProcess, count: int) -> float:
    """Return the KiB that an idle connection costs."""
    return await idle_kib(server, count, lambda many, _first: connect(server.address_of("strata"), many))


def ingest(options: Any) -> Figures:
    """Measure the parts of accepting a packet, each alone, and all of it in a node."""
    text = publish_frames(1, int(time.time()))[0][8:]
    with tempfile.TemporaryDirectory() as folder:
        taken = {f"part: {name}": value for name, value in parts(text, Path(folder), options.packets).items()}
    taken["part: web socket in and out"] = floor(partial(publish, count=options.packets), "echo")[1]
    taken["parts_us"] = sum(taken.values())
    taken["packets_per_s"], taken["cpu_us_per_packet"] = node(partial(publish, count=options.packets))
    return taken


def latency(_options: Any) -> Figures:
    """Measure a sync of the disk, and how long an OK takes."""
    with tempfile.TemporaryDirectory() as folder:
        taken = {"sync_us": sync_us(Path(folder))}
    return taken | node(publish_singly)


def history(options: Any) -> Figures:
    """Measure how fast a node gives what it stores."""
    return node(partial(read_all, count=options.packets))


def fan(options: Any) -> Figures:
    """Measure deliveries of a bare server and of a node."""
    count = options.packets // 10
    return {
        "floor_deliveries_per_s": floor(partial(fan_out, count=count, node=False), "fan"),
        "deliveries_per_s": node(partial(fan_out, count=count, node=True)),
    }


def idle(options: Any) -> Figures:
    """Measure the memory of idle connections at a bare server and at a node."""
    work = partial(stay_idle, count=options.idle)
    return {"floor_idle_kib": floor(work, "idle"), "idle_kib": node(work)}


CASES: Final = {"ingest": ingest, "latency": latency, "history": history, "fan": fan, "idle": idle}
AIMS: Final[dict[str, Callable[[Figures], float]]] = {
    "CPU per packet over its parts (at most 1.3)": lambda m: m["cpu_us_per_packet"] / m["parts_us"],
    "packets/s (above 10,000)": lambda m: m["packets_per_s"],
    "OK p50 over 1.5 syncs plus 1 ms (at most 1)": lambda m: m["ok_p50_us"] / (1.5 * m["sync_us"] + 1_000),
    "history events/s (at least 200,000)": lambda m: m["events_per_s"],
    "fan-out over bare loop (at least 0.6)": lambda m: m["deliveries_per_s"] / m["floor_deliveries_per_s"],
    "idle memory over bare library (at most 1.3)": lambda m: m["idle_kib"] / m["floor_idle_kib"],
}


if __name__ == "__main__":
    bench = Bench(__doc__, CASES, rounds=3, packets=20_000, idle=2_000)
    bench.run(f"Strata, {bench.options.packets} packets of 600 B", AIMS)
