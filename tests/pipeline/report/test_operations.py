"""Sections on machines and runs."""

from tests.pipeline.report.build import FACTS, NODE, OTHER_NODE, capacity_row, full_summary
from waystation.pipeline.jobs.step import Problem
from waystation.pipeline.report import RunFacts, RunRow, StepRow, Summary
from waystation.pipeline.report.markup import section_html
from waystation.pipeline.report.operations import capacity, problems_of, runs

LAST = RunRow("r1", "2026-05-30T12:00", "2026-05-30T12:01", [StepRow("qos", 9, 8, 1, 0.5)], [Problem("s", "torn")])


def test_the_first_full_disk_is_named() -> None:
    """The sentence has the fewest days of all nodes, on each node's last day."""
    rows = [capacity_row(NODE, 1, days_to_full=3), capacity_row(NODE, 0, days_to_full=50)]
    rows.append(capacity_row(OTHER_NODE, 0, days_to_full=40))

    assert "the first disk is full in 40 days" in capacity(Summary(capacity=rows)).meaning
    assert (
        "no disk is known to fill up" in capacity(Summary(capacity=[capacity_row(NODE, 0, days_to_full=None)])).meaning
    )


def test_capacity_lists_each_node() -> None:
    """Each node has its last day, with a hyphen for what cannot be told."""
    made = section_html(capacity(full_summary()))
    words = (NODE, OTHER_NODE, "40 GiB", "00112233, full in 24 days", "<td class='n'>-</td>", "5 GiB")

    assert all(word in made for word in words)


def test_run_is_told_with_its_steps() -> None:
    """Facts, steps, rows, quarantine, retention and earlier runs are listed."""
    made = section_html(runs(full_summary(), FACTS))

    for word in ("Spark 4.3.0", "12,300", "silver.deliveries", "unknown kind", "holds", "torn: read up", "too_large"):
        assert word in made


def test_late_rows_have_a_column_when_they_are_known() -> None:
    """A run that counts late rows shows them between the rejected ones and the seconds."""
    made = section_html(runs(Summary(), RunFacts(steps=[("ingest", "5", "4", "1", "7", "0.1")])))

    assert "<th scope='col' class='n'>late</th>" in made


def test_page_without_a_run_shows_the_last_one() -> None:
    """A page that is drawn again takes steps and notes from the newest run on record."""
    made = section_html(runs(Summary(runs=[LAST]), RunFacts([("lake", "x")])))

    assert all(word in made for word in ("<td>qos</td>", "torn", "r1"))


def test_notes_are_those_of_this_run() -> None:
    """A run without notes does not show those of the one before."""
    assert list(problems_of(Summary(runs=[LAST]), FACTS)) == list(FACTS.problems)
    assert list(problems_of(Summary(runs=[LAST]), RunFacts(steps=FACTS.steps))) == []
    assert list(problems_of(Summary(), RunFacts())) == []


def test_many_problems_are_cut() -> None:
    """A page lists a hundred bad segments and says how many more there are."""
    made = section_html(runs(Summary(), RunFacts(problems=[Problem(f"s{n}", "torn") for n in range(120)])))

    assert "20 more stand in the run report" in made
    assert "s119" not in made
