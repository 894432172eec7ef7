"""Whole Strata nodes in processes: what `make soak` tries for long (soak/), tried for a moment."""

import asyncio
import pathlib
import time

import pytest

from bench.strata.driver import connect, drop, publish_all, publish_frames
from soak.invariants import eventually
from soak.strata import federation, hostile, subscribers
from soak.strata import kill as strata_kill
from soak.strata import slow as strata_slow
from soak.strata.nodes import StrataNode

SEED = 7


async def publish(url, frames):
    """Publish everything; the node acknowledges all of it."""
    clients = await connect(url, 4)
    await publish_all(clients, frames, 48)
    await drop(*clients)


def runs(pid):
    """Return whether a process runs; one that has ended may not have been waited for."""
    stat = pathlib.Path(f"/proc/{pid}/stat")
    return stat.exists() and ") Z " not in stat.read_text()


def test_what_was_acknowledged_survives_a_kill(tmp_path):
    """After SIGKILL at random moments under load every OK was true, the file is whole, and the order goes on."""
    told = strata_kill.check(tmp_path, SEED, rounds=5)

    assert told.startswith("5 kills")
    assert not told.startswith("5 kills, 0 packets")


def test_row_11_readers_who_resume_at_random_miss_nothing(tmp_path):
    """Eight readers page by seven, drop and resume while a publisher runs; nobody has a gap or an undue copy."""
    told = subscribers.check(tmp_path, SEED, readers=8, packets=300, within_s=30)

    assert told.endswith("none missed")


def test_row_35_two_relays_end_equal(tmp_path):
    """Each reads the other, one is killed in between, and both end with the same packets, each once."""
    told = federation.check(tmp_path, SEED, packets=300, within_s=30)

    assert told.startswith("300 packets on both relays")


@pytest.mark.slow
def test_row_36_a_hostile_upstream_is_banned(tmp_path):
    """Nothing it tampered with is stored, its score falls, and a restart does not forgive it."""
    told = hostile.check(tmp_path, SEED, quiet_s=0.3, ways=("signature",), packets=50)

    assert "nothing stored" in told


def test_row_45_a_slow_reader_catches_up(tmp_path):
    """Whoever takes little for a while gets everything in the end, once."""
    told = strata_slow.check(tmp_path, SEED, packets=4_000, slow_s=1)

    assert "got them all" in told


def test_no_process_is_left_behind(tmp_path):
    """However suddenly the node ends, the processes it started end with it."""
    with StrataNode(tmp_path / "home").start() as node:
        asyncio.run(publish(node.url, publish_frames(2_000, int(time.time()))))
        workers = node.workers
        node.kill()

    assert workers
    asyncio.run(eventually(lambda: not any(map(runs, workers)), "the end of what it started", 5))
