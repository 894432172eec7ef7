"""The driver is killed at any moment, and what it leaves is what an uninterrupted run leaves."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.pipeline.build import rough_archive, rough_journal
from tests.pipeline.reading import rows_of, table_hashes
from waystation.core.ids import PublicKey
from waystation.pipeline.lake import Lake
from waystation.pipeline.publish import load_key
from waystation.pipeline.tables import OPS_RETENTION
from waystation.server.policy_reader import read_published

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(7_200)]

KILLS = 20
SEED = 7
RUN_S = 600.0
NOW_US = 1_780_185_600_000_000
"""When the rough journal ends: what is published of it holds."""
RENAMES = ("replace", "rename")

PROGRAM = """
import os, signal, sys
from waystation.pipeline.__main__ import main

kill_at, before, seen = int(sys.argv[1]), sys.argv[2] == "before", 0

def watched(rename):
    def call(source, target, **options):
        global seen
        counts = str(target).endswith(("MANIFEST.json", "CURRENT.json"))
        seen += counts
        if counts and seen == kill_at and before:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target, **options)
        if counts and seen == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    return call

os.replace, os.rename = watched(os.replace), watched(os.rename)
code = main(sys.argv[3:])
sys.stderr.write(f"renames {seen}\\n")
sys.exit(code)
"""


def start(base: Path, lake: Path, kill_at: int = 0, when: str = "before") -> subprocess.Popen:
    """Run the pipeline in a process group of its own; ``kill_at`` is the number of the rename that kills it."""
    places = ("--home", str(base), "--lake", str(lake), "--report", str(lake.parent / f"{lake.name}.html"))
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(kill_at), when, *places],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end(process: subprocess.Popen) -> None:
    """Kill what is left of a run: the driver, its JVM and its workers."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


class Reader(threading.Thread):
    """Reads the published snapshot again and again, as nodes do."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.reads, self.faults, self.stop = folder, 0, [], threading.Event()

    def run(self) -> None:
        while not self.stop.wait(0.01):
            if (self.folder / "CURRENT.json").exists():
                try:
                    read_published(self.folder, "0" * 16, PublicKey(load_key(self.folder.parent).public), None, NOW_US)
                    self.reads += 1
                except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
                    self.faults.append(repr(error))


def facts(lake: Path) -> dict[str, object]:
    """Return the hash of each table; of the proofs of retention all but which files lie there.

    A run that ended before the last one has left its own report and proof, and a killed one its files.
    """
    proofs = rows_of(Lake(lake), OPS_RETENTION)
    what = [{name: proof[name] for name in proof.keys() - {"files", "oldest_date"}} for proof in proofs]
    return {**table_hashes(Lake(lake)), OPS_RETENTION.full_name: sorted(what, key=lambda proof: str(proof["dataset"]))}


def test_killed_runs_leave_what_one_run_leaves(tmp_path: Path) -> None:
    """After 20 kills, at random times and around renames, one run more gives the tables of a single run."""
    rough_journal(tmp_path / "journal")
    rough_archive(tmp_path / "archive")
    begun = time.monotonic()
    output, said = start(tmp_path, tmp_path / "whole").communicate(timeout=RUN_S)
    took_s = time.monotonic() - begun
    renames = int(said.rpartition("renames ")[2])
    rng = random.Random(SEED)
    lake = tmp_path / "killed"
    reader = Reader(lake / "published")
    reader.start()
    points = [(renames, "before"), (renames, "after"), *((rng.randint(1, renames), "before") for _ in range(8))]
    for kill_at, when in points:
        process = start(tmp_path, lake, kill_at, when)
        process.communicate(timeout=RUN_S)

        assert process.returncode in {-signal.SIGKILL, 0}
    for _ in range(KILLS - len(points)):
        process = start(tmp_path, lake)
        time.sleep(rng.uniform(0.2, took_s))
        end(process)
    output, said = start(tmp_path, lake).communicate(timeout=RUN_S)
    reader.stop.set()
    reader.join()

    assert json.loads(output)["row_counts"]["bronze.events"] > 500, said
    assert facts(lake) == facts(tmp_path / "whole"), f"seed {SEED}"
    assert {proof["holds"] for proof in rows_of(Lake(lake), OPS_RETENTION)} == {True}
    assert reader.reads > 0
    assert reader.faults == []
