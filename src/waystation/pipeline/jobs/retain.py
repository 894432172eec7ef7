"""Step that deletes rows older than their retention, and records proof of the deletion in ``ops.retention``.

``pipeline.run`` executes it. The proof does not rely on the list of deletions. It lists the remaining files and takes
the oldest date from their folder names and Parquet footers. ``ops.retention`` gets one row per dataset. Unused stream
checkpoints are deleted too.
"""

import datetime
from typing import Final, NamedTuple

from waystation.core.errors import HostError
from waystation.pipeline.footers import oldest_row_date
from waystation.pipeline.jobs.step import Context, Counts
from waystation.pipeline.lake import CHECKPOINTS, Lake, date_of_folder
from waystation.pipeline.tables import BRONZE_EVENTS, DATASETS, OPS_RETENTION, Dataset

__all__ = ["counted_from", "first_kept", "forget_checkpoints", "oldest", "retain"]

_STORE_EXIT_CODE: Final = 5


class _Proof(NamedTuple):
    """One row of ``ops.retention``."""

    dataset: str
    as_of: datetime.datetime
    retention_days: int
    deleted_dates: int
    deleted_rows: int
    files: int
    oldest_date: datetime.date | None
    holds: bool
    event_date: datetime.date


def retain(context: Context) -> Counts:
    """Delete dates past their retention, and checkpoints that were unused for as long as events are kept.

    A stream whose checkpoint was deleted begins anew and takes nothing twice.

    Raises:
        HostError: Something is left that is too old; ``ops.retention`` says in which dataset.
    """
    moment = counted_from(context.as_of, datetime.datetime.now(datetime.UTC))
    forget_checkpoints(context.lake, moment)
    proofs = [_forget(context.lake, dataset, moment) for dataset in DATASETS]
    ddl = f"{OPS_RETENTION.row_ddl()}, event_date date"
    rows = context.spark.createDataFrame([tuple(proof) for proof in proofs], ddl)
    # Named by the moment: the proof of the same moment replaces itself.
    context.lake.append(rows, OPS_RETENTION, f"retain-{moment:%Y%m%dT%H}", ())
    broken = [proof.dataset for proof in proofs if not proof.holds]
    if broken:
        raise HostError(f"rows older than allowed are left in {', '.join(broken)}", exit_code=_STORE_EXIT_CODE)
    return Counts(sum(proof.deleted_rows for proof in proofs), len(proofs))


def counted_from(as_of: datetime.datetime, now: datetime.datetime) -> datetime.datetime:
    """Return the moment ages are counted from, a full hour.

    ``as_of`` follows the events, and one node's wrong clock may put it years ahead: nothing is deleted before this
    machine's own clock agrees (PIPE-RETAIN).
    """
    return min(as_of, now.replace(minute=0, second=0, microsecond=0))


def first_kept(dataset: Dataset, as_of: datetime.datetime) -> datetime.date:
    """Return the oldest date that a dataset may hold."""
    return as_of.date() - datetime.timedelta(days=dataset.retention_days)


def oldest(lake: Lake, dataset: Dataset) -> tuple[int, datetime.date | None]:
    """Return how many files a dataset has, found by listing, and the oldest date in their names and their rows."""
    files = [path for path in lake.storage.files(dataset.folder) if path.endswith((".parquet", ".json"))]
    dated = [path for path in files if _date_of_path(path) is not None]
    rows = [oldest_row_date(lake.storage, path, dataset) for path in dated if path.endswith(".parquet")]
    dates = [date for date in (*map(_date_of_path, dated), *rows) if date is not None]
    return len(dated), min(dates, default=None)


def forget_checkpoints(lake: Lake, as_of: datetime.datetime) -> list[str]:
    """Delete checkpoints in which nothing was written for as long as events are kept; return their names."""
    limit = as_of - datetime.timedelta(days=BRONZE_EVENTS.retention_days)
    gone = []
    for name in lake.storage.folders(CHECKPOINTS):
        files = lake.storage.files(f"{CHECKPOINTS}/{name}")
        if max(map(lake.storage.modified_s, files), default=0) < limit.timestamp():
            lake.storage.delete(f"{CHECKPOINTS}/{name}")
            gone.append(name)
    return gone


def _forget(lake: Lake, dataset: Dataset, moment: datetime.datetime) -> _Proof:
    limit = first_kept(dataset, moment)
    dates, rows = lake.forget(dataset, limit)
    files, left = oldest(lake, dataset)
    holds = left is None or left >= limit
    return _Proof(
        *(dataset.full_name, moment, dataset.retention_days, dates, rows, files, left, holds),
        moment.date(),
    )


def _date_of_path(path: str) -> datetime.date | None:
    return next((date for date in map(date_of_folder, path.split("/")) if date is not None), None)
