"""Take new segments of a journal into ``bronze.events``, and of an archive into ``bronze.archive``."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.journal.archive import ARCHIVE_FORMAT
from waystation.journal.contract import FORMAT_VERSION, NODE_PROTOCOL
from waystation.journal.segment import SEALED_SUFFIX, SegmentState
from waystation.pipeline.jobs.step import Counts, Problem, Rejection
from waystation.pipeline.journal_files import SegmentFile, discover, seal_left_overs
from waystation.pipeline.lake import Lake
from waystation.pipeline.tables import BRONZE_ARCHIVE, BRONZE_EVENTS, Dataset
from waystation.pipeline.transforms.archive import accept_packets, parse_packet_lines
from waystation.pipeline.transforms.ingest import accept, parse_lines, reject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ARCHIVE", "JOURNAL", "REJECTIONS_LISTED_MAX", "Source", "ingest"]

REJECTIONS_LISTED_MAX: Final = 1_000
"""Rejected lines that a run report lists; all are counted."""

_BATCH_CHARS: Final = 16
_PROBLEMS: Final = {
    SegmentState.TORN: "torn: ends inside a line; the rest was read",
    SegmentState.UNSEALED: "unsealed: its writer was killed; all lines were read",
}


class Source(NamedTuple):
    """One kind of segments and where it goes."""

    dataset: Dataset
    line_format: str
    """What first lines of its segments say."""
    parse: "Callable[[DataFrame], DataFrame]"
    """Gives rows with their ``rejection``."""
    accept: "Callable[[DataFrame], DataFrame]"
    """Gives the good rows as the dataset has them."""


JOURNAL: Final = Source(BRONZE_EVENTS, FORMAT_VERSION, parse_lines, accept)
ARCHIVE: Final = Source(BRONZE_ARCHIVE, ARCHIVE_FORMAT, parse_packet_lines, accept_packets)


def ingest(spark: "SparkSession", lake: Lake, folder: Path, source: Source = JOURNAL) -> Counts:
    """Read every sealed segment that is not in the lake yet, each once; no folder holds no segments.

    Running it again takes nothing twice: segments are remembered by name in the manifest, and the batch they make is
    named by what it holds, so that a run that died is replaced and not added to.
    """
    still_open = seal_left_overs(folder)
    wanted, problems = _choose(discover(folder, source.line_format), lake.manifest(source.dataset).segments)
    if still_open:
        problems.append(Problem(f"{still_open} open", "still being written; left for the next run"))
    if not wanted:
        return Counts(0, 0, 0, tuple(problems))
    parsed = source.parse(_read_lines(spark, wanted))
    rows, bad = _count(parsed, wanted, problems)
    listed = _list_rejections(parsed) if bad else ()
    segments = [file.segment for file in wanted]
    out = lake.append(source.accept(parsed), source.dataset, _batch_name(segments), segments)
    return Counts(rows, out, bad, tuple(problems), listed)


def _choose(found: Sequence[SegmentFile], known: frozenset[str]) -> tuple[list[SegmentFile], list[Problem]]:
    """Return the segments to read, and what is wrong with any file."""
    wanted: dict[str, SegmentFile] = {}
    problems = []
    for file in found:
        if file.state is SegmentState.FOREIGN:
            problems.append(Problem(_shown(file), "foreign: not a segment of this format under its own name; not read"))
        elif file.segment in wanted:
            problems.append(Problem(_shown(file), "duplicate: another file is the same segment; read once"))
        elif file.segment not in known:
            wanted[file.segment] = file
            if file.state in _PROBLEMS:
                problems.append(Problem(_shown(file), _PROBLEMS[file.state]))
    return sorted(wanted.values(), key=lambda file: file.segment), problems


def _shown(file: SegmentFile) -> str:
    return f"{file.path.parent.name}/{file.path.name}"


def _read_lines(spark: "SparkSession", files: Sequence[SegmentFile]) -> "DataFrame":
    paths = [str(file.path.absolute()) for file in files]
    lines = spark.read.schema("value string").option("lineSep", "\n").text(paths)
    name = F.col("_metadata.file_name")
    return lines.select("value", F.substring_index(name, SEALED_SUFFIX, 1).alias("segment"))


def _count(parsed: "DataFrame", files: Sequence[SegmentFile], problems: list[Problem]) -> tuple[int, int]:
    """Return lines and rejected lines; add a problem for each segment with gaps or other lines than it promises."""
    bad = F.count(F.when(F.col("rejection").isNotNull(), 1))
    is_gap = (F.col("kind") == "refused") & (F.col("protocol") == NODE_PROTOCOL) & F.col("rejection").isNull()
    lost = F.sum(F.when(is_gap, F.try_element_at("attrs", F.lit("n")).try_cast("bigint")))
    aggregates = (F.count("*").alias("n"), bad.alias("bad"), lost.alias("lost"))
    counted = parsed.groupBy("segment").agg(*aggregates).collect()
    problems += [
        Problem(row["segment"], f"gap: {row['lost']} rows could not be kept before these")
        for row in sorted(counted, key=lambda row: str(row["segment"]))
        if row["lost"]
    ]
    rows = {row["segment"]: row["n"] for row in counted}
    for file in files:
        if file.rows_promised is not None and file.rows_promised != rows.get(file.segment, 0):
            text = f"damaged: promises {file.rows_promised} lines, has {rows.get(file.segment, 0)}"
            problems.append(Problem(_shown(file), text))
    return sum(rows.values()), sum(row["bad"] for row in counted)


def _list_rejections(parsed: "DataFrame") -> tuple[Rejection, ...]:
    first = reject(parsed).orderBy("segment", "reason", "hash").limit(REJECTIONS_LISTED_MAX)
    return tuple(Rejection(row["segment"], row["reason"], row["hash"]) for row in first.collect())


def _batch_name(segments: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(segments).encode()).hexdigest()[:_BATCH_CHARS]
