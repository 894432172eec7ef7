"""Date ranges."""

import datetime

import pytest

from waystation.pipeline.jobs.step import DateRange

DATES = [datetime.date(2026, 5, day) for day in (28, 29, 30)]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(None, None, DATES), (DATES[1], None, DATES[1:]), (None, DATES[1], DATES[:2]), (DATES[1], DATES[1], DATES[1:2])],
)
def test_range_holds_both_ends(first, last, expected) -> None:
    """A range takes its ends in, and an open end takes everything."""
    assert DateRange(first, last).select(set(DATES)) == expected
