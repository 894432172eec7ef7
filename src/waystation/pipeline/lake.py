"""Which files of a dataset count: manifests, publishing, reading.

Files lie in ``<layer>/<dataset>/v=1/event_date=D/batch=B/``. A batch counts when ``MANIFEST.json`` of its dataset lists
it; the manifest is replaced by one atomic rename, so a reader sees all of a step or nothing of it, and files of a run
that died are never read. One pipeline at a time writes a lake: it holds the lock on ``.lock``.
"""

import datetime
import fcntl
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from waystation.core.errors import HostError
from waystation.pipeline.tables import Dataset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Batch", "Lake", "Manifest"]

_MANIFEST: Final = "MANIFEST.json"
_LOCK: Final = ".lock"
_STORE_EXIT_CODE: Final = 5


class Batch(NamedTuple):
    """One folder of files that counts."""

    event_date: datetime.date
    batch: str
    rows: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What of a dataset counts."""

    batches: tuple[Batch, ...] = ()
    segments: frozenset[str] = field(default=frozenset())
    """Names of the segments that were taken in; only used by ``bronze.events`` and ``bronze.archive``."""

    def dates(self) -> list[datetime.date]:
        """Return the dates that have rows, oldest first."""
        return sorted({batch.event_date for batch in self.batches})


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake below one folder."""

    root: Path

    def folder(self, dataset: Dataset) -> Path:
        """Return the folder of a dataset."""
        return self.root / dataset.folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lake for one writer.

        Raises:
            HostError: The folder cannot be used, or another pipeline holds it.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT, 0o640)
        except OSError as error:
            raise HostError(f"cannot use the lake {self.root}: {error.strerror}", exit_code=_STORE_EXIT_CODE) from error
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise HostError(
                    f"another pipeline works on the lake {self.root}", exit_code=_STORE_EXIT_CODE
                ) from error
            yield
        finally:
            os.close(fd)

    def manifest(self, dataset: Dataset) -> Manifest:
        """Return what counts; an empty manifest for a dataset that was never written."""
        path = self.folder(dataset) / _MANIFEST
        if not path.exists():
            return Manifest()
        document = json.loads(path.read_text())
        batches = [
            Batch(datetime.date.fromisoformat(entry["event_date"]), entry["batch"], entry["rows"])
            for entry in document["batches"]
        ]
        return Manifest(tuple(batches), frozenset(document["segments"]))

    def read(
        self, spark: "SparkSession", dataset: Dataset, dates: Collection[datetime.date] | None = None
    ) -> "DataFrame":
        """Return the rows that count, of all dates or of some; with ``event_date`` and ``batch`` as columns."""
        batches = [batch for batch in self.manifest(dataset).batches if dates is None or batch.event_date in dates]
        if not batches:
            return spark.createDataFrame([], dataset.ddl())
        base = self.folder(dataset).absolute()
        paths = [str(base / _batch_folder(batch)) for batch in batches]
        return spark.read.schema(dataset.ddl()).option("basePath", str(base)).parquet(*paths)

    def append(self, frame: "DataFrame", dataset: Dataset, batch: str, segments: Iterable[str]) -> int:
        """Add rows as one batch that is named by what it holds; return how many.

        Writing the same batch again replaces it.
        """
        before = self.manifest(dataset)
        self._sweep(dataset, before)
        added = self._write(frame, dataset, batch)
        kept = [entry for entry in before.batches if entry.batch != batch]
        self._replace(dataset, Manifest(tuple(sorted([*kept, *added])), before.segments | set(segments)))
        return sum(entry.rows for entry in added)

    def overwrite(self, frame: "DataFrame", dataset: Dataset, batch: str, dates: Collection[datetime.date]) -> int:
        """Replace whole dates by ``frame``, which holds no other; dates without rows become empty. Return the rows."""
        before = self.manifest(dataset)
        added = self._write(frame, dataset, batch)
        kept = [entry for entry in before.batches if entry.event_date not in dates]
        after = Manifest(tuple(sorted([*kept, *added])), before.segments)
        self._replace(dataset, after)
        self._sweep(dataset, after)
        return sum(entry.rows for entry in added)

    def write_run(self, dataset: Dataset, run_id: str, event_date: datetime.date, document: dict[str, Any]) -> Path:
        """Write one run report as one line of JSON and return its path."""
        folder = self.folder(dataset) / f"event_date={event_date.isoformat()}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{run_id}.json"
        _write_atomically(path, json.dumps(document) + "\n")
        return path

    def _write(self, frame: "DataFrame", dataset: Dataset, batch: str) -> list[Batch]:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name; Spark is an extra

        base = self.folder(dataset).absolute()
        rows = frame.select(*dataset.names(), "event_date", F.lit(batch).alias("batch"))
        writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").option("compression", "zstd")
        writer.partitionBy("event_date", "batch").parquet(str(base))
        folders = base.glob(f"event_date=*/batch={batch}")
        dates = sorted(datetime.date.fromisoformat(path.parent.name.partition("=")[2]) for path in folders)
        return [Batch(date, batch, _count_rows(base / _batch_folder(Batch(date, batch, 0)))) for date in dates]

    def _replace(self, dataset: Dataset, manifest: Manifest) -> None:
        document = {
            "dataset": dataset.full_name,
            "version": dataset.version,
            "batches": [
                {"event_date": entry.event_date.isoformat(), "batch": entry.batch, "rows": entry.rows}
                for entry in manifest.batches
            ],
            "segments": sorted(manifest.segments),
        }
        self.folder(dataset).mkdir(parents=True, exist_ok=True)
        _write_atomically(self.folder(dataset) / _MANIFEST, json.dumps(document, indent=1) + "\n")

    def _sweep(self, dataset: Dataset, manifest: Manifest) -> None:
        """Remove folders that do not count: replaced batches, and what a run left that died."""
        listed = {_batch_folder(batch) for batch in manifest.batches}
        base = self.folder(dataset)
        for path in base.glob("event_date=*/batch=*"):
            if f"{path.parent.name}/{path.name}" not in listed:
                shutil.rmtree(path)
                if not any(path.parent.iterdir()):
                    path.parent.rmdir()


def _batch_folder(batch: Batch) -> str:
    return f"event_date={batch.event_date.isoformat()}/batch={batch.batch}"


def _count_rows(folder: Path) -> int:
    """Count from the files' own footers, not from the plan: a manifest promises what is there."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - part of an extra

    return sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
