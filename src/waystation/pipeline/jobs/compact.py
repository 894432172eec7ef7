"""Step that merges the small files of a past day into one sorted batch, which keeps reads fast.

``pipeline.run`` executes it only when it is named (``--steps compact``). A day is merged if it has more than
``files_max`` files. The rows do not change.
"""

import datetime
import hashlib
from typing import Final

from waystation.pipeline.jobs.step import Context, Counts
from waystation.pipeline.lake import Lake
from waystation.pipeline.manifest import Batch
from waystation.pipeline.tables import DATASETS, OPS_RUNS, Dataset

__all__ = ["FILES_MAX", "compact"]

FILES_MAX: Final = 4
"""Files of a day that are left as they are."""

_SORTED_BY: Final = ("relay_id", "ts", "event_id")  # what readers filter by first; others take the key
_BATCH_CHARS: Final = 16


def compact(context: Context, files_max: int = FILES_MAX) -> Counts:
    """Rewrite every closed day with more than ``files_max`` files as one batch; rows stay as they are.

    A day is closed when ``as_of`` is in a later one. Readers that began before keep their files for a while.
    """
    rows_in = rows_out = 0
    for dataset in DATASETS:
        dates = [] if dataset is OPS_RUNS else _crowded(context, dataset, files_max)
        if dates:
            old = [entry for entry in context.lake.manifest(dataset).batches if entry.event_date in dates]
            rows_in += sum(entry.rows for entry in old)
            rows_out += context.lake.merge(context.spark, dataset, dates, _batch_name(old), _order(dataset))
    return Counts(rows_in, rows_out)


def _crowded(context: Context, dataset: Dataset, files_max: int) -> list[datetime.date]:
    files = _files_by_date(context.lake, dataset)
    return sorted(date for date, count in files.items() if count > files_max and date < context.as_of.date())


def _files_by_date(lake: Lake, dataset: Dataset) -> dict[datetime.date, int]:
    listed = {entry.folder: entry.event_date for entry in lake.manifest(dataset).batches}
    counts: dict[datetime.date, int] = {}
    for path in lake.storage.files(dataset.folder):
        folder = path.removeprefix(f"{dataset.folder}/").rpartition("/")[0]
        if path.endswith(".parquet") and folder in listed:
            counts[listed[folder]] = counts.get(listed[folder], 0) + 1
    return counts


def _order(dataset: Dataset) -> tuple[str, ...]:
    return tuple(name for name in _SORTED_BY if name in dataset.names()) or dataset.key


def _batch_name(old: list[Batch]) -> str:
    folders = "\n".join(entry.folder for entry in sorted(old))
    return hashlib.sha256(folders.encode()).hexdigest()[:_BATCH_CHARS]
