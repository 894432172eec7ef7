"""What is promised about every dataset."""

import pytest

from waystation.journal.archive import ARCHIVE_COLUMNS
from waystation.journal.contract import COLUMNS, Privacy
from waystation.pipeline.tables import BRONZE_ARCHIVE, BRONZE_EVENTS, DATASETS, Dataset


@pytest.mark.parametrize("dataset", DATASETS, ids=lambda dataset: dataset.full_name)
def test_dataset_is_fully_declared(dataset: Dataset) -> None:
    """A dataset has a grain, a retention, a key out of its own columns, and no forbidden column."""
    names = dataset.names()

    assert len(set(names)) == len(names)
    assert set(dataset.key) <= set(names)
    assert dataset.grain
    assert dataset.retention_days > 0
    assert Privacy.FORBIDDEN not in {column.privacy for column in dataset.columns}


def test_bronze_carries_the_journal() -> None:
    """bronze.events has every column of the journal with the journal's meaning and class."""
    carried = {column.name: (column.type, column.privacy) for column in BRONZE_EVENTS.columns}

    assert {column.name: (column.lake_type, column.privacy) for column in COLUMNS}.items() <= carried.items()


def test_bronze_carries_the_archive() -> None:
    """bronze.archive has every column of a packet's line with its meaning and class."""
    carried = {column.name: (column.type, column.privacy) for column in BRONZE_ARCHIVE.columns}

    assert {column.name: (column.lake_type, column.privacy) for column in ARCHIVE_COLUMNS}.items() <= carried.items()


def test_references_are_not_kept_for_long() -> None:
    """What holds a keyed reference is gone after 30 days at the latest; what is kept longer are counts."""
    keeping = {dataset.full_name for dataset in DATASETS if dataset.retention_days > 30}
    personal = {d.full_name for d in DATASETS if any(c.privacy is Privacy.PSEUDONYMOUS for c in d.columns)}

    assert not keeping & personal


def test_arrow_schema_has_the_columns() -> None:
    """Every dataset has an Arrow schema with its columns in order, null only where the contract allows it."""
    for dataset in DATASETS:
        if dataset.full_name != "ops.runs":
            schema = dataset.arrow_schema()

            assert [(field.name, field.nullable) for field in schema] == [(c.name, c.nullable) for c in dataset.columns]


def test_schema_ends_with_the_partition() -> None:
    """Files are read with the columns in order and the two partition columns."""
    assert BRONZE_EVENTS.ddl().startswith("`event_id` binary, `node_id` string, `segment` string, `ts` timestamp")
    assert BRONZE_EVENTS.ddl().endswith("`event_date` date, `batch` string")
    assert BRONZE_EVENTS.folder == "bronze/events/v=1"
