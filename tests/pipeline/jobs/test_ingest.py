"""Ingest over several runs."""

import hashlib
from dataclasses import replace

import pytest

from tests.journal.build import DAY_US, NOON_US, name_at, segment_bytes, traffic
from tests.pipeline.build import BAD_LINES, archive_bytes, archived, context_of, put, put_events
from waystation.pipeline.jobs.ingest import ARCHIVE, ingest, ingest_archive, ingest_journal
from waystation.pipeline.lake import MANIFEST, Lake
from waystation.pipeline.manifest import Manifest
from waystation.pipeline.tables import BRONZE_ARCHIVE, BRONZE_EVENTS, OPS_QUARANTINE

pytestmark = pytest.mark.spark


def test_later_segments_are_added_once(spark, tmp_path) -> None:
    """Each run takes what is new, a copy of a known segment is not new, and both dates are listed."""
    lake, journal = Lake(tmp_path / "lake"), tmp_path / "journal"
    first, second = name_at(NOON_US, 1), name_at(NOON_US + DAY_US, 2)
    put_events(journal, first, traffic(1, NOON_US, 10))
    taken = [ingest(spark, lake, journal).rows_out]
    put_events(journal, second, traffic(2, second.start_us, 10))
    copy = put_events(journal, first, traffic(1, NOON_US, 10))
    copy.rename(tmp_path / "journal" / second.folder / copy.name)
    taken += [ingest(spark, lake, journal).rows_out for _ in range(2)]
    rows = lake.read(spark, BRONZE_EVENTS).selectExpr("count(*)", "count(distinct event_id)").first()

    assert taken[0] > 10
    assert taken[2] == 0
    assert tuple(rows) == (sum(taken), sum(taken))
    assert len(lake.manifest(BRONZE_EVENTS).dates()) == 2


def test_better_copy_is_read(spark, tmp_path) -> None:
    """Of a torn and a whole copy of one segment the whole one is taken."""
    lake, journal, name = Lake(tmp_path / "lake"), tmp_path / "journal", name_at()
    data = segment_bytes(name, traffic(1, NOON_US, 10))
    (journal / "a").mkdir(parents=True)
    (journal / "a" / f"{name.text}.jsonl").write_bytes(data[: len(data) // 2])
    put(journal, name, data)
    counts = ingest(spark, lake, journal)

    assert counts.rows_out == data.count(b"\n")
    assert [problem.problem.partition(":")[0] for problem in counts.problems] == ["duplicate"]


def test_archive_is_taken_once_into_its_own_table(spark, tmp_path) -> None:
    """Packets land on the date on which they were received, once; the journal's table is untouched."""
    lake, folder, name = Lake(tmp_path / "lake"), tmp_path / "archive", name_at(NOON_US + DAY_US)
    put(folder, name, archive_bytes(name, [archived(1, NOON_US + DAY_US)._replace(received_at=NOON_US // 1_000_000)]))
    taken = [ingest(spark, lake, folder, ARCHIVE) for _ in range(2)]

    assert [(counts.rows_in, counts.rows_out, counts.rows_rejected) for counts in taken] == [(3, 1, 0), (0, 0, 0)]
    assert [str(date) for date in lake.manifest(BRONZE_ARCHIVE).dates()] == ["2026-05-29"]
    assert lake.manifest(BRONZE_EVENTS).batches == ()


def test_bad_lines_go_to_quarantine_without_their_text(spark, tmp_path) -> None:
    """Each line that was turned down is a row with its hash; segments too old for the lake are told and not read."""
    lake, journal, name = Lake(tmp_path / "lake"), tmp_path / "journal", name_at()
    head, rest = segment_bytes(name, traffic(1, NOON_US, 5)).split(b"\n", 1)
    put(journal, name, b"\n".join([head, *BAD_LINES, rest]))
    put_events(journal, name_at(NOON_US - 1, 3), traffic(3, NOON_US, 5))
    manifest = Manifest(closed_before_us=NOON_US)
    lake.storage.write_atomically(f"{BRONZE_EVENTS.folder}/{MANIFEST}", manifest.encode(BRONZE_EVENTS))
    counts = ingest(spark, lake, journal)
    rows = lake.read(spark, OPS_QUARANTINE).collect()

    assert {(row["segment"], row["reason"], row["hash"]) for row in rows} == {
        (line.segment, line.reason, line.hash) for line in counts.rejections
    }
    assert {row["hash"] for row in rows} == {hashlib.sha256(line).hexdigest() for line in BAD_LINES}
    assert {row["dataset"] for row in rows} == {"bronze.events"}
    assert counts.rows_out == counts.rows_in - len(BAD_LINES)
    assert "1 old" in {problem.segment for problem in counts.problems}


def test_missing_folder_holds_nothing(spark, tmp_path) -> None:
    """A node that archives nothing is no error, nor is a run without a folder."""
    context = context_of(spark, Lake(tmp_path / "lake"), "r1")
    named = replace(context, journal=tmp_path / "journal", archive=tmp_path / "archive")
    counts = [step(each) for step in (ingest_journal, ingest_archive) for each in (context, named)]

    assert [(count.rows_in, count.problems) for count in counts] == [(0, ())] * 4
