"""Counting outcomes by date."""

import datetime

import pytest

from tests.pipeline.build import context_of
from tests.pipeline.conftest import Ran
from waystation.pipeline.jobs.outcomes import count_outcomes
from waystation.pipeline.lake import Lake
from waystation.pipeline.tables import GOLD_OUTCOMES, SILVER_DELIVERIES

pytestmark = pytest.mark.spark


def test_date_without_deliveries_is_emptied(spark, tmp_path, ran: Ran) -> None:
    """A date whose deliveries are gone has no outcomes after the next run."""
    lake, date = Lake(tmp_path), datetime.date(2026, 5, 30)
    rows = ran.lake.read(spark, SILVER_DELIVERIES, [date]).drop("batch")
    lake.overwrite(rows, SILVER_DELIVERIES, "one", [date])
    counted = count_outcomes(context_of(spark, lake, "one"))
    lake.overwrite(rows.limit(0), SILVER_DELIVERIES, "two", [date])
    emptied = count_outcomes(context_of(spark, lake, "two"))

    assert counted.rows_in == rows.count()
    assert (counted.rows_out > 0, emptied.rows_out, lake.manifest(GOLD_OUTCOMES).batches) == (True, 0, ())
