"""Runs are repeatable and tell what happened."""

import json
import os
import subprocess
import sys

import pytest

from tests.sim.bhumi.build import CORE
from tests.sim.bhumi.core_mutants import SwapsResults
from waystation.core.errors import LocalError
from waystation.sim.run import LARGE, SCENARIOS, run_seed, scenario_of

HOURS = {"bhumi": 0.02, "bhumi-open": 0.01, "bsp": 0.005, "lprp": 0.005, "merk": 0.01, "strata": 0.01}
"""Simulated hours of a short run that still has something of everything."""

PROGRAM = "from waystation.sim.run import run_seed; print(*(run_seed(*each).trace_hash for each in {}))"


@pytest.mark.parametrize("protocol", SCENARIOS)
def test_one_seed_has_one_trace(protocol):
    """Twice the same seed is twice the same result; another seed is another trace."""
    first, again, other = (run_seed(protocol, seed, HOURS[protocol]) for seed in (3, 3, 4))

    assert first == again
    assert first.trace_hash != other.trace_hash


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_trace_does_not_depend_on_the_process(hash_seed):
    """No order of a set and no address of an object reaches a trace."""
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed}
    runs = [(protocol, 6, hours) for protocol, hours in HOURS.items()]
    program = [sys.executable, "-c", PROGRAM.format(runs)]
    printed = subprocess.run(program, env=environ, capture_output=True, text=True, check=True)

    assert printed.stdout.split() == [run_seed(*each).trace_hash for each in runs]


@pytest.mark.parametrize("protocol", SCENARIOS)
@pytest.mark.parametrize("seed", range(1, 9))
def test_drawn_plan_breaks_no_invariant(protocol, seed):
    """Our machines keep every invariant in plans drawn from seeds, and get something done."""
    result = run_seed(protocol, seed, HOURS[protocol])

    assert result.failure is None
    assert sum(result.exchanges.values()) > 0


def test_result_is_plain_json():
    """A result survives JSON, and names the command that repeats it."""
    result = run_seed("bhumi", 3, 0.02)

    document = json.loads(json.dumps(result.document()))

    assert document["trace_hash"] == result.trace_hash
    assert document["failure"] is None
    assert document["command"] == "waystation sim --protocol bhumi --seed 3 --hours 0.02"
    assert result.simulated_us > 72_000_000


def test_failure_tells_law_time_and_last_lines():
    """A failed run stops where it failed, with the end of its trace."""
    lines = []
    result = CORE.run_with(SwapsResults, 0)
    run_seed("bhumi", 0, 0.02, sink=lines.append)

    assert result.failure.invariant == "one-result"
    assert 1 <= len(result.failure.last_lines) <= 40
    assert "Concluded" in result.failure.last_lines[-1]
    assert result.failure.at_us == result.simulated_us


@pytest.mark.parametrize(
    ("protocol", "seed", "is_large"),
    [("bhumi-open", 50, True), ("bhumi-open", 100, True), ("bhumi-open", 51, False), ("bhumi", 50, False)],
)
def test_some_seeds_are_large_worlds(protocol, seed, is_large):
    """Every fiftieth seed of the open world has fifty relays; no other protocol has such seeds."""
    scenario = scenario_of(protocol, seed)

    assert (scenario is LARGE["bhumi-open"][1]) is is_large
    assert is_large or scenario is SCENARIOS[protocol]


@pytest.mark.parametrize(("protocol", "hours"), [("gopher", 1.0), ("bhumi", 0.0), ("bhumi", float("nan"))])
def test_impossible_runs_are_refused(protocol, hours):
    """Unknown protocols and empty durations are the caller's mistake."""
    with pytest.raises(LocalError):
        run_seed(protocol, 1, hours)
