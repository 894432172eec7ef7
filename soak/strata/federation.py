"""Tests that two Strata relays which read each other end with the same packets, although one is killed meanwhile.

Each relay gets half of the packets from its own publisher. The second relay is killed while both publish, restarted,
and sent the unacknowledged packets again.
"""

import asyncio
import random
import signal
import time
from contextlib import closing
from functools import partial
from pathlib import Path

from bench.strata.driver import Publisher, publish_frames
from soak.invariants import check_store, ended_well, eventually
from soak.strata.nodes import StrataNode, id_of, read_ids, stored_rows
from tools.served import free_port
from waystation.core.dids import encode_did
from waystation.crypto.signing import KeyPair
from waystation.store.sqlite import SqliteStore

KEYS = (KeyPair.from_seed(b"a" * 32), KeyPair.from_seed(b"b" * 32))
POLL_S = 0.3


def check(folder: Path, seed: int, packets: int = 10_000, within_s: float = 300) -> str:
    """Try it with so many packets in all; return what happened."""
    rng = random.Random(seed)
    frames = publish_frames(packets, int(time.time()))
    wanted = {id_of(each) for each in frames}
    first, second = _nodes(folder)
    with ended_well(first, second):
        first.start()
        second.start()
        began = time.monotonic()
        asyncio.run(_publish_with_a_cut(first, second, frames, packets // 2, rng))
        asyncio.run(_until_equal((first, second), wanted, within_s))
        took_s = time.monotonic() - began
    for node in (first, second):
        check_store(node.store)
    stored = [_sources(node) for node in (first, second)]
    assert all(ids.keys() == wanted for ids in stored), [len(ids) for ids in stored]
    sources = {source for ids in stored for source in ids.values()}
    assert sources == {"", first.did, second.did}, sources
    return f"{packets} packets on both relays after {took_s:.1f} s, one of them killed in between"


def _nodes(folder: Path) -> tuple[StrataNode, StrataNode]:
    ports = (free_port(), free_port())
    dids = [encode_did(key.public) for key in KEYS]
    first, second = (
        StrataNode(
            folder / f"relay{number}",
            key=KEYS[number],
            port=ports[number],
            upstreams=[(f"ws://127.0.0.1:{ports[1 - number]}/strata", dids[1 - number])],
            replicate_allow=[dids[1 - number]],
        )
        for number in (0, 1)
    )
    return first, second


async def _publish_with_a_cut(
    first: StrataNode, second: StrataNode, frames: list[bytes], half: int, rng: random.Random
) -> None:
    """Publish one half to each relay; kill the second when a random part of its half is acknowledged."""
    cut_at = rng.randrange(half // 4, 3 * half // 4)
    ours, theirs = (
        Publisher(frames[:half], 16),
        Publisher(frames[half:], 16, (cut_at, partial(second.signal, signal.SIGKILL))),
    )
    await ours.begin(first.url, 2)
    await theirs.begin(second.url, 2)
    await eventually(lambda: theirs.cut_off, "the moment of the cut", 120)
    await theirs.close()
    second.wait()
    second.start()
    rest = Publisher([each for each in frames[half:] if id_of(each) not in theirs.acknowledged], 16)
    await rest.begin(second.url, 2)
    for publisher in (ours, rest):
        await asyncio.wait_for(publisher.done.wait(), 120)
        assert not publisher.refused, publisher.refused[:3]
        await publisher.close()


async def _until_equal(nodes: tuple[StrataNode, StrataNode], wanted: set[str], within_s: float) -> None:
    """Wait until both relays give everything to a reader."""
    ends_at = time.monotonic() + within_s
    while True:
        given = [await read_ids(node.url) for node in nodes]
        if all(set(ids) == wanted for ids in given):
            assert all(len(ids) == len(wanted) for ids in given), "a packet was given twice"
            return
        assert time.monotonic() < ends_at, f"after {within_s:g} s: {[len(ids) for ids in given]} of {len(wanted)}"
        await asyncio.sleep(POLL_S)


def _sources(node: StrataNode) -> dict[str, str]:
    """Return the source of every packet by its id, as the file of the ended node has it."""
    with closing(SqliteStore(node.store)) as store:
        return {"0x" + row.packet_id.hex(): row.source for row in stored_rows(store)}
