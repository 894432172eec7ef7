"""Loads growing segments into the bronze (raw) tables in micro-batches, with Spark Structured Streaming.

``waystation pipeline stream`` runs it; the data source ``waystation`` (``pipeline.sources``) reads the segments. Each
line is stored exactly once. Spark records the input of a micro-batch before processing and repeats it after a crash.
The batch name contains the checkpoint and the batch number, so the manifest shows whether it was stored. ``taking``
detects lines that another checkpoint or the batch step already stored.

The lock of the Parquet tables is held per micro-batch, so ``run`` can work in between.
"""

import hashlib
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waystation.core.errors import HostError
from waystation.pipeline.jobs.step import Counts, Rejection
from waystation.pipeline.jobs.taking import (
    JOURNAL,
    REJECTIONS_LISTED_MAX,
    Lines,
    Source,
    list_rejections,
    measure,
    take,
)
from waystation.pipeline.journal_files import GrowthReader, seal_left_overs
from waystation.pipeline.lake import Lake
from waystation.pipeline.manifest import Manifest, Place
from waystation.pipeline.sources.waystation import ROWS_PER_BATCH, WaystationSource
from waystation.pipeline.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["stream"]

_BATCH_CHARS: Final = 16
_LOOK_S: Final = 1  # how often a running stream is asked whether to stop
_SIGN_IN_LOOKS: Final = 3_600  # looks between two signs that a stream runs: an hour, far below any retention
_IN_USE: Final = "in-use"  # the file of a checkpoint that is the sign
_LOG_KEPT: Final = "10"  # micro-batches whose offsets a checkpoint keeps
_KEEP: Final = "spark.sql.streaming.minBatchesToRetain"


def stream(
    spark: "SparkSession",
    lake: Lake,
    folder: Path,
    checkpoint: str,
    *,
    source: Source = JOURNAL,
    available_now: bool = True,
    stop: Callable[[], bool] = bool,
    every_s: int = 10,
    rows_max: int = ROWS_PER_BATCH,
) -> Counts:
    """Read on where the checkpoint says; the caller must not hold the lake.

    Args:
        spark: The session.
        lake: Where the rows go.
        folder: Segments, of a node that runs or not.
        checkpoint: Folder or URI in which Spark keeps how far it is; one for each folder of segments.
        source: What kind of segments they are.
        available_now: End when everything was read that was there at the beginning.
        stop: Asked every second whether to end; never by default.
        every_s: How often to look for more.
        rows_max: Lines of a micro-batch.

    Raises:
        HostError: The stream ended by an error; the next start goes on where it was.
    """
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - Spark is an extra

    seal_left_overs(folder)
    folder.mkdir(parents=True, exist_ok=True)
    spark.dataSource.register(WaystationSource)
    spark.conf.set(_KEEP, _LOG_KEPT)
    options = {"lines": source.lines, "form": "lines", "rowsPerBatch": str(rows_max)}
    lines = spark.readStream.format("waystation").options(**options).load(str(folder.absolute()))
    progress = Storage(checkpoint)
    taker = _Taker(lake, folder, source, progress)
    writer = lines.writeStream.foreachBatch(taker).option("checkpointLocation", checkpoint)
    try:
        _sign_in(progress)
        _wait(_started(writer, available_now=available_now, every_s=every_s), stop, progress)
    except StreamingQueryException as error:
        raise HostError(f"the stream ended: {error}") from error
    return taker.counts()


def _started(writer: "DataStreamWriter", *, available_now: bool, every_s: int) -> "StreamingQuery":
    if available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every_s} seconds").start()


def _wait(query: "StreamingQuery", stop: Callable[[], bool], checkpoint: Storage) -> None:
    looks = 0
    try:
        while not query.awaitTermination(_LOOK_S):
            if stop():
                return
            looks += 1
            if looks % _SIGN_IN_LOOKS == 0:
                _sign_in(checkpoint)
    finally:
        query.stop()


def _sign_in(checkpoint: Storage) -> None:
    """Say that a stream runs here: a checkpoint of a node that is silent for weeks is no left-over (``retain``)."""
    checkpoint.write_atomically(_IN_USE, "")


class _Taker:
    """What happens to each micro-batch."""

    def __init__(self, lake: Lake, folder: Path, source: Source, checkpoint: Storage) -> None:
        self._lake = lake
        self._source = source
        self._checkpoint = checkpoint
        self._growth = GrowthReader(folder, source.line_format)
        self._rows_in = self._rows_out = self._rows_bad = 0
        self._listed: list[Rejection] = []

    def __call__(self, lines: "DataFrame", number: int) -> None:
        batch = _batch_name(self._checkpoint, number)
        with self._lake.locked(wait=True):
            manifest = self._lake.manifest(self._source.dataset)
            if all(entry.batch != batch for entry in manifest.batches):
                parsed = self._source.parse(lines).persist()  # several looks at what Python reads only once
                self._take(parsed, manifest, batch)
                parsed.unpersist()

    def counts(self) -> Counts:
        """Return what came in so far."""
        return Counts(self._rows_in, self._rows_out, self._rows_bad, (), tuple(self._listed))

    def _take(self, parsed: "DataFrame", manifest: Manifest, batch: str) -> None:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name; Spark is an extra

        found = measure(parsed)
        wanted = {name: lines for name, lines in found.items() if not _is_settled(manifest, name)}
        if not wanted:
            return
        rows = parsed if len(wanted) == len(found) else parsed.where(F.col("segment").isin(*wanted))
        started = {name: _place(manifest.started.get(name), lines) for name, lines in wanted.items()}
        whole = self._ended({**manifest.started, **started})
        if any(lines.bad for lines in wanted.values()):
            self._listed = [*self._listed, *list_rejections(rows)][:REJECTIONS_LISTED_MAX]
        spark = parsed.sparkSession
        self._rows_out += take(spark, self._lake, self._source, rows, wanted, batch, whole, started)
        self._rows_in += sum(lines.rows for lines in wanted.values())
        self._rows_bad += sum(lines.bad for lines in wanted.values())

    def _ended(self, started: dict[str, Place]) -> Collection[str]:
        files = {file.segment: file for file in self._growth.look() if file.is_sealed}
        return [name for name, at in started.items() if name in files and at.bytes >= files[name].ready_bytes]


def _is_settled(manifest: Manifest, segment: str) -> bool:
    return segment in manifest.segments or manifest.is_closed(segment)


def _place(before: Place | None, lines: Lines) -> Place:
    """Return how far a segment is taken now; a hole before these lines leaves the place in the file where it was."""
    seq, place = before or Place(0, 0)
    return Place(max(seq, lines.next_seq), max(place, lines.ends_at) if lines.begins_at <= place else place)


def _batch_name(checkpoint: Storage, number: int) -> str:
    """Name a batch by the query, which its checkpoint names, and the number that Spark gives it."""
    metadata = checkpoint.read_text("metadata")
    if metadata is None:
        raise HostError(f"the checkpoint {checkpoint.spark_path()} has no metadata")
    query = json.loads(metadata)["id"]
    return hashlib.sha256(f"{query}#{number}".encode()).hexdigest()[:_BATCH_CHARS]
