"""One Spark session for all tests of the pipeline, and one lake that many of them look at."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.pipeline.build import rough_archive, rough_journal
from waystation.pipeline.lake import Lake
from waystation.pipeline.run import Request, Result, run_pipeline
from waystation.pipeline.session import open_session

STEPS = ("ingest", "archive", "conform", "verify", "outcomes", "verdicts")
"""What the rough journal is about; tests/pipeline/test_truth.py runs every step."""


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
    """Give the one session; small data wants few partitions and no adaptive planning."""
    extra = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.driver.memory": "1g",
    }
    with open_session(cpus=2, extra=extra) as opened:
        yield opened.spark


@pytest.fixture(scope="session")
def ran(spark, tmp_path_factory) -> Ran:
    """Run the pipeline twice over a journal and an archive in which everything is wrong that can be."""
    base: Path = tmp_path_factory.mktemp("ran")
    request = Request(rough_journal(base / "journal"), base / "lake", base / "report.html", steps=STEPS)
    verdicts = rough_archive(base / "archive")
    progress = Recorded()
    first = run_pipeline(request, progress)
    lake = Lake(request.lake)
    hashes = table_hashes(spark, lake)
    return Ran(request, lake, first, hashes, run_pipeline(request, progress), progress, verdicts)


def table_hashes(spark, lake: Lake) -> dict[str, str]:
    """Return one hash per table, over its sorted rows."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from waystation.pipeline.tables import DATASETS, OPS_RUNS  # noqa: PLC0415

    hashes = {}
    for dataset in DATASETS:
        if dataset is not OPS_RUNS:
            columns = [
                F.sort_array(F.map_entries(column.name)).alias(column.name)
                if column.type.startswith("map")
                else column.name
                for column in dataset.columns
            ]
            row = F.sha2(F.to_json(F.struct(*columns, "event_date")), 256)
            frame = lake.read(spark, dataset).select(row.alias("row"))
            hashes[dataset.full_name] = frame.agg(
                F.sha2(F.array_join(F.sort_array(F.collect_list("row")), ""), 256)
            ).first()[0]
    return hashes
