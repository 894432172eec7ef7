"""Adds parsed lines to a bronze (raw) table, each event once; used by the batch step and by the stream.

The dataset's manifest records loaded segments by name. For a growing segment it records the first line number not yet
loaded. Lines below that number are looked up by ``event_id`` and skipped if present (PIPE-ONCE). The rows and this
record become visible in one atomic step.
"""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.journal.archive import ARCHIVE_FORMAT
from waystation.journal.contract import FORMAT_VERSION, NODE_PROTOCOL
from waystation.pipeline.jobs.step import Rejection
from waystation.pipeline.lake import Lake
from waystation.pipeline.manifest import Manifest, Place
from waystation.pipeline.tables import BRONZE_ARCHIVE, BRONZE_EVENTS, OPS_QUARANTINE, Dataset
from waystation.pipeline.transforms.archive import accept_packets, parse_packet_lines
from waystation.pipeline.transforms.attributes import number_or_none
from waystation.pipeline.transforms.ingest import accept, parse_lines, quarantine, reject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ARCHIVE", "JOURNAL", "REJECTIONS_LISTED_MAX", "Lines", "Source", "list_rejections", "measure", "take"]

REJECTIONS_LISTED_MAX: Final = 1_000
"""Rejected lines that a run report lists; all are counted."""


class Source(NamedTuple):
    """One kind of segments and where it goes."""

    dataset: Dataset
    line_format: str
    """What first lines of its segments say."""
    parse: "Callable[[DataFrame], DataFrame]"
    """Gives rows with their ``rejection``."""
    accept: "Callable[[DataFrame], DataFrame]"
    """Gives the good rows as the dataset has them."""
    lines: str
    """What the ``waystation`` data source calls them."""


JOURNAL: Final = Source(BRONZE_EVENTS, FORMAT_VERSION, parse_lines, accept, "journal")
ARCHIVE: Final = Source(BRONZE_ARCHIVE, ARCHIVE_FORMAT, parse_packet_lines, accept_packets, "archive")


class Lines(NamedTuple):
    """What there is of one segment in a frame of parsed lines."""

    rows: int
    bad: int
    lost: int
    """Rows that the node says it could not keep."""
    first_seq: int
    next_seq: int
    begins_at: int
    """Place in the file, 0 where places are unknown."""
    ends_at: int


def measure(parsed: "DataFrame") -> dict[str, Lines]:
    """Return by segment what a frame of parsed lines holds."""
    has_places = "ends_at" in parsed.columns
    bad = F.count(F.when(F.col("rejection").isNotNull(), 1))
    good_seq = F.when(F.col("rejection").isNull(), F.col("seq"))
    is_gap = (F.col("kind") == "refused") & (F.col("protocol") == NODE_PROTOCOL) & F.col("rejection").isNull()
    lost = F.sum(F.when(is_gap, number_or_none("n")))
    aggregates = [F.count("*"), bad, lost, F.min(good_seq), F.max(good_seq) + 1]
    aggregates += [F.min("begins_at"), F.max("ends_at")] if has_places else [F.lit(0), F.lit(0)]
    named = [each.alias(name) for each, name in zip(aggregates, Lines._fields, strict=True)]
    counted = parsed.groupBy("segment").agg(*named).collect()
    return {row["segment"]: Lines(*(row[name] or 0 for name in Lines._fields)) for row in counted}


def take(
    spark: "SparkSession",
    lake: Lake,
    source: Source,
    parsed: "DataFrame",
    measured: Mapping[str, Lines],
    batch: str,
    whole: Collection[str],
    started: Mapping[str, Place] | None = None,
) -> int:
    """Add what is good to bronze and what is bad to quarantine, as one batch; return the rows added to bronze.

    Args:
        spark: The session.
        lake: The lake, held by the caller.
        source: What kind of lines they are.
        parsed: Lines of segments that are not in the lake whole.
        measured: What ``measure`` says of them.
        batch: Name of the batch; the same lines must come under the same name.
        whole: Segments that end here.
        started: Segments that go on, and how far they are in the lake now.
    """
    manifest = lake.manifest(source.dataset)
    again = [name for name, lines in measured.items() if _may_be_known(manifest, name, lines)]
    damaged = [name for name, lines in measured.items() if lines.bad]
    if damaged:
        # Looked for always: a run that died in between left them, under the name of another batch perhaps.
        bad = _unknown(quarantine(parsed, source.dataset.full_name), spark, lake, OPS_QUARANTINE, damaged, batch)
        lake.append(bad, OPS_QUARANTINE, batch, ())
    good = _unknown(source.accept(parsed), spark, lake, source.dataset, again, batch)
    return lake.append(good, source.dataset, batch, whole, started)


def list_rejections(parsed: "DataFrame") -> tuple[Rejection, ...]:
    """Return the first rejected lines: reason and hash."""
    first = reject(parsed).orderBy("segment", "reason", "hash").limit(REJECTIONS_LISTED_MAX)
    return tuple(Rejection(row["segment"], row["reason"], row["hash"]) for row in first.collect())


def _may_be_known(manifest: Manifest, segment: str, lines: Lines) -> bool:
    place = manifest.started.get(segment)
    return place is not None and lines.first_seq < place.next_seq


def _unknown(
    rows: "DataFrame", spark: "SparkSession", lake: Lake, dataset: Dataset, again: Collection[str], batch: str
) -> "DataFrame":
    """Return the rows that are not in the lake yet; only those of segments that were read before are looked for."""
    if not again or not lake.manifest(dataset).batches:
        return rows
    # A batch that is written again is replaced: its own rows do not count as known.
    others = F.substring_index("batch", ".", 1) != batch
    known = lake.read(spark, dataset).where(F.col("segment").isin(*again) & others)
    return rows.join(known.select(*dataset.key), list(dataset.key), "left_anti")
