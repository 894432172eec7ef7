"""Streaming ingest: whatever comes in between, the rows are those of a plain count."""

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.journal.build import NOON_US, name_at, segment_bytes, traffic
from tests.pipeline.build import BAD_LINES, plain_rows, put, rough_journal
from waystation.core.errors import HostError
from waystation.pipeline.jobs.ingest import ingest
from waystation.pipeline.jobs.step import Counts
from waystation.pipeline.jobs.stream import _Taker, stream
from waystation.pipeline.jobs.taking import JOURNAL
from waystation.pipeline.lake import Lake
from waystation.pipeline.sources.waystation import WaystationSource
from waystation.pipeline.storage import Storage
from waystation.pipeline.tables import BRONZE_EVENTS, OPS_QUARANTINE, Dataset

pytestmark = pytest.mark.spark

NAME = name_at()
BAD = [line + b"\n" for line in BAD_LINES]
LINES = segment_bytes(NAME, traffic(1, NOON_US, 30)).splitlines(keepends=True)


def taken(spark, lake: Lake) -> list[tuple[str, int]]:
    """Return which events are in bronze, with repetitions."""
    rows = lake.read(spark, BRONZE_EVENTS).select("segment", "seq").collect()
    return sorted((row["segment"], row["seq"]) for row in rows)


def plain(journal: Path) -> list[tuple[str, int]]:
    """Return which events plain Python finds."""
    found = journal.glob("event_date=*/*-*-*.jsonl*")
    rows = [(path.name.partition(".")[0], json.loads(line)["seq"]) for path in found for line in good_lines(path)]
    return sorted(set(rows))


def good_lines(path: Path) -> list[bytes]:
    """Return the whole lines of a segment that nothing is wrong with."""
    return [line for line in path.read_bytes().splitlines() if line not in BAD_LINES and line.endswith(b"}")]


def test_growing_journal_is_taken_once(spark, tmp_path) -> None:
    """Streaming a segment twice while it grows, and a batch run that finds the rest: each event once.

    Every start of a stream writes to its checkpoint, so that one in use is never taken for an old one.
    """
    lake, journal, checkpoint = Lake(tmp_path / "lake"), tmp_path / "journal", str(tmp_path / "checkpoint")
    signed = tmp_path / "checkpoint" / "in-use"
    opened = put(journal, NAME, b"".join(LINES[:20]) + LINES[20][:30], ".jsonl.open")
    with (journal / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the node lives
        first = stream(spark, lake, journal, checkpoint)
        os.utime(signed, (0, 0))
        opened.write_bytes(b"".join([*LINES[:40], *BAD]))
        second = stream(spark, lake, journal, checkpoint)
    opened.write_bytes(b"".join([*LINES[:40], *BAD, *LINES[40:], LINES[5]]))
    other = name_at(NOON_US + 3_600_000_000, 2)
    put(journal, other, segment_bytes(other, traffic(2, other.start_us, 10)))
    batch = ingest(spark, lake, journal)

    assert signed.stat().st_mtime > 0
    assert (first.rows_in, first.rows_out) == (20, 20)
    assert (second.rows_in, second.rows_out, second.rows_rejected) == (23, 20, 3)
    assert batch.rows_out == len(plain(journal)) - 40
    assert taken(spark, lake) == plain(journal)
    assert lake.manifest(BRONZE_EVENTS).started == {}
    assert lake.read(spark, OPS_QUARANTINE).count() == len(BAD_LINES)


def test_micro_batch_is_done_once_however_often_it_comes(spark, tmp_path) -> None:
    """A micro-batch that comes again after a crash changes nothing, be it listed, lost or compacted away."""
    lake, journal, checkpoint = Lake(tmp_path / "lake"), tmp_path / "journal", Storage(tmp_path / "checkpoint")
    checkpoint.write_atomically("metadata", '{"id":"query"}')
    put(journal, NAME, b"".join([*LINES[:9], LINES[3], *BAD, *LINES[9:]]))
    spark.dataSource.register(WaystationSource)
    frame = spark.read.format("waystation").option("form", "lines").load(str(journal))
    cut = sum(map(len, LINES[:6]))
    parts = [frame.where(f"ends_at <= {cut}"), frame.where(f"ends_at > {cut}")]
    take = _Taker(lake, journal, JOURNAL, checkpoint)
    take(parts[0], 0)
    manifest = lake.folder(BRONZE_EVENTS) / "MANIFEST.json"
    listed = manifest.read_bytes()
    take(parts[1], 1)
    manifest.write_bytes(listed)  # killed before the manifest was replaced
    for part, number in ((1, 1), (1, 1), (0, 0)):
        take(parts[part], number)
    lake.merge(spark, BRONZE_EVENTS, lake.manifest(BRONZE_EVENTS).dates(), "merged", ("seq",))
    _Taker(lake, journal, JOURNAL, checkpoint)(parts[1], 1)

    assert taken(spark, lake) == [(NAME.text, seq) for seq in range(len(LINES))]
    assert lake.manifest(BRONZE_EVENTS).segments == {NAME.text}
    assert lake.read(spark, OPS_QUARANTINE).count() == len(BAD_LINES)


def test_checkpoint_without_metadata_is_an_error(tmp_path) -> None:
    """A batch that cannot be named is not taken."""
    with pytest.raises(HostError, match="has no metadata"):
        _Taker(Lake(tmp_path), tmp_path, JOURNAL, Storage(tmp_path / "none"))(None, 0)


@pytest.mark.slow
def test_rough_journal_in_small_steps_equals_the_batch(spark, tmp_path) -> None:
    """Micro-batches of few lines over a journal in which everything is wrong give the rows of a batch run."""
    journal = rough_journal(tmp_path / "journal")
    streamed, batched = Lake(tmp_path / "streamed"), Lake(tmp_path / "batched")
    counts = stream(spark, streamed, journal, str(tmp_path / "checkpoint"), rows_max=37)
    ingest(spark, batched, journal)
    key = ("dataset", "segment", "reason", "hash")
    quarantined = [sorted(lake.read(spark, OPS_QUARANTINE).select(*key).collect()) for lake in (streamed, batched)]

    assert taken(spark, streamed) == taken(spark, batched)
    assert len(taken(spark, streamed)) == len(plain_rows(journal)) == counts.rows_out
    assert quarantined[0] == quarantined[1] != []
    assert ingest(spark, streamed, journal).rows_in == 0
    assert stream(spark, batched, journal, str(tmp_path / "other")) == Counts(0, 0)


@pytest.mark.slow
def test_stream_ends_when_it_is_told_to(spark, tmp_path) -> None:
    """A running stream takes what is there and what comes, and ends at the next question."""
    lake, journal = Lake(tmp_path / "lake"), tmp_path / "journal"
    put(journal, NAME, b"".join(LINES))
    answers = iter([False] * 3)

    def stop() -> bool:
        has_rows = bool(lake.manifest(BRONZE_EVENTS).batches)
        return has_rows and next(answers, True)

    counts = stream(spark, lake, journal, str(tmp_path / "cp"), available_now=False, every_s=1, stop=stop)

    assert counts.rows_out == len(LINES)


DRIVER = """
import sys
from pathlib import Path
from waystation.pipeline.jobs.ingest import ingest
from waystation.pipeline.jobs.stream import stream
from waystation.pipeline.lake import Lake
from waystation.pipeline.session import open_session

mode, root, journal, checkpoint = sys.argv[1:]
lake = Lake(root)
with open_session(cpus=2, extra={"spark.sql.shuffle.partitions": "2"}) as opened:
    print("ready", flush=True)
    if mode == "batch":
        with lake.locked():
            ingest(opened.spark, lake, Path(journal))
    stream(opened.spark, lake, Path(journal), checkpoint, rows_max=40)
"""


def run_driver(mode: str, base: Path, kill_after_s: float | None) -> int:
    """Run a driver in a process of its own and kill it, Java included, so long after its session was open."""
    places = [str(base / name) for name in ("lake", "journal", "checkpoint")]
    command = [sys.executable, "-c", DRIVER, mode, *places]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as driver:
        assert driver.stdout is not None
        driver.stdout.readline()
        try:
            return driver.wait(kill_after_s)
        except subprocess.TimeoutExpired:
            os.killpg(driver.pid, signal.SIGKILL)
            return driver.wait()


def stored(lake: Lake, dataset: Dataset, *names: str) -> list[tuple]:
    """Return what the manifest lists, read without Spark."""
    rows = []
    for entry in lake.manifest(dataset).batches:
        for path in (lake.folder(dataset) / entry.folder).glob("*.parquet"):
            table = pq.ParquetFile(path).read(columns=list(names))
            rows += zip(*(table[name].to_pylist() for name in names), strict=True)
    return sorted(rows)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_killed_driver_loses_and_repeats_nothing(tmp_path) -> None:
    """SIGKILL of the driver at any moment, while the journal grows and batch runs come in: each event once."""
    rng = random.Random(20260529)
    lake, journal = Lake(tmp_path / "lake"), tmp_path / "journal"
    kills = 0
    for turn in range(int(os.environ.get("WAYSTATION_KILLS", "6"))):
        name = name_at(NOON_US + turn * 600_000_000, turn + 1)
        lines = segment_bytes(name, traffic(turn, name.start_us, 60)).splitlines(keepends=True)
        put(journal, name, b"".join([*lines[:50], *BAD, lines[7], *lines[50:]]))
        mode = "batch" if turn % 3 == 2 else "stream"
        kills += run_driver(mode, tmp_path, rng.uniform(1.0, 14.0)) == -signal.SIGKILL
    finished = run_driver("stream", tmp_path, None)
    events, bad = stored(lake, BRONZE_EVENTS, "segment", "seq"), stored(lake, OPS_QUARANTINE, "segment", "hash")

    assert finished == 0
    assert kills
    assert events == plain(journal)
    assert len(bad) == len(set(bad)) == len(BAD_LINES) * len({name for name, _ in events})
