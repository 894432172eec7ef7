"""``waystation sim`` prints what a run came to and exits by it."""

import gc
import json

import pytest

from tests.sim.bhumi.build import CORE
from tests.sim.bhumi.core_mutants import SwapsResults
from waystation.cli import main
from waystation.cli.sim import describe_failure
from waystation.sim.run import SCENARIOS, run_seed
from waystation.sim.scenario import Scenario


def called(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["sim", *arguments])
    return ended.value.code, capsys.readouterr().out


def test_one_seed_prints_hash_and_speed(capsys):
    """A good run is one line, with the beginning of the trace's hash, and exit code 0."""
    code, said = called(capsys, "--seed", "3", "--hours", "0.01")

    assert code == 0
    assert run_seed("bhumi", 3, 0.01).trace_hash[:16] in said
    assert "simulated hours per second" in said
    assert said.startswith("ok    bhumi seed 3 ")


def test_many_seeds_as_json(capsys):
    """Each seed is one JSON line in order, then a line with the sums."""
    code, said = called(capsys, "--seed", "5", "--seeds", "3", "--hours", "0.01", "--json")
    *runs, total = map(json.loads, said.splitlines())

    assert code == 0
    assert [run["seed"] for run in runs] == [5, 6, 7]
    assert total["failed"] == 0
    assert total["exchanges"]["ok"] == sum(run["exchanges"]["ok"] for run in runs)


def test_worlds_that_are_over_are_forgotten(capsys):
    """A run of many seeds keeps no world of a seed that is over, however rarely the interpreter looks for cycles."""
    gc.collect()
    before = {id(each) for each in gc.get_objects() if issubclass(type(each), Scenario)}
    gc.disable()
    try:
        code, _ = called(capsys, "--seed", "5", "--seeds", "3", "--hours", "0.002")
        kept = [each for each in gc.get_objects() if issubclass(type(each), Scenario) and id(each) not in before]
    finally:
        gc.enable()

    assert code == 0
    assert kept == []


def test_processes_share_seeds_without_changing_them(capsys):
    """Two processes give the same traces as one, in the same order."""
    arguments = ("--seed", "5", "--seeds", "2", "--hours", "0.01", "--json")
    _, alone = called(capsys, *arguments)
    _, shared = called(capsys, *arguments, "--jobs", "2")

    hashes = [[json.loads(line).get("trace_hash") for line in said.splitlines()] for said in (alone, shared)]

    assert hashes[0] == hashes[1]


def test_disks_fail_when_asked(capsys):
    """With --disk the run is another one, and the same as the simulator's own."""
    code, said = called(capsys, "--protocol", "strata", "--seed", "3", "--hours", "0.01", "--disk", "--json")
    run = json.loads(said)

    assert code == 0
    assert run["trace_hash"] == run_seed("strata", 3, 0.01, disks=True).trace_hash
    assert run["trace_hash"] != run_seed("strata", 3, 0.01).trace_hash


def test_all_protocols_share_a_call(capsys):
    """Every protocol that has a scenario is run with every seed, each as it runs alone."""
    code, said = called(capsys, "--protocol", "all", "--seed", "3", "--hours", "0.01", "--json")
    *runs, total = map(json.loads, said.splitlines())

    assert code == 0
    assert [run["protocol"] for run in runs] == sorted(SCENARIOS)
    assert [run["trace_hash"] for run in runs] == [run_seed(each, 3, 0.01).trace_hash for each in sorted(SCENARIOS)]
    assert total["seeds"] == len(SCENARIOS)


def test_share_of_right_look_ups_is_shown(capsys):
    """A world with look-ups says how many of them were right, per seed and in all."""
    code, said = called(capsys, "--protocol", "bhumi-open", "--seed", "4", "--seeds", "2", "--hours", "0.012")
    *runs, total = said.splitlines()

    assert code == 0
    assert all("% of look-ups right)" in line for line in [*runs, total])


def test_trace_file_holds_every_line(capsys, tmp_path):
    """The trace goes to the file that was named."""
    lines = []
    run_seed("bhumi", 3, 0.01, sink=lines.append)

    code, _ = called(capsys, "--seed", "3", "--hours", "0.01", "--trace", str(tmp_path / "trace"))

    assert code == 0
    assert (tmp_path / "trace").read_text().splitlines() == lines


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--protocol", "gopher"), 2),
        (("--hours", "0"), 2),
        (("--seeds", "2", "--trace", "x"), 2),
        (("--protocol", "all", "--trace", "x"), 2),
        (("--hours", "0.01", "--trace", "/nowhere/at/all"), 1),
    ],
)
def test_impossible_calls_are_refused(capsys, arguments, code):
    """Usage mistakes exit 2, a path that cannot be written exits 1."""
    assert called(capsys, *arguments)[0] == code


def test_failure_exits_one_and_says_how_to_repeat_it(capsys, monkeypatch):
    """A violated law is exit code 1, with its name, the end of the trace, and the command to run again."""
    failed = CORE.run_with(SwapsResults, 0)
    monkeypatch.setitem(SCENARIOS, "bhumi", CORE.scenario_with(SwapsResults))

    code, said = called(capsys, "--seed", "0", "--hours", "0.1")

    assert code == 1
    assert said.startswith("FAIL  bhumi seed 0 ")
    assert describe_failure(failed) in said
    assert "waystation sim --protocol bhumi --seed 0 --hours 0.1" in said
    assert "one-result" in said
