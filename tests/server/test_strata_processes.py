"""Whole Strata nodes in processes: what `make soak` tries for long (soak/), tried for a moment."""

import time

import pytest

from bench.strata_driver import publish_frames
from soak import strata_federation, strata_hostile, strata_kill, strata_slow, strata_subscribers
from soak.nodes import StrataNode

SEED = 7


def test_what_was_acknowledged_survives_a_kill(tmp_path):
    """After SIGKILL at random moments under load every OK was true, the file is whole, and the order goes on."""
    told = strata_kill.law(tmp_path, SEED, rounds=5)

    assert told.startswith("5 kills")
    assert not told.startswith("5 kills, 0 packets")


def test_row_11_readers_who_resume_at_random_miss_nothing(tmp_path):
    """Eight readers page by seven, drop and resume while a publisher runs; nobody has a gap or an undue copy."""
    told = strata_subscribers.law(tmp_path, SEED, readers=8, packets=300, within_s=30)

    assert told.endswith("none missed")


def test_row_35_two_relays_end_equal(tmp_path):
    """Each reads the other, one is killed in between, and both end with the same packets, each once."""
    told = strata_federation.law(tmp_path, SEED, packets=300, within_s=30)

    assert told.startswith("300 packets on both relays")


@pytest.mark.slow
def test_row_36_a_hostile_upstream_is_banned(tmp_path):
    """Nothing it tampered with is stored, its score falls, and a restart does not forgive it."""
    told = strata_hostile.law(tmp_path, SEED, quiet_s=0.3, ways=("signature",), packets=50)

    assert "nothing stored" in told


def test_row_45_a_slow_reader_catches_up(tmp_path):
    """Whoever takes little for a while gets everything in the end, once."""
    told = strata_slow.law(tmp_path, SEED, packets=4_000, slow_s=1)

    assert "got them all" in told


def test_no_process_is_left_behind(tmp_path):
    """However suddenly the node ends, the processes it started end with it."""
    with StrataNode(tmp_path / "home").start() as node:
        strata_kill.publish(node, publish_frames(2_000, int(time.time())))
        workers = node.workers
        node.kill()

    assert workers
    strata_kill.wait_for_the_end_of(workers)
