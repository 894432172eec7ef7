"""A node's memory does not grow with what it has taken in, nor with a reader that never reads.

Packets are published at full speed; resident memory of the node and of the process that checks signatures is looked at
after each portion. One connection subscribes and takes nothing; when the node ends it, another takes its place. What
retention leaves is small, so that dropping goes on all the time.
"""

import time
from pathlib import Path

import uvloop

from bench.strata_driver import Client, connect, frame, publish_all, publish_frames
from soak.nodes import StrataNode, drop, rss_kib

PORTION = 20_000
CONNECTIONS = 8
IN_FLIGHT = 64
WARM = 0.15
"""Part of the packets before memory counts: caches and the filter of known ids fill up to their bounds."""
DRIFT_MAX = 0.05


def law(folder: Path, seed: int, packets: int = 1_000_000) -> str:
    """Publish so many packets; return rate and curve."""
    with StrataNode(folder / "home", retention_mib=64).start() as node:
        curve, seconds = uvloop.run(_publish(node, packets, first=seed * 100_000_000))
        node.stop()
        node.check_store()
    for name, column in (("node", 1), ("worker", 2)):
        warm = [entry[column] for entry in curve if entry[0] >= packets * WARM and entry[column]]
        middle = (max(warm) + min(warm)) / 2
        drift = (max(warm) - min(warm)) / 2 / middle
        assert drift <= DRIFT_MAX, f"{name}: {drift:.1%} around {middle:.0f} KiB: {shown(curve)}"
    return f"{packets} packets at {packets / seconds:,.0f}/s; KiB after n: {shown(curve)}"


def shown(curve: list[tuple[int, int, int]]) -> str:
    """Return at most twelve points of the curve: packets, node, worker."""
    step = max(1, len(curve) // 12)
    points = [*curve[::step], curve[-1]] if (len(curve) - 1) % step else curve[::step]
    return ", ".join(f"{count // 1_000}k {node}+{worker}" for count, node, worker in points)


async def _publish(node: StrataNode, packets: int, first: int) -> tuple[list[tuple[int, int, int]], float]:
    clients = await connect(node.url, CONNECTIONS)
    curve: list[tuple[int, int, int]] = []
    seconds = 0.0
    reader = await _one_who_never_reads(node.url)
    for count in range(0, packets, PORTION):
        frames = publish_frames(min(PORTION, packets - count), int(time.time()), first + count)
        seconds += await publish_all(clients, frames, IN_FLIGHT)
        if reader.lost:
            reader = await _one_who_never_reads(node.url)
        workers = [rss_kib(pid) for pid in node.workers]
        curve.append((count + len(frames), rss_kib(node.pid), sum(workers)))
    await drop(*clients, reader)
    return curve, seconds


async def _one_who_never_reads(url: str) -> Client:
    (client,) = await connect(url, 1)
    client.transport.write(frame(b'{"type":"SUBSCRIBE","subscription_id":"s","filters":{"limit":500}}'))
    client.transport.pause_reading()
    return client
