"""Conforming single dates."""

import datetime

import pytest

from tests.pipeline.build import context_of
from tests.pipeline.conftest import Ran
from tests.pipeline.reading import table_hashes
from waystation.pipeline.jobs.conform import conform
from waystation.pipeline.jobs.step import DateRange
from waystation.pipeline.lake import Lake
from waystation.pipeline.tables import SILVER_DELIVERIES

pytestmark = pytest.mark.spark

SECOND_DAY = datetime.date(2026, 5, 30)


@pytest.mark.slow
def test_single_dates_in_any_order_give_the_same_tables(spark, ran: Ran) -> None:
    """Dates conformed one by one, the later first, give what one run over all gives; others stay untouched."""
    before = ran.lake.manifest(SILVER_DELIVERIES)
    for date in reversed(before.dates()):
        conform(context_of(spark, ran.lake, f"day-{date}", DateRange(date, date)))
    after = ran.lake.manifest(SILVER_DELIVERIES)
    hashes = table_hashes(ran.lake)

    assert {batch.batch for batch in after.batches} == {f"day-{date}" for date in before.dates()}
    assert hashes["silver.deliveries"] == ran.first_hashes["silver.deliveries"]
    assert hashes["silver.connections"] == ran.first_hashes["silver.connections"]


def test_nothing_to_do_does_nothing(spark, tmp_path) -> None:
    """An empty lake is no error."""
    counts = conform(context_of(spark, Lake(tmp_path), "r"))

    assert (counts.rows_in, counts.rows_out) == (0, 0)
