"""The whole path from a journal to tables and a report."""

import datetime
import json
import re
from dataclasses import replace

import pytest

from tests.pipeline.build import TORN, attempts_of, outcomes_of, plain_packets, plain_rows, put, verdicts_of
from tests.pipeline.conftest import Ran, Recorded
from tests.pipeline.reading import table_hashes
from waystation.core.errors import HostError, LocalError
from waystation.pipeline.jobs.step import DateRange
from waystation.pipeline.lake import Lake
from waystation.pipeline.report import EMPTY
from waystation.pipeline.run import Request, rebuild_report, run_pipeline
from waystation.pipeline.tables import BRONZE_EVENTS, GOLD_OUTCOMES, OPS_RUNS, SILVER_CONNECTIONS, SILVER_DELIVERIES

pytestmark = pytest.mark.spark


def test_tables_have_the_rows_of_a_plain_count(ran: Ran) -> None:
    """Every table has as many rows as plain Python finds in the same journal."""
    rows = plain_rows(ran.request.journal)
    connections = {row["conn_ref"] for row in rows if row["conn_ref"] is not None}

    assert {name: rows for name, rows in ran.first.row_counts.items() if rows} == {
        "bronze.events": len(rows),
        "silver.connections": len(connections),
        "silver.deliveries": len(attempts_of(rows)),
        "gold.delivery_outcomes": len(outcomes_of(rows)),
        "gold.packet_verdicts": len(verdicts_of(rows)),
        "bronze.archive": len(plain_packets(ran.request.journal.parent / "archive")),
        "silver.packets": len(ran.verdicts),
        "ops.quarantine": sum(step.counts.rows_rejected for step in ran.first.steps[:2]),
    }
    assert len(rows) > 500


def test_outcomes_are_those_of_a_plain_count(spark, ran: Ran) -> None:
    """Each hour and outcome has the attempts that plain Python counts."""
    gold = ran.lake.read(spark, GOLD_OUTCOMES).selectExpr("unix_timestamp(hour) as hour", "outcome", "n").collect()

    assert {(row["hour"], row["outcome"]): row["n"] for row in gold} == outcomes_of(plain_rows(ran.request.journal))


def test_second_run_changes_nothing(spark, ran: Ran) -> None:
    """A run over the same journal leaves every table identical."""
    assert table_hashes(ran.lake) == ran.first_hashes
    assert [step.counts.rows_in for step in ran.second.steps[:2]] == [0, 0]
    assert ran.second.row_counts == ran.first.row_counts


def test_bad_segments_are_listed(ran: Ran) -> None:
    """The run report names every file that was not in order, and why."""
    problems = [problem.problem.partition(":")[0] for problem in ran.first.steps[0].counts.problems]

    assert sorted(problems) == ["damaged", "damaged", "duplicate", *["foreign"] * 3, "torn", "unsealed"]


def test_bad_segments_of_the_archive_are_listed(ran: Ran) -> None:
    """Torn, damaged and foreign files are named, and what the node could not keep is told."""
    problems = [problem.problem.partition(":")[0] for problem in ran.first.steps[1].counts.problems]

    assert sorted(problems) == ["damaged", "foreign", "gap", "torn"]


def test_bad_lines_are_listed_without_their_text(ran: Ran) -> None:
    """Rejected lines are counted and listed by segment, reason and hash; their text is nowhere in the lake."""
    step = ran.first.steps[0].counts
    reasons = sorted(line.reason for line in step.rejections)

    assert reasons == ["missing_kind", "unknown_kind", "unparsable", "unparsable"]
    assert step.rows_rejected == 4
    assert TORN.text in {line.segment for line in step.rejections}
    assert not [path for path in ran.request.lake.rglob("*.json") if "gossip" in path.read_text()]


def test_run_report_lies_in_the_lake(ran: Ran) -> None:
    """The run report is one line of JSON with the columns of ops.runs."""
    document = json.loads(ran.first.run_report.read_text())

    assert set(OPS_RUNS.names()) <= set(document)
    assert document["steps"][0]["rows_out"] == document["row_counts"]["bronze.events"]
    assert ran.first.run_report.is_relative_to(ran.request.lake / "ops" / "runs")


def test_progress_is_told_step_by_step(ran: Ran) -> None:
    """Each step is announced and ends with its counts."""
    assert ran.progress.begun[:8] == [
        *("spark", "ingest", "archive", "conform", "verify", "outcomes", "verdicts", "report")
    ]
    assert re.match(
        r"[\d,]+ rows in, [\d,]+ out, 4 left out; 8 notes on segments", dict(ran.progress.ended[:2])["ingest"]
    )


def test_replaced_files_are_gone(ran: Ran) -> None:
    """A folder of a table holds only what its manifest lists."""
    for dataset in (BRONZE_EVENTS, SILVER_CONNECTIONS, SILVER_DELIVERIES, GOLD_OUTCOMES):
        folder = ran.lake.folder(dataset)
        listed = {f"event_date={b.event_date}/batch={b.batch}" for b in ran.lake.manifest(dataset).batches}

        assert {str(path.relative_to(folder)) for path in folder.glob("*/batch=*")} == listed


def test_report_needs_nothing_else(ran: Ran) -> None:
    """The page has four plots, each in two widths, and refers to nothing outside itself."""
    page = ran.request.report.read_text()

    assert page.count("<svg") == 8
    assert not re.findall(r"<script|<link|<img|@import|src=|url\((?!#)|href=\"(?!#)", page)
    assert "foreign: not a segment" in page


def test_empty_journal_gives_a_page_that_says_so(spark, tmp_path) -> None:
    """A node that recorded nothing yet is no error."""
    (tmp_path / "journal").mkdir()
    request = Request(tmp_path / "journal", tmp_path / "lake", tmp_path / "report.html")
    result = run_pipeline(request, Recorded())

    assert {name for name, rows in result.row_counts.items() if rows} == {"ops.retention"}
    assert EMPTY in request.report.read_text()


def test_journal_with_only_foreign_files_is_empty(spark, tmp_path) -> None:
    """A folder of somebody else's files gives no rows and one line for each."""
    put(tmp_path / "journal", TORN, b"hello")
    request = Request(tmp_path / "journal", tmp_path / "lake", tmp_path / "report.html", steps=("ingest", "conform"))
    result = run_pipeline(request, Recorded())

    assert len(result.document()["segments"]) == 1
    assert not any(result.row_counts.values())


def test_report_of_dates_without_rows_leaves_the_page(ran: Ran) -> None:
    """Dates of which the lake has nothing are an error that says which it has, and the old page stays."""
    page = ran.request.report.read_bytes()
    never = datetime.date(2001, 1, 1)

    with pytest.raises(LocalError, match="it has 2026-05-"):
        rebuild_report(replace(ran.request, dates=DateRange(never, never)), Recorded())
    assert ran.request.report.read_bytes() == page


def test_report_can_be_drawn_again(spark, ran: Ran, tmp_path) -> None:
    """The page is rebuilt from the tables alone, for the chosen dates."""
    request = Request(tmp_path / "none", ran.request.lake, tmp_path / "again.html", DateRange(None, None))
    page = rebuild_report(request, Recorded()).read_text()

    assert page.count("<svg") == 8


def test_missing_journal_is_said(tmp_path) -> None:
    """A wrong path is one sentence, before Spark is started."""
    with pytest.raises(LocalError, match="there is no journal"):
        run_pipeline(Request(tmp_path / "journal", tmp_path / "lake", tmp_path / "r.html"), Recorded())


def test_missing_lake_is_said(tmp_path) -> None:
    """A report of no lake is one sentence, before Spark is started."""
    with pytest.raises(LocalError, match="there is no lake"):
        rebuild_report(Request(tmp_path / "journal", tmp_path / "lake", tmp_path / "r.html"), Recorded())


def test_lake_has_one_writer(tmp_path) -> None:
    """A second pipeline on the same lake is refused."""
    (tmp_path / "journal").mkdir()
    with Lake(tmp_path / "lake").locked(), pytest.raises(HostError, match="another pipeline"):
        run_pipeline(Request(tmp_path / "journal", tmp_path / "lake", tmp_path / "r.html"), Recorded())
