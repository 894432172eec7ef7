"""The Strata relay against the sum of its parts, a sync of the disk, and bare picows, in one run.

Usage: python -m bench.strata [--packets 20000] [--rounds 3] [--json FILE] [--only ingest,latency,history,fan,idle]
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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import uvloop

from bench.bhumi import cpu_seconds, rss_kib
from bench.strata_driver import connect, frame, publish_all, publish_frames, read_history
from bench.strata_parts import parts, sync_us

CONNECTIONS = 8
IN_FLIGHT = 64
READERS = 8
SUBSCRIBERS = 100
IDLE_CONNECTIONS = 2_000
CASES = ("ingest", "latency", "history", "fan", "idle")


@contextmanager
def server(kind: str, home: Path) -> Iterator[tuple[str, int]]:
    """Run a node or a bare server; yield its address and process id."""
    if kind == "node":
        settings = {
            "strata.ws": "127.0.0.1:0",
            "bhumi.enabled": "false",
            "bsp.enabled": "false",
            "lprp.enabled": "false",
            "merk.enabled": "false",
            "admin.listen": "",
            "limits.enabled": "false",
        }
        flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        arguments = ["-m", "waystation", "serve", "--home", str(home), *flags, "--log-level", "error"]
    else:
        arguments = ["-m", "bench.strata_floor", kind]
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["listeners"]["strata"], process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def family_cpu(pid: int) -> float:
    """Return the CPU seconds of a process and the processes it started, which still run."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_seconds(pid) + sum(cpu_seconds(int(child)) for child in children)


async def ingest(url: str, pid: int, count: int) -> dict[str, float]:
    """Publish over 8 connections as fast as the node takes it."""
    frames = publish_frames(count + 1_000, int(time.time()))
    clients = await connect(url, CONNECTIONS)
    await publish_all(clients, frames[:1_000], IN_FLIGHT)
    before = family_cpu(pid)
    seconds = await publish_all(clients, frames[1_000:], IN_FLIGHT)
    cpu_us = (family_cpu(pid) - before) / count * 1e6
    return {"packets_per_s": count / seconds, "cpu_us_per_packet": cpu_us}


async def web_socket_cpu(url: str, pid: int, count: int) -> float:
    """Return the CPU microseconds in which a bare server takes a PUBLISH and answers as many bytes as an OK has."""
    frames = publish_frames(256, int(time.time())) * (count // 256)
    clients = await connect(url, CONNECTIONS)
    before = cpu_seconds(pid)
    done = asyncio.get_running_loop().create_future()
    left = len(frames)
    waiting = iter(frames)

    def on_messages(client: Any, messages: list[bytes]) -> None:
        nonlocal left
        left -= len(messages)
        client.transport.write(b"".join(islice(waiting, len(messages))))
        if left <= 0 and not done.done():
            done.set_result(None)

    for client in clients:
        client.on_messages = partial(on_messages, client)
        client.transport.write(b"".join(islice(waiting, IN_FLIGHT)))
    await done
    return (cpu_seconds(pid) - before) / len(frames) * 1e6


async def latency(url: str) -> dict[str, float]:
    """Publish one packet at a time."""
    frames = publish_frames(600, int(time.time()))
    (client,) = await connect(url, 1)
    await publish_all([client], frames[:100], 1)
    taken = []
    for entry in frames[100:]:
        began = time.perf_counter()
        await publish_all([client], [entry], 1)
        taken.append((time.perf_counter() - began) * 1e6)
    taken.sort()
    return {"ok_p50_us": taken[len(taken) // 2], "ok_p99_us": taken[int(len(taken) * 0.99)]}


async def history(url: str, count: int) -> dict[str, float]:
    """Read everything stored with 8 readers at once."""
    clients = await connect(url, CONNECTIONS)
    await publish_all(clients, publish_frames(count, int(time.time())), IN_FLIGHT)
    readers = await connect(url, READERS)
    began = time.perf_counter()
    events = await asyncio.gather(*(read_history(reader) for reader in readers))
    seconds = time.perf_counter() - began
    assert events == [count] * READERS, events
    return {"events_per_s": sum(events) / seconds}


async def fan(url: str, count: int, *, node: bool) -> dict[str, float]:
    """Publish to 100 subscribers."""
    loop = asyncio.get_running_loop()
    subscribers = await connect(url, SUBSCRIBERS)
    publishers = await connect(url, 1)
    done = loop.create_future()
    everybody = loop.create_future()
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
                    everybody.set_result(None)
        if left <= 0 and not done.done():
            done.set_result(None)

    for subscriber in subscribers:
        subscriber.on_messages = on_messages
        if node:
            text = b'{"type":"SUBSCRIBE","subscription_id":"s","want_eose":true}'
            subscriber.transport.write(frame(text))
    if node:
        await everybody
    frames = publish_frames(count, int(time.time()), size=600 if node else 800)
    began = loop.time()
    await publish_all(publishers, frames, 32)
    await done
    return {"deliveries_per_s": count * SUBSCRIBERS / (loop.time() - began)}


async def idle(url: str, pid: int) -> dict[str, float]:
    """Return the KiB that an idle connection costs."""
    first = await connect(url, 32)
    await asyncio.sleep(0.5)
    before = rss_kib(pid)
    others = await connect(url, IDLE_CONNECTIONS)
    await asyncio.sleep(0.5)
    grown = rss_kib(pid) - before
    assert not any(client.lost for client in (*first, *others))
    return {"idle_kib": grown / IDLE_CONNECTIONS}


def run_round(cases: set[str], count: int, folder: Path) -> dict[str, float]:
    """Measure everything once, each case on a server of its own."""
    taken: dict[str, float] = {}

    def homes() -> Path:
        return Path(tempfile.mkdtemp(dir=folder))

    if "ingest" in cases:
        text = publish_frames(1, int(time.time()))[0][8:]
        taken |= {f"part: {name}": value for name, value in parts(text, homes(), count).items()}
        with server("echo", homes()) as (url, pid):
            taken["part: web socket in and out"] = uvloop.run(web_socket_cpu(url, pid, count))
        taken["parts_us"] = sum(value for name, value in taken.items() if name.startswith("part: "))
        with server("node", homes()) as (url, pid):
            taken |= uvloop.run(ingest(url, pid, count))
    if "latency" in cases:
        home = homes()
        taken["sync_us"] = sync_us(home)
        with server("node", home) as (url, _):
            taken |= uvloop.run(latency(url))
    if "history" in cases:
        with server("node", homes()) as (url, _):
            taken |= uvloop.run(history(url, count))
    if "fan" in cases:
        with server("fan", homes()) as (url, _):
            taken["floor_deliveries_per_s"] = uvloop.run(fan(url, 2_000, node=False))["deliveries_per_s"]
        with server("node", homes()) as (url, _):
            taken |= uvloop.run(fan(url, 2_000, node=True))
    if "idle" in cases:
        with server("idle", homes()) as (url, pid):
            taken["floor_idle_kib"] = uvloop.run(idle(url, pid))["idle_kib"]
        with server("node", homes()) as (url, pid):
            taken |= uvloop.run(idle(url, pid))
    return taken


def ratios(medians: dict[str, float]) -> dict[str, float]:
    """Return what the aims speak of, as far as it was measured."""
    found = {}
    if "parts_us" in medians:
        found["CPU per packet over its parts (at most 1.3)"] = medians["cpu_us_per_packet"] / medians["parts_us"]
        found["packets/s (above 10,000)"] = medians["packets_per_s"]
    if "sync_us" in medians:
        limit = 1.5 * medians["sync_us"] + 1_000
        found["OK p50 over 1.5 syncs plus 1 ms (at most 1)"] = medians["ok_p50_us"] / limit
    if "events_per_s" in medians:
        found["history events/s (at least 200,000)"] = medians["events_per_s"]
    if "deliveries_per_s" in medians:
        found["fan-out over bare loop (at least 0.6)"] = medians["deliveries_per_s"] / medians["floor_deliveries_per_s"]
    if "idle_kib" in medians:
        found["idle memory over bare library (at most 1.3)"] = medians["idle_kib"] / medians["floor_idle_kib"]
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packets", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cases = set(options.only.split(","))
    print(f"Strata, {options.packets} packets of 600 B; {os.cpu_count()} cores; {platform.platform()}")
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            rounds.append(run_round(cases, options.packets, Path(folder)))
            print("  " + "  ".join(f"{name} {value:,.1f}" for name, value in rounds[-1].items()), flush=True)
    medians = {name: statistics.median(taken[name] for taken in rounds) for name in rounds[0]}
    found = ratios(medians)
    for name, value in found.items():
        print(f"  {name:50} {value:,.2f}")
    if options.json:
        options.json.write_text(json.dumps({"medians": medians, "ratios": found, "rounds": rounds}, indent=1))


if __name__ == "__main__":
    main()
