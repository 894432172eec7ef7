"""The Parquet tables on disk (lake): manifests, atomic batch writes, and reads of the listed batches only.

Steps read and write through it: a dataset and dates go in, a DataFrame comes out, or the reverse. Files are stored in
``<layer>/<dataset>/v=1/event_date=D/batch=B/``. A batch is visible if the dataset's ``MANIFEST.json`` lists it. Each
write replaces the manifest atomically, so readers see all of it or nothing. Files of an aborted run are never read.
Only one pipeline may write at a time. On a local disk the lock ``.lock`` enforces this; for an object store the
operator must ensure it (PIPE-WRITER).
"""

import datetime
import fcntl
import itertools
import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from waystation.core.errors import HostError
from waystation.pipeline.manifest import Batch, Manifest, Place, Retired
from waystation.pipeline.storage import Storage
from waystation.pipeline.tables import Dataset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CHECKPOINTS", "MANIFEST", "RETIRED_S", "Batch", "Lake", "Manifest", "date_of_folder"]

MANIFEST: Final = "MANIFEST.json"
"""Name of a manifest, in the folder of its dataset."""
CHECKPOINTS: Final = "checkpoints"
"""Folder of the lake in which streams keep how far they are."""
RETIRED_S: Final = 3_600
"""How long files stay that compaction replaced: longer than any reader holds them."""

_LOCK: Final = ".lock"
_TASKS: Final = "_temporary"  # where Spark keeps the rows of tasks until a write ends
_STAGING: Final = ".spark-staging"  # what Spark calls the folders of a write that has not ended
_STORE_EXIT_CODE: Final = 5
_AGAIN: Final = "."  # between the name of a batch and how often it was written again


@dataclass(frozen=True)
class Lake:
    """A lake below one folder or URI."""

    root: Path | str

    @cached_property
    def storage(self) -> Storage:
        """The lake's files."""
        return Storage(self.root)

    def folder(self, dataset: Dataset) -> Path:
        """Return the folder of a dataset of a local lake.

        Raises:
            HostError: The lake lies in an object store; ``place`` names it there.
        """
        if self.storage.local is None:
            raise HostError(f"the lake {self.root} is not a folder of this machine", exit_code=_STORE_EXIT_CODE)
        return self.storage.local / dataset.folder

    def place(self, dataset: Dataset) -> str:
        """Return the location of a dataset, for Spark and for messages."""
        return self.storage.spark_path(dataset.folder)

    @contextmanager
    def locked(self, *, wait: bool = False) -> Iterator[None]:
        """Hold the lake for one writer.

        Args:
            wait: Wait for another writer to finish, instead of giving up.

        Raises:
            HostError: The folder cannot be used, or another pipeline holds it.
        """
        if self.storage.local is None:
            yield
            return
        fd = _open_lock(self.storage.local)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except OSError as error:
                raise HostError(
                    f"another pipeline works on the lake {self.root}", exit_code=_STORE_EXIT_CODE
                ) from error
            yield
        finally:
            os.close(fd)

    def manifest(self, dataset: Dataset) -> Manifest:
        """Return what counts; an empty manifest for a dataset that was never written.

        Raises:
            HostError: There is one that cannot be read.
        """
        path = f"{dataset.folder}/{MANIFEST}"
        text = self.storage.read_text(path)
        return Manifest() if text is None else Manifest.decode(text, self.storage.spark_path(path))

    def read(
        self, spark: "SparkSession", dataset: Dataset, dates: Collection[datetime.date] | None = None
    ) -> "DataFrame":
        """Return the rows that count, of all dates or of some; with ``event_date`` and ``batch`` as columns."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name; Spark is an extra

        batches = [batch for batch in self.manifest(dataset).batches if dates is None or batch.event_date in dates]
        if not batches:
            # Without the filter Spark cannot know that there is nothing, and sorts and shuffles what is joined to it.
            return spark.createDataFrame([], dataset.ddl()).where(F.lit(False))
        base = self.place(dataset)
        paths = [f"{base}/{batch.folder}" for batch in batches]
        return spark.read.schema(dataset.ddl()).option("basePath", base).parquet(*paths)

    def append(
        self,
        frame: "DataFrame",
        dataset: Dataset,
        batch: str,
        segments: Iterable[str],
        started: Mapping[str, Place] | None = None,
    ) -> int:
        """Add rows as one batch that is named by what it holds; return how many.

        Writing the same batch again replaces it.

        Args:
            frame: The rows, with ``event_date``.
            dataset: Where they belong.
            batch: Its name.
            segments: Segments that are in the lake whole from now on.
            started: Segments of which more lines are in the lake from now on, and how far.
        """
        before = self.manifest(dataset)
        self._sweep(dataset, before)
        added = self._write(frame, dataset, batch, before)
        kept = [entry for entry in before.batches if _stem(entry.batch) != batch]
        whole = before.segments | set(segments)
        places = {name: at for name, at in {**before.started, **(started or {})}.items() if name not in whole}
        self._replace(dataset, replace(before, batches=tuple(sorted([*kept, *added])), segments=whole, started=places))
        return sum(entry.rows for entry in added)

    def overwrite(self, frame: "DataFrame", dataset: Dataset, batch: str, dates: Collection[datetime.date]) -> int:
        """Replace whole dates by ``frame``, which holds no other; dates without rows become empty. Return the rows."""
        before = self.manifest(dataset)
        added = self._write(frame, dataset, batch, before)
        kept = [entry for entry in before.batches if entry.event_date not in dates]
        after = replace(before, batches=tuple(sorted([*kept, *added])), computed=before.computed | set(dates))
        self._replace(dataset, after)
        self._sweep(dataset, after)
        return sum(entry.rows for entry in added)

    def merge(
        self,
        spark: "SparkSession",
        dataset: Dataset,
        dates: Collection[datetime.date],
        batch: str,
        sort_by: Sequence[str],
    ) -> int:
        """Write each of some dates again as one sorted batch; return the rows.

        The old files stay for ``RETIRED_S`` seconds, for those who are reading them; a later write removes them.

        Raises:
            HostError: Other rows came out than went in; nothing was replaced.
        """
        before = self.manifest(dataset)
        old = [entry for entry in before.batches if entry.event_date in dates]
        rows = self.read(spark, dataset, dates).repartition("event_date").sortWithinPartitions("event_date", *sort_by)
        added = self._write(rows, dataset, batch, before, is_arranged=True)
        if _rows_by_date(old) != _rows_by_date(added):
            raise HostError(f"compaction of {dataset.full_name} would change its rows", exit_code=_STORE_EXIT_CODE)
        until_s = int(time.time()) + RETIRED_S
        retired = [Retired(entry.event_date, entry.batch, until_s) for entry in old]
        kept = [entry for entry in before.batches if entry.event_date not in dates]
        after = replace(
            before, batches=tuple(sorted([*kept, *added])), retired=tuple(sorted([*before.retired, *retired]))
        )
        self._replace(dataset, after)
        self._sweep(dataset, after)
        return sum(entry.rows for entry in added)

    def forget(self, dataset: Dataset, first_kept: datetime.date) -> tuple[int, int]:
        """Delete all dates before ``first_kept``, those of no manifest included; return how many dates and rows."""
        before = self.manifest(dataset)
        gone = [entry for entry in before.batches if entry.event_date < first_kept]
        moment = datetime.datetime.combine(first_kept, datetime.time(), datetime.UTC)
        after = replace(
            before.prune(int(moment.timestamp()) * 1_000_000),
            batches=tuple(entry for entry in before.batches if entry.event_date >= first_kept),
            retired=tuple(entry for entry in before.retired if entry.event_date >= first_kept),
            computed=frozenset(date for date in before.computed if date >= first_kept),
        )
        if self.storage.exists(f"{dataset.folder}/{MANIFEST}"):
            self._replace(dataset, after)
        old = [name for name in self.storage.folders(dataset.folder) if _is_before(name, first_kept)]
        reports = 0
        for name in old:
            reports += sum(path.endswith(".json") for path in self.storage.files(f"{dataset.folder}/{name}"))
            self.storage.delete(f"{dataset.folder}/{name}")
        dates = {entry.event_date for entry in gone} | set(map(date_of_folder, old))
        return len(dates), sum(entry.rows for entry in gone) + reports

    def exists(self) -> bool:
        """Return whether anything was ever written here."""
        return self.storage.exists("")

    def run_path(self, dataset: Dataset, run_id: str, event_date: datetime.date) -> Path:
        """Return where the report of a run lies."""
        path = f"{dataset.folder}/event_date={event_date.isoformat()}/{run_id}.json"
        return Path(self.storage.spark_path(path)) if self.storage.local is None else self.storage.local / path

    def write_run(self, dataset: Dataset, run_id: str, event_date: datetime.date, document: dict[str, Any]) -> Path:
        """Write one run report as one line of JSON and return its path."""
        path = f"{dataset.folder}/event_date={event_date.isoformat()}/{run_id}.json"
        self.storage.write_atomically(path, json.dumps(document) + "\n")
        return self.run_path(dataset, run_id, event_date)

    def _write(
        self, frame: "DataFrame", dataset: Dataset, batch: str, before: Manifest, *, is_arranged: bool = False
    ) -> list[Batch]:
        """Write rows under the name of a batch, or one that follows it when that is taken; return what is there."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name; Spark is an extra

        # What a manifest lists is never touched, and no reader opens what none lists: so no staging is needed.
        batch = _fresh(batch, before)
        self._clear(dataset, batch)
        rows = frame.select(*dataset.names(), "event_date", F.lit(batch).alias("batch"))
        arranged = rows if is_arranged else rows.hint("rebalance", "event_date")
        writer = arranged.write.mode("append").option("compression", "zstd")
        writer.partitionBy("event_date", "batch").parquet(self.place(dataset))
        found = [Batch(date, batch, 0) for date in map(date_of_folder, self.storage.folders(dataset.folder)) if date]
        present = [entry for entry in found if self.storage.exists(f"{dataset.folder}/{entry.folder}")]
        return [entry._replace(rows=self.count_rows(dataset, entry)) for entry in present]

    def _clear(self, dataset: Dataset, batch: str) -> None:
        """Remove what writes left that died: rows of this batch, and tasks that the next write would commit too."""
        self.storage.delete(f"{dataset.folder}/{_TASKS}")
        for day in self.storage.folders(dataset.folder):
            path = f"{dataset.folder}/{day}/batch={batch}"
            if self.storage.exists(path):
                self.storage.delete(path)

    def count_rows(self, dataset: Dataset, batch: Batch) -> int:
        """Count a batch from its files' own footers, not from the plan: a manifest promises what is there."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - part of an extra

        rows = 0
        for path in self.storage.files(f"{dataset.folder}/{batch.folder}"):
            if path.endswith(".parquet"):
                with self.storage.open(path) as file:
                    rows += pq.read_metadata(file).num_rows
        return rows

    def _replace(self, dataset: Dataset, manifest: Manifest) -> None:
        self.storage.write_atomically(f"{dataset.folder}/{MANIFEST}", manifest.encode(dataset))

    def _sweep(self, dataset: Dataset, manifest: Manifest) -> None:
        """Remove folders that do not count: replaced batches, and what a run left that died."""
        now_s = int(time.time())
        listed = {entry.folder for entry in manifest.batches}
        listed |= {entry.folder for entry in manifest.retired if entry.until_s > now_s}
        for day in self.storage.folders(dataset.folder):
            if day.startswith(_STAGING):
                self.storage.delete(f"{dataset.folder}/{day}")
            elif date_of_folder(day) is not None:
                self._sweep_day(f"{dataset.folder}/{day}", {folder for folder in listed if folder.startswith(day)})

    def _sweep_day(self, path: str, listed: set[str]) -> None:
        names = [name for name in self.storage.folders(path) if name.startswith("batch=")]
        day = path.rpartition("/")[2]
        for name in names:
            if f"{day}/{name}" not in listed:
                self.storage.delete(f"{path}/{name}")
        if names and not listed:
            self.storage.delete(path)


def _stem(batch: str) -> str:
    """Return the name that a batch was meant to have."""
    return batch.partition(_AGAIN)[0]


def _fresh(batch: str, manifest: Manifest) -> str:
    """Return the name of a batch, with a number appended when the manifest lists that name already."""
    taken = {entry.batch for entry in manifest.batches} | {entry.batch for entry in manifest.retired}
    names = (f"{batch}{_AGAIN}{number}" if number else batch for number in itertools.count())
    return next(name for name in names if name not in taken)


def date_of_folder(name: str) -> datetime.date | None:
    """Return the date that a partition's folder is named after, or None for another folder."""
    key, _, text = name.partition("=")
    try:
        return datetime.date.fromisoformat(text) if key == "event_date" else None
    except ValueError:
        return None


def _is_before(name: str, first_kept: datetime.date) -> bool:
    date = date_of_folder(name)
    return date is not None and date < first_kept


def _open_lock(root: Path) -> int:
    try:
        root.mkdir(parents=True, exist_ok=True)
        return os.open(root / _LOCK, os.O_RDWR | os.O_CREAT, 0o640)
    except OSError as error:
        raise HostError(f"cannot use the lake {root}: {error.strerror}", exit_code=_STORE_EXIT_CODE) from error


def _rows_by_date(batches: Iterable[Batch]) -> dict[datetime.date, int]:
    rows: dict[datetime.date, int] = {}
    for batch in batches:
        rows[batch.event_date] = rows.get(batch.event_date, 0) + batch.rows
    return {date: count for date, count in rows.items() if count}
