"""Tests that every packet a Strata node acknowledged survives SIGKILL at any moment, and that arrival order continues.

Each round starts the node, publishes at full speed, and kills it a random time after the first OK. The restarted node
is then asked over HTTP for every acknowledged packet. The whole store is checked at the end.
"""

import asyncio
import random
import signal
import time
from contextlib import closing
from functools import partial
from pathlib import Path

from bench.strata.driver import Publisher, publish_frames
from soak.invariants import ended_well, eventually, kill_in_rounds
from soak.shims.power_cut import Power
from soak.strata.nodes import StrataNode, id_of, missing_over_http, stored_rows
from waystation.store.sqlite import SqliteStore

MOMENT_MAX_S = 0.3
FRAMES_PER_ROUND = 2_500
CONNECTIONS = 4
IN_FLIGHT = 48


def check(folder: Path, seed: int, rounds: int = 200, power: Power | None = None) -> str:
    """Try it so many times; return what happened. With ``power`` each kill of the node is a power cut."""
    came: dict[str, int] = {}
    before: set[str] = set()
    node = StrataNode(folder / "home", power=power)

    def check() -> None:
        node.start()
        assert not missing_over_http(node.url, sorted(before)), "acknowledged and not there"

    def kill(number: int, moment_s: float) -> Path:
        nonlocal before
        frames = publish_frames(FRAMES_PER_ROUND, int(time.time()), number * FRAMES_PER_ROUND)
        before = asyncio.run(_publish_until_killed(node, frames, moment_s))
        assert before <= {id_of(each) for each in frames}
        came.update(dict.fromkeys(before, number))
        return node.store

    with ended_well(node):
        kill_in_rounds(random.Random(seed), rounds, MOMENT_MAX_S, check, kill)
    acknowledged = len(came)
    rows = _check_order(node, came)
    return f"{rounds} kills, {acknowledged} packets acknowledged, {rows} stored, none lost, store whole"


async def _publish_until_killed(node: StrataNode, frames: list[bytes], moment_s: float) -> set[str]:
    """Publish, kill the node in the middle, and return what it had acknowledged."""
    loop = asyncio.get_running_loop()
    begun = (1, partial(loop.call_later, moment_s, node.signal, signal.SIGKILL))  # on a slow machine, too, under load
    publisher = Publisher(frames, IN_FLIGHT, begun)
    await publisher.begin(node.url, CONNECTIONS)
    await eventually(lambda: publisher.cut_off, "the end of the connections", 20)
    await publisher.close()
    node.wait()
    assert not publisher.refused, publisher.refused[:3]
    return publisher.acknowledged


def _check_order(node: StrataNode, came: dict[str, int]) -> int:
    """See that everything acknowledged is stored, in an order that follows the rounds; return the count of packets."""
    with closing(SqliteStore(node.store)) as store:
        rows = [("0x" + row.packet_id.hex(), row.seq) for row in stored_rows(store)]
        newest_seq = store.packets.newest_seq()
    order = [came.pop(name) for name, _ in rows if name in came]
    seqs = [seq for _, seq in rows]
    assert not came, f"acknowledged and not stored: {sorted(came)[:3]}"
    assert order == sorted(order), "a later round comes before an earlier one"
    assert seqs == sorted(set(seqs))
    assert newest_seq == seqs[-1]
    return len(seqs)
