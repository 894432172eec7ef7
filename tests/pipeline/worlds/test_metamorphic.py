"""What must not matter does not: order, copies, pieces, partitions, repetition, batch or stream."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.conftest import Recorded
from tests.pipeline.reading import table_hashes
from tests.pipeline.worlds.world import make_world, put_all, ship
from waystation.pipeline.applications import follow
from waystation.pipeline.jobs.step import DateRange
from waystation.pipeline.lake import Lake
from waystation.pipeline.run import Request, as_of_lake, run_pipeline
from waystation.pipeline.settings import PipelineSettings
from waystation.pipeline.tables import BRONZE_EVENTS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_800)]

SETTINGS = PipelineSettings(recompute_days=13)
Files = list[tuple[Path, bytes]]


class Worlds:
    """The same world again and again, each time in a folder of its own and with something changed."""

    def __init__(self, spark, base: Path) -> None:
        self.spark, self.base, self.count = spark, base, 0
        request, files = self.place()
        put_all(files)
        run_pipeline(request, Recorded())
        self.as_of = as_of_lake(spark, Lake(request.lake))
        self.expected = self.tables(request)

    def place(self) -> tuple[Request, Files]:
        """Return a request for a new folder, and the files that belong there."""
        self.count += 1
        base = self.base / str(self.count)
        files = [file for files in ship(make_world(), base).values() for file in files]
        as_of = getattr(self, "as_of", None)
        (base / "journal").mkdir(parents=True)
        return Request(base / "journal", base / "lake", base / "r.html", settings=SETTINGS, as_of=as_of), files

    def tables(self, request: Request) -> dict[str, str]:
        """Return the hash of each table that is no log of runs."""
        return {name: each for name, each in table_hashes(Lake(request.lake)).items() if not name.startswith("ops.")}


@pytest.fixture(scope="module")
def worlds(spark, tmp_path_factory) -> Worlds:
    """Run the plain world once."""
    return Worlds(spark, tmp_path_factory.mktemp("worlds"))


def shuffled(files: Files) -> Files:
    """Return files whose inner lines stand in another order."""
    rng, changed = random.Random(3), []
    for path, data in files:
        first, *inner, last = data.splitlines(keepends=True) if data.count(b"\n") > 3 else [data, b""]
        rng.shuffle(inner)
        changed.append((path, b"".join([first, *inner, last])))
    return changed


def doubled(files: Files) -> Files:
    """Return files of which a third is there twice, and a third of these with every line twice."""
    rng = random.Random(4)
    again = rng.sample(files, len(files) // 3)
    return [*files, *((path, data) for path, data in again)]


@pytest.mark.parametrize("change", [shuffled, doubled])
def test_changed_files_give_the_same_tables(worlds: Worlds, change: Callable[[Files], Files]) -> None:
    """Lines in another order, and files that come twice, change no row of any table."""
    request, files = worlds.place()
    put_all(change(files))
    run_pipeline(request, Recorded())

    assert worlds.tables(request) == worlds.expected


@pytest.mark.parametrize("partitions", ["1", "7"])
def test_partitions_do_not_matter(worlds: Worlds, partitions: str) -> None:
    """Over one partition or seven the rows are the same."""
    request, files = worlds.place()
    put_all(files)
    worlds.spark.conf.set("spark.sql.shuffle.partitions", partitions)
    try:
        run_pipeline(request, Recorded())
    finally:
        worlds.spark.conf.set("spark.sql.shuffle.partitions", "2")

    assert worlds.tables(request) == worlds.expected


def test_pieces_in_any_order_and_a_second_run_end_alike(worlds: Worlds) -> None:
    """Files that come in three shipments, in any order, with runs between and one more, end as at once."""
    request, files = worlds.place()
    random.Random(5).shuffle(files)
    for part in range(3):
        put_all(files[part::3])
        run_pipeline(request, Recorded())
    run_pipeline(request, Recorded())

    assert worlds.tables(request) == worlds.expected


def test_dates_in_any_order_end_alike(worlds: Worlds) -> None:
    """Dates that are computed one by one, the latest first, end as all at once, but for what looks back on others."""
    request, files = worlds.place()
    put_all(files)
    run_pipeline(Request(*paths(request), settings=SETTINGS, steps=("ingest", "archive")), Recorded())
    for date in reversed(Lake(request.lake).manifest(BRONZE_EVENTS).dates()):
        alone = Request(*paths(request), DateRange(date, date), settings=SETTINGS, as_of=worlds.as_of)
        run_pipeline(alone, Recorded())

    assert worlds.tables(request) == worlds.expected


def test_stream_gives_what_batch_gives(worlds: Worlds) -> None:
    """Events that were streamed in, and the same steps over them, end as a run does."""
    request, files = worlds.place()
    put_all(files)
    follow(request, Recorded())
    run_pipeline(request, Recorded())

    assert worlds.tables(request) == worlds.expected


def paths(request: Request) -> tuple[Path, Path | str, Path]:
    """Return where a request reads and writes."""
    return request.journal, request.lake, request.report
