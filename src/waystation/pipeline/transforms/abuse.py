"""Abuse analysis in Spark: events become hourly counts per actor, findings above the limits, and rules for nodes.

``jobs.abuse`` calls it. The limits and decisions are those of ``rules.abuse``. Inputs are ``bronze.events`` and
``silver.pow``.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from waystation.pipeline.tables import GOLD_ABUSE_FINDINGS, GOLD_POLICY
from waystation.pipeline.transforms.attributes import attribute, number_or_none
from waystation.rules.abuse import (
    FINDING_HOURS,
    RULE_VERSION,
    Activity,
    Evidence,
    Measure,
    Rule,
    Severity,
    Suggestion,
    decide,
    judge,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["activity", "findings", "policy"]

_REF: Final = "^[0-9a-f]{32}$"
_REPLAYS: Final = ("not_newer", "replayed_forward")
_RATES: Final = ("rate_limited", "rate", "connect_rate", "verify_rate", "refusal_rate")
"""Reasons that name the sender. Bhumi's full queues name the recipient, so they are none of these."""

_AT_ACCEPT: Final = ("address_full", "address_handshakes_full")
_WINDOW: Final = ("node_id", "protocol", "window_start")
_ACTOR: Final = ("actor_kind", "actor_ref", "measure")
_FINDINGS_DDL: Final = (
    "node_id string, protocol string, window_us bigint, actor_kind string, actor_ref binary, rule string, n bigint, "
    "limit bigint, first_us bigint, last_us bigint, severity string, suggested_action string"
)
_POLICY_DDL: Final = (
    "node_id string, subject_kind string, subject_ref binary, action string, amount bigint, rule string, "
    "evidence bigint, from_us bigint, until_us bigint, mode string"
)


def activity(events: "DataFrame", work: "DataFrame") -> "DataFrame":
    """Count each ``rules.abuse.Measure`` by node, protocol, hour and actor.

    Takes ``bronze.events`` and ``silver.pow``. Gives ``node_id``, ``protocol: string``, ``window_start: timestamp``,
    ``actor_kind: string``, ``actor_ref: binary``, ``measure: string``, ``n: bigint``, ``first_at`` and
    ``last_at: timestamp``. What names no actor falls away.
    """
    reported = _of_packets(events).unionByName(_of_others(events)).unionByName(_of_work(work))
    named = reported.where(F.col("actor_ref").isNotNull() & (F.col("n") > 0))
    hours = named.withColumn("window_start", F.date_trunc("hour", "ts"))
    return hours.groupBy(*_WINDOW, *_ACTOR).agg(
        F.sum("n").alias("n"), F.min("ts").alias("first_at"), F.max("ts").alias("last_at")
    )


def findings(activities: "DataFrame") -> "DataFrame":
    """Return what ``rules.abuse.judge`` finds in every hour of every node and protocol.

    Takes what ``activity`` gives. Gives the columns of ``gold.abuse_findings`` and ``event_date: date``.
    """
    counted = activities.select(
        *("node_id", "protocol", *_ACTOR, "n"),
        F.unix_micros("window_start").alias("window_us"),
        F.unix_micros("first_at").alias("first_us"),
        F.unix_micros("last_at").alias("last_us"),
    )
    found = counted.groupBy("node_id", "protocol", "window_us").applyInArrow(_judge, _FINDINGS_DDL)
    hours = F.lit(FINDING_HOURS + 1) * F.lit(3_600_000_000)
    dated = found.select(
        "*",
        F.lit(RULE_VERSION).alias("rule_version"),
        F.timestamp_micros("window_us").alias("window_start"),
        F.timestamp_micros("first_us").alias("first_at"),
        F.timestamp_micros("last_us").alias("last_at"),
        F.timestamp_micros(F.col("window_us") + hours).alias("expires_at"),
    )
    return dated.select(*GOLD_ABUSE_FINDINGS.names(), F.to_date("window_start").alias("event_date"))


def policy(found: "DataFrame", as_of_us: int, hours: int, mode: str) -> "DataFrame":
    """Return what ``rules.abuse.decide`` makes of all findings, node by node.

    Takes ``gold.abuse_findings``. Gives the columns of ``gold.policy`` and ``event_date: date``, the date of ``as_of``.
    """
    evidence = found.where(F.col("suggested_action") != Suggestion.NONE.value).select(
        *("node_id", "actor_kind", "actor_ref", "rule", "severity", "suggested_action"),
        F.unix_micros("window_start").alias("window_us"),
        F.unix_micros("expires_at").alias("expires_us"),
    )
    decided = evidence.groupBy("node_id").applyInArrow(_decider(as_of_us, hours, mode), _POLICY_DDL)
    rows = decided.select(
        "*",
        F.timestamp_micros(F.lit(as_of_us)).alias("as_of"),
        F.timestamp_micros("from_us").alias("valid_from"),
        F.timestamp_micros("until_us").alias("valid_until"),
        F.lit(RULE_VERSION).alias("rule_version"),
    )
    return rows.select(*GOLD_POLICY.names(), F.to_date("as_of").alias("event_date"))


def _of_packets(events: "DataFrame") -> "DataFrame":
    """Give what packets say of their authors; an accepted one of a client counts for two measures."""
    author = attribute("author_ref")
    by_client, accepted = attribute("source") == "client", F.col("outcome") == "accepted"
    stale = (F.col("outcome") == "invalid_timestamp") & ~F.coalesce(F.col("reason") == "future", F.lit(False))
    measures = (
        F.when(accepted & by_client, _measures(Measure.KNOWN, Measure.PACKETS))
        .when(accepted, _measures(Measure.KNOWN))
        .when(by_client & ((F.col("outcome") == "duplicate") | stale), _measures(Measure.COPIES))
        .when(by_client & (F.col("outcome") == "rate_limited"), _measures(Measure.OVER_BUDGET))
    )
    packets = events.where((F.col("kind") == "packet_judged") & author.rlike(_REF))
    return _rows_of(packets, F.explode(measures), F.unhex(author))


def _of_others(events: "DataFrame") -> "DataFrame":
    """Give what was refused, by sender or network, and spent capabilities, by recipient."""
    refused, source = F.col("kind") == "refused", attribute("source_ref")
    finished = (F.col("kind") == "delivery_finished") & (F.col("outcome") == "bad_capability")
    at_accept = refused & F.col("reason").isin(*_AT_ACCEPT) & source.rlike(_REF)
    measure = (
        F.when(at_accept, Measure.TURNED_AWAY.value)
        .when(refused & F.col("reason").isin(*_REPLAYS), Measure.REPLAYED.value)
        .when(refused & F.col("reason").isin(*_RATES), Measure.LIMITED.value)
        .when(finished, Measure.SPENT.value)
    )
    reported = events.where(measure.isNotNull())
    kind = F.when(F.col("reason").isin(*_AT_ACCEPT), "source").otherwise("peer")
    actor = F.when(at_accept, F.unhex(source)).otherwise(F.col("peer_ref"))
    return _rows_of(reported, measure, actor, kind)


def _of_work(work: "DataFrame") -> "DataFrame":
    accepted = F.col("result") == "accepted"
    measure = F.when(~accepted, Measure.BAD_WORK.value).when(F.col("work") != "relay", Measure.GRANTS.value)
    return work.where(measure.isNotNull()).select(
        *("node_id", "protocol"),
        F.col("judged_at").alias("ts"),
        F.lit("peer").alias("actor_kind"),
        F.col("worker_ref").alias("actor_ref"),
        measure.alias("measure"),
        "n",
    )


def _rows_of(events: "DataFrame", measure: "Column", actor: "Column", kind: "Column | None" = None) -> "DataFrame":
    times = F.coalesce(number_or_none("n"), number_or_none("tries"), F.lit(1))
    return events.select(
        *("node_id", "protocol", "ts"),
        (F.lit("peer") if kind is None else kind).alias("actor_kind"),
        actor.alias("actor_ref"),
        measure.alias("measure"),
        times.alias("n"),
    )


def _measures(*measures: Measure) -> "Column":
    return F.array(*(F.lit(measure.value) for measure in measures))


def _judge(key: "tuple[pa.Scalar, ...]", table: pa.Table) -> pa.Table:
    node_id, protocol, window_us = (scalar.as_py() for scalar in key)
    activities = [
        Activity(
            row["actor_kind"], row["actor_ref"], Measure(row["measure"]), row["n"], row["first_us"], row["last_us"]
        )
        for row in table.to_pylist()
    ]
    rows = [
        {
            "node_id": node_id,
            "protocol": protocol,
            "window_us": window_us,
            **found._asdict(),
            "rule": found.rule.value,
            "severity": found.severity.value,
            "suggested_action": found.action.value,
        }
        for found in judge(activities)
    ]
    return pa.Table.from_pylist(rows, _arrow(_FINDINGS_DDL))


def _decider(as_of_us: int, hours: int, mode: str) -> Callable[["tuple[pa.Scalar, ...]", pa.Table], pa.Table]:
    def decide_node(key: "tuple[pa.Scalar, ...]", table: pa.Table) -> pa.Table:
        evidence = [
            Evidence(
                *(row["actor_kind"], row["actor_ref"], Rule(row["rule"]), row["window_us"]),
                *(Severity(row["severity"]), Suggestion(row["suggested_action"]), row["expires_us"]),
            )
            for row in table.to_pylist()
        ]
        rows = [
            {
                "node_id": key[0].as_py(),
                "from_us": one.valid_from_us,
                "until_us": one.valid_until_us,
                **one._asdict(),
                "action": one.action.value,
                "rule": one.rule.value,
            }
            for one in decide(evidence, as_of_us, hours, mode)
        ]
        return pa.Table.from_pylist(rows, _arrow(_POLICY_DDL))

    return decide_node


def _arrow(ddl: str) -> pa.Schema:
    types = {"string": pa.string(), "binary": pa.binary(), "bigint": pa.int64()}
    pairs = (column.split(" ") for column in ddl.split(", "))
    return pa.schema([pa.field(name, types[kind]) for name, kind in pairs])
