"""Counting verdicts by date."""

import datetime

import pytest

from tests.pipeline.build import context_of
from tests.pipeline.conftest import Ran
from tests.pipeline.reading import table_hashes
from waystation.pipeline.jobs.step import DateRange
from waystation.pipeline.jobs.verdicts import count_verdicts
from waystation.pipeline.lake import Lake
from waystation.pipeline.tables import BRONZE_EVENTS, GOLD_VERDICTS

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_single_date_gives_the_same_table(spark, ran: Ran) -> None:
    """A date counted by itself gives what one run over all gives; the others stay untouched."""
    date = datetime.date(2026, 5, 30)
    counts = count_verdicts(context_of(spark, ran.lake, "by-date", DateRange(date, date)))
    batches = {batch.event_date: batch.batch for batch in ran.lake.manifest(GOLD_VERDICTS).batches}

    assert batches.pop(date) == "by-date"
    assert "by-date" not in batches.values()
    assert counts.rows_in == sum(b.rows for b in ran.lake.manifest(BRONZE_EVENTS).batches if b.event_date == date)
    assert table_hashes(ran.lake)["gold.packet_verdicts"] == ran.first_hashes["gold.packet_verdicts"]


def test_nothing_to_do_does_nothing(spark, tmp_path) -> None:
    """An empty lake is no error."""
    counts = count_verdicts(context_of(spark, Lake(tmp_path), "r"))

    assert (counts.rows_in, counts.rows_out) == (0, 0)
