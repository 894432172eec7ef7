"""Step that loads new sealed segments: journals into ``bronze.events``, packet archives into ``bronze.archive``.

``pipeline.run`` executes it first; nodes wrote the files. The manifest records loaded segments by name, so a repeated
run loads no segment twice.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.journal.segment import SEALED_SUFFIX, SegmentState, parse_name
from waystation.pipeline.jobs.step import Context, Counts, Problem
from waystation.pipeline.jobs.taking import (
    ARCHIVE,
    JOURNAL,
    REJECTIONS_LISTED_MAX,
    Lines,
    Source,
    list_rejections,
    measure,
    take,
)
from waystation.pipeline.journal_files import SegmentFile, discover, seal_left_overs
from waystation.pipeline.lake import Lake
from waystation.pipeline.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ARCHIVE", "JOURNAL", "REJECTIONS_LISTED_MAX", "Source", "ingest", "ingest_archive", "ingest_journal"]

AHEAD_US: Final = 2 * 86_400_000_000
"""A segment that begins later than this from now is not read: its rows would be kept for ever."""

_BATCH_CHARS: Final = 16
_PROBLEMS: Final = {
    SegmentState.TORN: "torn: ends inside a line; the rest was read",
    SegmentState.UNSEALED: "unsealed: its writer was killed; all lines were read",
}


def ingest_journal(context: Context) -> Counts:
    """Take new segments of the run's journal in; a run without one takes nothing."""
    return Counts(0, 0) if context.journal is None else ingest(context.spark, context.lake, context.journal)


def ingest_archive(context: Context) -> Counts:
    """Take new segments of the run's packet archive in; a run without one takes nothing."""
    return Counts(0, 0) if context.archive is None else ingest(context.spark, context.lake, context.archive, ARCHIVE)


def ingest(spark: "SparkSession", lake: Lake, folder: Path, source: Source = JOURNAL) -> Counts:
    """Read every sealed segment that is not in the lake yet, each once; no folder holds no segments.

    Running it again takes nothing twice: segments are remembered by name in the manifest, and the batch they make is
    named by what it holds, so that a run that died is replaced and not added to. Of segments that a stream took in part
    the rest is taken. Lines that are rejected go to ``ops.quarantine``, without their text.
    """
    still_open = seal_left_overs(folder)
    wanted, problems = _choose(
        discover(folder, source.line_format), lake.manifest(source.dataset), time.time_ns() // 1_000
    )
    if still_open:
        problems.append(Problem(f"{still_open} open", "still being written; left for the next run"))
    if not wanted:
        return Counts(0, 0, 0, tuple(problems))
    parsed = source.parse(_read_lines(spark, wanted))
    measured = measure(parsed)
    problems += _gaps_and_damage(measured, wanted)
    bad = sum(lines.bad for lines in measured.values())
    listed = list_rejections(parsed) if bad else ()
    segments = [file.segment for file in wanted]
    out = take(spark, lake, source, parsed, measured, _batch_name(segments), segments)
    return Counts(sum(lines.rows for lines in measured.values()), out, bad, tuple(problems), listed)


def _began_us(file: SegmentFile) -> int:
    name = parse_name(file.path.name)
    return name.start_us if name is not None else 0


def _choose(found: Sequence[SegmentFile], manifest: Manifest, now_us: int) -> tuple[list[SegmentFile], list[Problem]]:
    """Return the segments to read, and what is wrong with any file."""
    wanted: dict[str, SegmentFile] = {}
    problems = []
    closed = 0
    for file in found:
        if file.state is SegmentState.FOREIGN:
            problems.append(Problem(_shown(file), "foreign: not a segment of this format under its own name; not read"))
        elif file.segment in wanted:
            problems.append(Problem(_shown(file), "duplicate: another file is the same segment; read once"))
        elif manifest.is_closed(file.segment):
            closed += 1
        elif _began_us(file) >= now_us + AHEAD_US:
            problems.append(Problem(_shown(file), "future: its node's clock is more than two days ahead; not read"))
        elif file.segment not in manifest.segments:
            wanted[file.segment] = file
            if file.state in _PROBLEMS:
                problems.append(Problem(_shown(file), _PROBLEMS[file.state]))
    if closed:
        problems.append(Problem(f"{closed} old", "expired: older than what the lake keeps; not read"))
    return sorted(wanted.values(), key=lambda file: file.segment), problems


def _shown(file: SegmentFile) -> str:
    return f"{file.path.parent.name}/{file.path.name}"


def _read_lines(spark: "SparkSession", files: Sequence[SegmentFile]) -> "DataFrame":
    paths = [str(file.path.absolute()) for file in files]
    lines = spark.read.schema("value string").option("lineSep", "\n").text(paths)
    name = F.col("_metadata.file_name")
    return lines.select("value", F.substring_index(name, SEALED_SUFFIX, 1).alias("segment"))


def _gaps_and_damage(measured: Mapping[str, Lines], files: Sequence[SegmentFile]) -> list[Problem]:
    """Return a problem for each segment with gaps or other lines than it promises."""
    problems = [
        Problem(segment, f"gap: {lines.lost} rows could not be kept before these")
        for segment, lines in sorted(measured.items())
        if lines.lost
    ]
    for file in files:
        rows = measured[file.segment].rows if file.segment in measured else 0
        if file.rows_promised is not None and file.rows_promised != rows:
            problems.append(Problem(_shown(file), f"damaged: promises {file.rows_promised} lines, has {rows}"))
    return problems


def _batch_name(segments: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(segments).encode()).hexdigest()[:_BATCH_CHARS]
