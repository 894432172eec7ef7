"""Strata towns repeat themselves exactly, find nothing in what is right, and do what their plans say."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest

from tests.sim.build_strata import APART, HOURS, PAIR, QUIET, TAMPERED, run_with
from waystation.sim.run import run_seed
from waystation.sim.strata import StrataTown

PROGRAM = "from waystation.sim.run import run_seed; print(run_seed('strata', 6, 0.01).trace_hash)"


def test_one_seed_has_one_trace():
    """Twice the same seed is twice the same result; another seed is another trace."""
    first, again, other = (run_seed("strata", seed, 0.01) for seed in (3, 3, 4))

    assert first == again
    assert first.trace_hash != other.trace_hash


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_trace_does_not_depend_on_the_process(hash_seed):
    """No order of a set and no address of an object reaches a trace."""
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    said = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True)

    assert said.stdout.strip() == run_seed("strata", 6, 0.01).trace_hash


@pytest.mark.parametrize("seed", range(1, 7))
def test_drawn_world_breaks_no_law(seed):
    """The relay and the client keep every law in worlds drawn from seeds."""
    result = run_seed("strata", seed, 0.01)

    assert result.failure is None
    assert result.exchanges["ok"] > 0


def test_replicas_have_the_same_packets():
    """Two relays that read each other have one set of packets in the end, through crashes and broken links."""
    lines = lines_of(APART)
    ends = [line.split() for line in lines if " Stored " in line and line.endswith("True")]

    assert len(ends) == 2
    assert ends[0][3] == ends[1][3] != "0"


def test_crashes_and_replication_take_place():
    """A plan with crashes has lives, and its relays dial each other."""
    lines = lines_of(PAIR)

    assert any(" crash for " in line for line in lines)
    assert any(" r0 connect " in line and " to did:" in line for line in lines)
    assert any(" r1 connect " in line and " to did:" in line for line in lines)


def test_forging_relay_is_read_and_thrown_out():
    """A relay that forges is dialled, its connection ended for it, and in the end it is left alone."""
    closes = [line for line in lines_of(TAMPERED) if "integrity_violation" in line and " close " in line]

    assert 1 <= len(closes) <= 8


def test_rotated_keys_are_used():
    """Publishers that change their keys go on publishing under them."""
    habits = replace(QUIET.publisher, rotates=0.3)
    lines = lines_of(replace(QUIET, publisher=habits))
    events = [number for number, line in enumerate(lines) if " Made " in line and " KEY_EVENT " in line]
    oks = [number for number, line in enumerate(lines) if " Published 0 " in line]

    assert len(events) > 2
    assert oks[-1] > events[-1]


def lines_of(plan):
    """Return the trace of a run that breaks no law."""
    lines = []
    result = run_seed("strata", 1, HOURS, sink=lines.append, make=partial(StrataTown, plan=plan))
    assert result.failure is None
    return lines


def test_outcomes_count_what_was_told_and_read():
    """In a quiet world every packet is promised, and every reader without filters reads it."""
    outcomes = run_with(None, 1, QUIET).exchanges

    assert set(outcomes) == {"ok", "read"}
    assert outcomes["ok"] > 10
