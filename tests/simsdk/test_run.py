"""A seed gives one run, the same everywhere."""

import json
import os
import subprocess
import sys

import pytest

from waystation.cli import main
from waystation.core.errors import LocalError
from waystation.simsdk.run import PROTOCOLS, run_seed

HOURS = 0.001
HASH = """
from waystation.simsdk.run import run_seed
print(run_seed("bhumi-sdk", 7, 0.001).trace_hash)
"""


def hash_in_another_process(hash_seed):
    """Return the hash of a run where sets and dictionaries of texts have another order."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", HASH], check=True, capture_output=True, text=True, env=environment)
    return done.stdout.strip()


def test_seed_repeats_its_run_exactly():
    """Two processes with other addresses and other hashes write the same trace, keys and nonces included."""
    assert hash_in_another_process("1") == hash_in_another_process("2") == run_seed("bhumi-sdk", 7, HOURS).trace_hash


def test_trace_has_frames_and_what_applications_did():
    """Each line has its time; frames, the relay's tricks and applications have lines."""
    lines = []
    result = run_seed("bhumi-sdk", 3, HOURS, sink=lines.append)

    assert result.failure is None
    assert {"in", "out", "trick", "Asks", "Called", "Replied"} <= {line.split()[1] for line in lines}
    assert len(lines) == result.events


def test_command_runs_the_sdk(capsys):
    """``waystation sim`` runs it by its name, and ``--disk`` is refused."""
    with pytest.raises(SystemExit) as ended:
        main(["sim", "--protocol", "bhumi-sdk", "--seed", "7", "--hours", str(HOURS), "--json"])
    run = json.loads(capsys.readouterr().out)
    with pytest.raises(SystemExit) as refused:
        main(["sim", "--protocol", "bhumi-sdk", "--disk"])

    assert (ended.value.code, refused.value.code) == (0, 2)
    assert run["trace_hash"] == run_seed("bhumi-sdk", 7, HOURS).trace_hash
    assert run["command"] == f"waystation sim --protocol bhumi-sdk --seed 7 --hours {HOURS}"


@pytest.mark.parametrize(("protocol", "hours"), [("bhumi", 1.0), (PROTOCOLS[0], 0.0)])
def test_nonsense_is_refused(protocol, hours):
    """A world of another simulator and a duration of nothing are errors of the caller."""
    with pytest.raises(LocalError):
        run_seed(protocol, 1, hours)
