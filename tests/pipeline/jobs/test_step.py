"""Date ranges."""

import datetime

import pytest

from waystation.pipeline.jobs.step import Counts, DateRange, Problem

DATES = [datetime.date(2026, 5, day) for day in (28, 29, 30)]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(None, None, DATES), (DATES[1], None, DATES[1:]), (None, DATES[1], DATES[:2]), (DATES[1], DATES[1], DATES[1:2])],
)
def test_range_holds_both_ends(first, last, expected) -> None:
    """A range takes its ends in, and an open end takes everything."""
    assert DateRange(first, last).select(set(DATES)) == expected


def test_counts_are_told_in_one_sentence() -> None:
    """Rows in, out and left out, and how many segments were not in order."""
    counts = Counts(1_200, 1_190, 10, (Problem("a", "torn"),))

    assert counts.sentence() == "1,200 rows in, 1,190 out, 10 left out; 1 note on segments"
    assert Counts(3, 2).sentence() == "3 rows in, 2 out, 0 left out"
