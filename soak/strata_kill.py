"""What was acknowledged is there after SIGKILL at any moment, and the order of arrival goes on behind it.

Each round starts the node, publishes at full speed, and kills it a random time later. Only then is looked at, over HTTP
from the restarted node, whether every OK of the last round was true; in the end the whole store is.
"""

import asyncio
import random
import time
from pathlib import Path

from bench.strata_driver import publish_frames
from soak.nodes import Publisher, StrataNode, eventually, id_of, missing_over_http
from waystation.core.packets import PacketQuery
from waystation.store.sqlite import SqliteStore

MOMENT_MAX_S = 0.3
FRAMES_PER_ROUND = 2_500
CONNECTIONS = 4
IN_FLIGHT = 48
CHECK_EVERY = 20


def law(folder: Path, seed: int, rounds: int = 200) -> str:
    """Try it so many times; return what happened."""
    rng = random.Random(seed)
    came: dict[str, int] = {}
    with StrataNode(folder / "home") as node:
        before: set[str] = set()
        for number in range(rounds):
            node.start()
            assert not missing_over_http(node.url, sorted(before)), f"round {number}: acknowledged and not there"
            frames = publish_frames(FRAMES_PER_ROUND, int(time.time()), number * FRAMES_PER_ROUND)
            before = asyncio.run(_publish_until_killed(node, frames, rng.uniform(0, MOMENT_MAX_S)))
            assert before <= {id_of(each) for each in frames}
            came |= dict.fromkeys(before, number)
            if number % CHECK_EVERY == 0 or number == rounds - 1:
                node.check_store()
        node.start()
        node.stop()
        acknowledged = len(came)
        rows = _check_order(node, came)
    return f"{rounds} kills, {acknowledged} packets acknowledged, {rows} stored, none lost, store whole"


def publish(node: StrataNode, frames: list[bytes]) -> None:
    """Publish everything and see every packet acknowledged."""

    async def publish_all() -> Publisher:
        publisher = Publisher(frames, IN_FLIGHT)
        await publisher.begin(node.url, CONNECTIONS)
        await asyncio.wait_for(publisher.done.wait(), 60)
        await publisher.close()
        return publisher

    publisher = asyncio.run(publish_all())
    assert publisher.acknowledged == {id_of(each) for each in frames}, publisher.refused[:3]


def wait_for_the_end_of(pids: list[int], within_s: float = 5) -> None:
    """Return once none of these processes runs."""
    asyncio.run(eventually(lambda: not any(_runs(pid) for pid in pids), "the end of what it started", within_s))


def _runs(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


async def _publish_until_killed(node: StrataNode, frames: list[bytes], moment_s: float) -> set[str]:
    """Publish, kill the node in the middle, and return what it had acknowledged."""
    publisher = Publisher(frames, IN_FLIGHT)
    await publisher.begin(node.url, CONNECTIONS)
    asyncio.get_running_loop().call_later(moment_s, node.cut)
    await eventually(lambda: publisher.cut_off, "the end of the connections", 20)
    await publisher.close()
    node.kill()
    assert not publisher.refused, publisher.refused[:3]
    return publisher.acknowledged


def _check_order(node: StrataNode, came: dict[str, int]) -> int:
    """See that everything acknowledged is stored, in an order that follows the rounds; return the count of packets."""
    store = SqliteStore(node.home / "store.sqlite")
    try:
        order: list[int] = []
        seqs: list[int] = []
        query = PacketQuery(by_seq=True, rows_max=1_000)
        while True:
            page = store.packets.page(query)
            seqs += [row.seq for row in page.rows]
            order += [came.pop(name) for row in page.rows if (name := "0x" + row.packet_id.hex()) in came]
            if page.position is None:
                break
            query = query._replace(start=page.position)
        assert not came, f"acknowledged and not stored: {sorted(came)[:3]}"
        assert order == sorted(order), "a later round stands before an earlier one"
        assert seqs == sorted(set(seqs))
        assert store.packets.newest_seq() == seqs[-1]
        return len(seqs)
    finally:
        store.close()
