"""What the report is told."""

from tests.pipeline.report.build import full_summary
from waystation.pipeline.report import Summary


def test_lake_without_rows_is_empty() -> None:
    """Only rows make a lake something to tell of; datasets alone do not."""
    assert Summary().is_empty()
    assert Summary(row_counts=[("bronze.events", 0)]).is_empty()
    assert not full_summary().is_empty()
