"""Checks of ``doctor`` on the Parquet tables (lake): files match their manifests and contracts, and row counts agree.

``waystation pipeline doctor`` calls both and prints each ``Check``. ``audit`` reads manifests, file listings and
footers, and needs no Spark. ``tie_out`` compares totals of tables that are derived from each other. Its checks are
valid for damaged journals too.
"""

import datetime
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from waystation.core.errors import HostError
from waystation.pipeline.footers import misfits
from waystation.pipeline.lake import MANIFEST, Lake, Manifest, date_of_folder
from waystation.pipeline.tables import (
    BRONZE_ARCHIVE,
    BRONZE_EVENTS,
    DATASETS,
    GOLD_OUTCOMES,
    GOLD_VERDICTS,
    OPS_QUARANTINE,
    OPS_RUNS,
    SILVER_DELIVERIES,
    SILVER_PACKETS,
    Dataset,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Check", "audit", "tie_out"]

_SHOWN_MAX = 3
_SIDE_FILES = (".crc", "_SUCCESS", MANIFEST)  # Hadoop's checksums and its mark of a finished write; and ours


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    ok: bool
    sentence: str
    """A sentence for the operator: what holds, or where it does not."""


def audit(lake: Lake, as_of: datetime.date | None = None) -> list[Check]:
    """Hold every dataset to its manifest and its contract.

    Args:
        lake: The lake; no run should be writing it meanwhile.
        as_of: What ages are counted from; None takes the newest date of the lake.
    """
    manifests: dict[Dataset, Manifest] = {}
    broken = []
    for dataset in DATASETS:
        try:
            manifests[dataset] = lake.manifest(dataset)
        except HostError as error:
            broken.append(str(error))
    newest = max((manifest.dates()[-1] for manifest in manifests.values() if manifest.batches), default=None)
    readable = Check("manifests", not broken, "; ".join(broken) or f"{len(manifests)} manifests can be read")
    checks: dict[str, Callable[[Dataset, Manifest], Iterable[str]]] = {
        "rows": lambda dataset, manifest: _wrong_rows(lake, dataset, manifest),
        "columns": lambda dataset, manifest: _wrong_columns(lake, dataset, manifest),
        "ages": lambda dataset, _: _too_old(lake, dataset, as_of or newest),
        "files": lambda dataset, manifest: _foreign(lake, dataset, manifest),
    }
    good = {
        "rows": "every file that a manifest lists is there, with the rows it promises",
        "columns": "all files have the columns of the contract",
        "ages": "nothing is older than its retention",
        "files": "no file is there that nothing lists",
    }
    found = {name: [text for each in manifests.items() for text in check(*each)] for name, check in checks.items()}
    return [readable, *(_check(name, found[name], good[name]) for name in checks)]


def tie_out(spark: "SparkSession", lake: Lake) -> list[Check]:
    """Compare sums of tables that were made of one another, over the dates that both have."""
    return [
        _check("tie: lines", _untied_segments(spark, lake), "every finished segment has the lines it promises"),
        _tie(spark, lake, "tie: attempts", SILVER_DELIVERIES, GOLD_OUTCOMES, _ATTEMPTS),
        _tie(spark, lake, "tie: verdicts", BRONZE_EVENTS, GOLD_VERDICTS, _JUDGED),
        _tie_packets(spark, lake),
    ]


_ATTEMPTS = "sum(CASE WHEN latency_us IS NULL THEN coalesce(tries, 1) ELSE 1 END)"
_JUDGED = (
    "sum(CASE WHEN kind = 'packet_judged' AND outcome IS NOT NULL"
    " THEN coalesce(try_cast(try_element_at(attrs, 'n') AS bigint), 1) END)"
)


def _check(name: str, wrong: list[str], good: str) -> Check:
    more = f" and {len(wrong) - _SHOWN_MAX} more" if len(wrong) > _SHOWN_MAX else ""
    return Check(name, not wrong, "; ".join(wrong[:_SHOWN_MAX]) + more if wrong else good)


def _wrong_rows(lake: Lake, dataset: Dataset, manifest: Manifest) -> Iterable[str]:
    for entry in manifest.batches:
        try:
            rows = lake.count_rows(dataset, entry)
        except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
            yield f"{dataset.folder}/{entry.folder} cannot be read: {error}"
            continue
        if rows != entry.rows:
            yield f"{dataset.folder}/{entry.folder} has {rows} rows, not {entry.rows}"


def _wrong_columns(lake: Lake, dataset: Dataset, manifest: Manifest) -> Iterable[str]:
    for path in _listed_files(lake, dataset, manifest):
        try:
            wrong = misfits(lake.storage, path, dataset)
        except (OSError, ValueError):  # the check of the rows reports it
            continue
        if wrong:
            yield f"{path} has other columns: {', '.join(wrong)}"


def _too_old(lake: Lake, dataset: Dataset, as_of: datetime.date | None) -> Iterable[str]:
    if as_of is None:
        return
    limit = as_of - datetime.timedelta(days=dataset.retention_days)
    for name in lake.storage.folders(dataset.folder):
        date = date_of_folder(name)
        if date is not None and date < limit:
            yield f"{dataset.folder}/{name} is older than {dataset.retention_days} days"


def _foreign(lake: Lake, dataset: Dataset, manifest: Manifest) -> Iterable[str]:
    folders = {entry.folder for entry in manifest.batches} | {entry.folder for entry in manifest.retired}
    for path in lake.storage.files(dataset.folder):
        folder, _, name = path.removeprefix(f"{dataset.folder}/").rpartition("/")
        is_report = dataset is OPS_RUNS and name.endswith(".json") and date_of_folder(folder) is not None
        if not (is_report or folder in folders or name.endswith(_SIDE_FILES)):
            yield f"{path} is listed nowhere"


def _listed_files(lake: Lake, dataset: Dataset, manifest: Manifest) -> list[str]:
    folders = {entry.folder for entry in manifest.batches}
    files = lake.storage.files(dataset.folder) if folders else []
    inside = [path for path in files if path.endswith(".parquet")]
    return [path for path in inside if path.removeprefix(f"{dataset.folder}/").rpartition("/")[0] in folders]


def _untied_segments(spark: "SparkSession", lake: Lake) -> list[str]:
    """Return finished segments whose lines are not all events or quarantined: events <= promised <= both."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name; Spark is an extra

    promise = F.when(F.col("kind") == "segment_sealed", F.try_element_at("attrs", F.lit("rows")).try_cast("bigint"))
    events = lake.read(spark, BRONZE_EVENTS).groupBy("segment")
    counted = events.agg(F.count("*").alias("events"), F.max(promise).alias("promised"))
    quarantined = lake.read(spark, OPS_QUARANTINE).where(F.col("dataset") == BRONZE_EVENTS.full_name)
    both = counted.join(quarantined.groupBy("segment").agg(F.count("*").alias("bad")), "segment", "left")
    bad = F.coalesce("bad", F.lit(0))
    wrong = both.where((F.col("events") > F.col("promised")) | (F.col("events") + bad < F.col("promised")))
    rows = wrong.withColumn("bad", bad).orderBy("segment").limit(_SHOWN_MAX + 1).collect()
    return [
        f"{row['segment']} promises {row['promised']} lines; {row['events']} are events, {row['bad']} quarantined"
        for row in rows
    ]


def _tie(spark: "SparkSession", lake: Lake, name: str, source: Dataset, counts: Dataset, total: str) -> Check:
    shared = set(lake.manifest(source).dates()) & lake.manifest(counts).computed
    made = _total(lake.read(spark, source, shared), total)
    counted = _total(lake.read(spark, counts, shared), "sum(n)")
    sentence = f"{counts.full_name} counts {counted:,} over {len(shared)} dates, {source.full_name} has {made:,}"
    return Check(name, counted == made, sentence)


def _tie_packets(spark: "SparkSession", lake: Lake) -> Check:
    archived = _total(lake.read(spark, BRONZE_ARCHIVE), "count(DISTINCT packet_id)")
    known = lake.read(spark, SILVER_PACKETS).select("packet_id")
    missing = _total(lake.read(spark, BRONZE_ARCHIVE).join(known, "packet_id", "left_anti"), "count(*)")
    return Check("tie: packets", not missing, f"{missing:,} archived of {archived:,} packets are not in silver.packets")


def _total(frame: "DataFrame", expression: str) -> int:
    first = frame.selectExpr(f"{expression} AS total").first()
    return int(first["total"] or 0) if first is not None else 0
