"""Replays the observations of each relay in time order and returns its state, its state changes and its score.

``jobs.qos`` calls it. The replay uses the client's own rules (``rules.relay_history``). Observations at equal times are
ordered by id.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.tables import GOLD_RELAY_SCORES, GOLD_RELAY_TRANSITIONS
from waystation.pipeline.transforms.relays import QUANTILES
from waystation.rules.consistency import wilson_low
from waystation.rules.histogram import BUCKETS_COUNT, THRESHOLDS_US
from waystation.rules.relay_history import History, fold
from waystation.rules.relay_observation import Observation, Probe
from waystation.rules.relay_state import Incident

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["relay_histories", "relay_scores", "relay_transitions"]

_US_PER_S: Final = 1_000_000
_DIGITS: Final = 6
_FOLDED: Final = (
    "relay_id string, state string, since_s bigint, reason string, score double, n_obs bigint, "
    "transitions array<struct<at_s: bigint, before: string, after: string, reason: string, score: double, "
    "n_obs: bigint>>"
)
_CHANGE: Final = pa.struct(
    [
        ("at_s", pa.int64()),
        ("before", pa.string()),
        ("after", pa.string()),
        ("reason", pa.string()),
        ("score", pa.float64()),
        ("n_obs", pa.int64()),
    ]
)
_FOLDED_SCHEMA: Final = pa.schema(
    [
        ("relay_id", pa.string()),
        ("state", pa.string()),
        ("since_s", pa.int64()),
        ("reason", pa.string()),
        ("score", pa.float64()),
        ("n_obs", pa.int64()),
        ("transitions", pa.list_(_CHANGE)),
    ]
)
_OBSERVED: Final = ("event_id", "probe_kind", "outcome", "incident", "latency_us", "bytes", "duration_us", "n")
_PROBES: Final = {probe.value: probe for probe in Probe}
_INCIDENTS: Final[dict[str | None, Incident | None]] = {None: None} | {each.value: each for each in Incident}
_SCORED: Final = [column for column in GOLD_RELAY_SCORES.columns if column.name not in ("as_of", "since")]
_SCORED_DDL: Final = ", ".join(f"`{column.name}` {column.type}" for column in _SCORED) + ", since_s bigint"
_SCORED_SCHEMA: Final = pa.schema(
    [*(GOLD_RELAY_SCORES.arrow_schema().field(column.name) for column in _SCORED), ("since_s", pa.int64())]
)


def relay_histories(probes: "DataFrame", until_s: int) -> "DataFrame":
    """Fold what was observed of each relay before a moment, oldest first, equal times by ``event_id``.

    Takes ``silver.probes``. Gives ``relay_id: string``, ``state: string``, ``since_s: bigint``, ``reason: string``
    (null for a relay that was never moved), ``score: double``, ``n_obs: bigint``, and ``transitions``, an array with
    one struct for each change of state.
    """

    def fold_one(table: pa.Table) -> pa.Table:
        history = fold(_observations(table), until_s)
        return pa.Table.from_pylist([_folded(table["relay_id"][0].as_py(), history)], _FOLDED_SCHEMA)

    observed = probes.select("relay_id", F.unix_micros("ts").alias("at_us"), *_OBSERVED)
    return observed.groupBy("relay_id").applyInArrow(fold_one, _FOLDED)


def relay_transitions(histories: "DataFrame") -> "DataFrame":
    """List every change of state.

    Takes what ``relay_histories`` gives. Gives the columns of ``gold.relay_transitions`` and ``event_date: date``.
    """
    each = histories.select("relay_id", F.explode("transitions").alias("change")).select("relay_id", "change.*")
    rows = each.withColumn("at", F.timestamp_seconds("at_s"))
    return rows.select(*GOLD_RELAY_TRANSITIONS.names(), F.to_date("at").alias("event_date"))


def relay_scores(histories: "DataFrame", week: "DataFrame", until_s: int) -> "DataFrame":
    """Put together what is known of each relay at a moment.

    Takes what ``relay_histories`` and ``transforms.relays.relay_week`` give; a relay without a row in the week has no
    ratios. Gives the columns of ``gold.relay_scores`` and ``event_date: date``, the date of the moment.
    """
    joined = histories.drop("transitions").join(week, "relay_id", "left")
    rows = joined.mapInArrow(_score_batches, _SCORED_DDL)
    as_of = F.timestamp_seconds(F.lit(until_s))
    dated = rows.withColumn("as_of", as_of).withColumn("since", F.timestamp_seconds("since_s"))
    return dated.select(*GOLD_RELAY_SCORES.names(), F.to_date("as_of").alias("event_date"))


def _observations(table: pa.Table) -> Iterator[Observation]:
    ordered = table.sort_by([("at_us", "ascending"), ("event_id", "ascending")])
    columns = [ordered[name].to_pylist() for name in ("at_us", *_OBSERVED)]
    for at_us, event_id, probe, outcome, incident, latency_us, size, duration_us, times in zip(*columns, strict=True):
        known, violation = _PROBES[probe], _INCIDENTS[incident]
        yield Observation(at_us, event_id, known, outcome, violation, latency_us, size, duration_us, times)


def _folded(relay_id: str, history: History) -> dict[str, Any]:
    return {
        "relay_id": relay_id,
        "state": history.standing.state.value,
        "since_s": history.standing.since_s,
        "reason": None if history.reason is None else history.reason.value,
        "score": round(history.explanation.score, _DIGITS),
        "n_obs": history.counts.observations,
        "transitions": [
            {
                "at_s": each.at_s,
                "before": each.before.value,
                "after": each.after.value,
                "reason": each.reason.value,
                "score": round(each.score, _DIGITS),
                "n_obs": each.observations,
            }
            for each in history.transitions
        ],
    }


def _score_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pylist([_scored(row) for row in batch.to_pylist()], _SCORED_SCHEMA)


def _scored(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its ratios; counts are None for a relay that the week has nothing of."""
    asked = (row["n_known_ok"] or 0) + (row["n_known_missing"] or 0)
    return {
        **{name: row[name] for name in ("relay_id", "n_obs", "score", "state", "since_s", "reason")},
        **{f"{name}_us": _upper_edge_us(row[name]) for name in QUANTILES},
        "uptime_ratio": _ratio(row["up_us"], row["wanted_us"]),
        "connect_ratio": _ratio(row["n_connect_ok"], row["n_connect"]),
        "throughput_bps": row["transferred_bytes"] * _US_PER_S // row["transfer_us"] if row["transfer_us"] else None,
        "integrity_faults": (row["n_bad_sig"] or 0) + (row["n_tampered"] or 0),
        "consistency_ratio": _ratio(row["n_known_ok"], asked),
        "consistency_low": wilson_low(row["n_known_ok"], asked) if asked else None,
    }


def _ratio(part: int, whole: int | None) -> float | None:
    return round(part / whole, _DIGITS) if whole else None


def _upper_edge_us(bucket: int | None) -> int | None:
    """Return the last microsecond of a bucket; observations are cut to far below the last bucket, which has none."""
    if bucket is None:
        return None
    assert bucket < BUCKETS_COUNT - 1
    return THRESHOLDS_US[bucket + 1] - 1
