"""Two relays that read each other end with the same packets, one of them killed in between.

Each gets half of the packets from a publisher of its own. The second is killed while both publish, started again, and
gets the packets it had not acknowledged once more.
"""

import asyncio
import random
import time
from pathlib import Path

from bench.strata_driver import publish_frames
from soak.nodes import Publisher, StrataNode, eventually, free_port, id_of, read_ids
from waystation.core.dids import encode_did
from waystation.core.packets import PacketQuery
from waystation.crypto.signing import KeyPair
from waystation.store.sqlite import SqliteStore

KEYS = (KeyPair.from_seed(b"a" * 32), KeyPair.from_seed(b"b" * 32))
POLL_S = 0.3


def law(folder: Path, seed: int, packets: int = 10_000, within_s: float = 300) -> str:
    """Try it with so many packets in all; return what happened."""
    rng = random.Random(seed)
    frames = publish_frames(packets, int(time.time()))
    wanted = {id_of(each) for each in frames}
    first, second = _nodes(folder)
    with first, second:
        first.start()
        second.start()
        began = time.monotonic()
        asyncio.run(_publish_with_a_cut(first, second, frames, packets // 2, rng))
        asyncio.run(_until_equal((first, second), wanted, within_s))
        took_s = time.monotonic() - began
        for node in (first, second):
            node.stop()
            node.check_store()
    stored = [_stored(node) for node in (first, second)]
    assert all(set(ids) == wanted and len(ids) == len(wanted) for ids in stored), [len(ids) for ids in stored]
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
    ours, theirs = Publisher(frames[:half], 16), Publisher(frames[half:], 16, (cut_at, second.cut))
    await ours.begin(first.url, 2)
    await theirs.begin(second.url, 2)
    await eventually(lambda: theirs.cut_off, "the moment of the cut", 120)
    await theirs.close()
    second.kill()
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


def _stored(node: StrataNode) -> dict[str, str]:
    """Return the source of every packet by its id, as the file of the ended node has it."""
    store = SqliteStore(node.home / "store.sqlite")
    try:
        found: dict[str, str] = {}
        query = PacketQuery(by_seq=True, rows_max=1_000)
        while True:
            page = store.packets.page(query)
            found |= {"0x" + row.packet_id.hex(): row.source for row in page.rows}
            if page.position is None:
                return found
            query = query._replace(start=page.position)
    finally:
        store.close()
