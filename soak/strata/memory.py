"""Tests that a Strata node's memory grows neither with the packets it has accepted nor with a reader that never reads.

Packets are published at full speed; the memory of the node and its signature-checking process is read after each
portion. One connection subscribes and reads nothing; when the node closes it, another replaces it. Retention is small,
so old packets are deleted throughout.
"""

import time
from pathlib import Path

import uvloop

from bench.strata.driver import Client, connect, drop, publish_all, publish_frames
from bench.websocket import client_frame
from soak.invariants import Memory, check_store, ended_well
from soak.strata.nodes import StrataNode
from tools.served import rss_kib

PORTION = 20_000
CONNECTIONS = 8
IN_FLIGHT = 64
WARM = 0.15
"""Part of the packets before memory counts: caches and the filter of known ids fill up to their bounds."""
DRIFT_MAX = 0.05


def check(folder: Path, seed: int, packets: int = 1_000_000) -> str:
    """Publish so many packets; return rate and curve."""
    node = StrataNode(folder / "home", retention_mib=64)
    with ended_well(node):
        node.start()
        memory = Memory("KiB of node and worker", [node.rss_kib, lambda: sum(map(rss_kib, node.workers))])
        seconds = uvloop.run(_publish(node, packets, seed * 100_000_000, memory))
    check_store(node.store)
    shown = memory.check_flat(int(packets * WARM) // PORTION, DRIFT_MAX)
    return f"{packets} packets at {packets / seconds:,.0f}/s; KiB of node and worker: {shown}"


async def _publish(node: StrataNode, packets: int, first: int, memory: Memory) -> float:
    clients = await connect(node.url, CONNECTIONS)
    seconds = 0.0
    reader = await _one_who_never_reads(node.url)
    for count in range(0, packets, PORTION):
        frames = publish_frames(min(PORTION, packets - count), int(time.time()), first + count)
        seconds += await publish_all(clients, frames, IN_FLIGHT)
        if reader.lost:
            reader = await _one_who_never_reads(node.url)
        memory.end_round()
    await drop(*clients, reader)
    return seconds


async def _one_who_never_reads(url: str) -> Client:
    (client,) = await connect(url, 1)
    client.transport.write(client_frame(b'{"type":"SUBSCRIBE","subscription_id":"s","filters":{"limit":500}}'))
    client.transport.pause_reading()
    return client
