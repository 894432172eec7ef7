"""One Spark session for all tests of the pipeline, and one lake that many of them look at."""

import fcntl
import os
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.pipeline.build import rough_archive, rough_journal
from tests.pipeline.reading import table_hashes
from waystation.pipeline.lake import Lake
from waystation.pipeline.run import Request, Result, run_pipeline
from waystation.pipeline.session import open_session

STEPS = ("ingest", "archive", "conform", "verify", "outcomes", "verdicts")
"""What the rough journal is about; tests/pipeline/worlds/test_truth.py runs every step."""


class Recorded:
    """Progress that remembers."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[tuple[str, str]] = []

    def begin(self, step: str) -> None:
        self.begun.append(step)

    def end(self, step: str, sentence: str) -> None:
        self.ended.append((step, sentence))


@dataclass(frozen=True)
class Ran:
    """A lake and the two runs that made it."""

    request: Request
    lake: Lake
    first: Result
    first_hashes: dict[str, str]
    second: Result
    progress: Recorded
    verdicts: dict[bytes, str]
    """What a check must find of each archived packet."""


@pytest.fixture(scope="session")
def spark() -> Iterator:
    """Give the one session; small data wants few partitions, and no plan that costs more than it saves.

    Two partitions on one thread: what depends on how rows are spread still shows, and the other processor is the other
    process's. Tests marked slow start the pipeline as production does.
    """
    extra = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.constraintPropagation.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.driver.memory": "1g",
    }
    with open_session(cpus=1, extra=extra) as opened:
        yield opened.spark


@pytest.fixture(scope="session")
def ran(spark, tmp_path_factory) -> Ran:
    """Give a copy of one lake that was made for all processes of this test run."""
    name = f"ran-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
    shared, base = tmp_path_factory.getbasetemp().parent / name, tmp_path_factory.mktemp("ran")
    shared.mkdir(exist_ok=True)
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = shared / "made"
        if not made.exists():
            made.write_bytes(pickle.dumps(make_ran(shared)))
    shutil.copytree(shared, base, dirs_exist_ok=True)
    ran: Ran = pickle.loads((base / "made").read_bytes())
    request = Request(base / "journal", base / "lake", base / "report.html", steps=ran.request.steps)
    first, second = (
        replace(each, report=request.report, run_report=base / each.run_report.relative_to(shared))
        for each in (ran.first, ran.second)
    )
    return replace(ran, request=request, lake=Lake(request.lake), first=first, second=second)


def make_ran(base: Path) -> Ran:
    """Run the pipeline twice over a journal and an archive in which everything is wrong that can be."""
    request = Request(rough_journal(base / "journal"), base / "lake", base / "report.html", steps=STEPS)
    verdicts = rough_archive(base / "archive")
    progress = Recorded()
    first = run_pipeline(request, progress)
    lake = Lake(request.lake)
    hashes = table_hashes(lake)
    return Ran(request, lake, first, hashes, run_pipeline(request, progress), progress, verdicts)
