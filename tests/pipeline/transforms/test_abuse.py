"""What actors did, what is found in it and what follows: Spark and a plain loop over the same events agree."""

from collections import defaultdict
from typing import Any

import pytest

from tests.journal.build import NODE_ID, NOON_US, ONE_OF_EACH, traffic
from tests.pipeline.build import OTHER_NODE
from tests.pipeline.frames import PARTS, events_frame, plain_events, rows_of
from waystation.core.facts import Outcome
from waystation.journal.events import DeliveryFinished, Event, PacketJudged, Refused, WorkJudged
from waystation.pipeline.tables import GOLD_ABUSE_FINDINGS, GOLD_POLICY
from waystation.pipeline.transforms.abuse import activity, findings, policy
from waystation.pipeline.transforms.pow import work
from waystation.rules.abuse import Activity, Evidence, Measure, Rule, Severity, Suggestion, decide, judge

pytestmark = pytest.mark.spark

HOUR_US = 3_600_000_000
MINUTE_US = 60_000_000
AS_OF_US = NOON_US + 2 * HOUR_US
ACTORS = tuple(bytes([number]) * 16 for number in range(4))
RATES = {"rate_limited", "rate", "connect_rate", "verify_rate", "refusal_rate"}


def packet(
    at: int, verdict: str, author: bytes | None, n: int, detail: str | None = None, source: str = "client"
) -> Event:
    """Return packets with one verdict."""
    return PacketJudged(at, "strata", verdict, detail, author, None, source, 100 * n, n)


def hour_of_abuse(start: int, scale: int) -> list[Event]:
    """Return an hour in which every measure is met, by some far above its limit, and much that names nobody."""
    events: list[Event] = []
    for number, actor in enumerate(ACTORS):
        for minute in range(0, 60, 20):
            at, n = start + minute * MINUTE_US + number, scale * (number + 1) ** 2
            attempt = bytes([number, minute]) * 8
            events += [
                packet(at, "accepted", actor, 40 * n),
                packet(at + 1, "accepted", actor, n, source="peer"),
                packet(at + 2, "duplicate", actor, 80 * n),
                packet(at + 3, "duplicate", actor, 1_000 * n, source="peer"),
                packet(at + 4, "invalid_timestamp", actor, 5 * n, "too_old"),
                packet(at + 5, "invalid_timestamp", actor, 10_000, "future"),
                packet(at + 6, "rate_limited", actor, 9 * n, "trust_edges"),
                packet(at + 7, "duplicate", None, 10_000),
                Refused(at + 8, "strata", actor, "rate_limited", 20 * n),
                Refused(at + 9, "strata", None, "rate_limited", 10_000),
                Refused(at + 10, "merk", actor, "replayed_forward", 3 * n),
                Refused(at + 11, "bhumi", actor, "recipient_queue_full", 10_000),
                Refused(at + 12, "bhumi", None, "address_full", 100 * n, actor),
                Refused(at + 13, "bhumi", None, "connections_full", 10_000),
                DeliveryFinished(at + 14, "bhumi", attempt, actor, Outcome.BAD_CAPABILITY, None, 0, 4 * n),
                WorkJudged(at + 15, "lprp", actor, "lease", "too_few_bits", None, None, 3 * n),
                *(
                    WorkJudged(at + 16, "lprp", actor, "whitelist", "accepted", 16, 900)
                    for _ in range(3 * number * number)
                ),
                WorkJudged(at + 17, "lprp", None, "relay", "accepted", 16, 900),
            ]
    return events


TOLD = {
    NODE_ID: [
        *hour_of_abuse(NOON_US, 12),
        *hour_of_abuse(NOON_US + HOUR_US, 27),
        *traffic(3, NOON_US, 60),
        *ONE_OF_EACH,
    ],
    OTHER_NODE: hour_of_abuse(NOON_US + HOUR_US, 3),
}


def measures(row: dict[str, Any]) -> list[tuple[str, str | None, Measure]]:
    """Return what one row counts for: kind of actor, its reference and the measure."""
    attrs, told = row["attrs"] or {}, (row["kind"], row["outcome"])
    author, by_client = attrs.get("author_ref"), attrs.get("source") == "client"
    if told == ("packet_judged", "accepted"):
        return [("peer", author, Measure.KNOWN), *([("peer", author, Measure.PACKETS)] if by_client else [])]
    if row["kind"] == "packet_judged" and by_client:
        stale = row["outcome"] == "invalid_timestamp" and row["reason"] != "future"
        copies = row["outcome"] == "duplicate" or stale
        over = row["outcome"] == "rate_limited"
        return [("peer", author, Measure.COPIES)] if copies else [("peer", author, Measure.OVER_BUDGET)] if over else []
    if row["kind"] == "refused":
        if row["reason"] in {"address_full", "address_handshakes_full"}:
            return [("source", attrs.get("source_ref"), Measure.TURNED_AWAY)]
        replay = (
            [("peer", row["peer_ref"], Measure.REPLAYED)] if row["reason"] in {"not_newer", "replayed_forward"} else []
        )
        return [("peer", row["peer_ref"], Measure.LIMITED)] if row["reason"] in RATES else replay
    if told == ("delivery_finished", "bad_capability"):
        return [("peer", row["peer_ref"], Measure.SPENT)]
    if row["kind"] == "work_judged":
        if row["outcome"] != "accepted":
            return [("peer", row["peer_ref"], Measure.BAD_WORK)]
        return [] if attrs["work"] == "relay" else [("peer", row["peer_ref"], Measure.GRANTS)]
    return []


def plain_findings() -> dict[tuple[str, str, int], list[Any]]:
    """Count in a plain loop, and judge hour by hour."""
    hours: dict[tuple[str, str, int], dict[tuple[str, bytes, Measure], list[int]]] = defaultdict(dict)
    for row in plain_events(TOLD):
        for kind, ref, measure in measures(row):
            if ref is not None:
                key = (row["node_id"], row["protocol"], row["ts"] // HOUR_US * HOUR_US)
                attrs = row["attrs"] or {}
                times = int(attrs.get("n", attrs.get("tries", 1)))
                counted = hours[key].setdefault((kind, bytes.fromhex(ref), measure), [0, row["ts"], row["ts"]])
                counted[:] = [counted[0] + times, min(counted[1], row["ts"]), max(counted[2], row["ts"])]
    return {
        key: judge(Activity(kind, ref, measure, *counted) for (kind, ref, measure), counted in actors.items())
        for key, actors in hours.items()
    }


@PARTS
def test_findings_and_policy_are_those_of_plain_python(spark, parts: int) -> None:
    """Every finding has exact numbers and times however the frame is cut, and the policy follows from all of them."""
    events = events_frame(spark, TOLD).repartition(parts, "seq")
    found = findings(activity(events, work(events)))
    micros = [f"unix_micros({name}) {name}_us" for name in ("window_start", "first_at", "last_at", "expires_at")]
    names = ("node_id", "protocol", "window_start_us", "actor_kind", "actor_ref", "rule", "n", "limit", "first_at_us")
    rows = rows_of(
        found.selectExpr("*", *micros), *names, "last_at_us", "severity", "suggested_action", "expires_at_us"
    )
    wanted = [
        (
            *key,
            *each[:2],
            each.rule.value,
            *each[3:7],
            each.severity.value,
            each.action.value,
            key[2] + 25 * HOUR_US,
        )
        for key, several in plain_findings().items()
        for each in several
    ]

    assert rows == sorted(wanted, key=repr)
    assert {row[5] for row in rows} == {rule.value for rule in Rule}
    assert {row[10] for row in rows} == {level.value for level in Severity}
    assert found.columns == [*GOLD_ABUSE_FINDINGS.names(), "event_date"]

    told_node = [
        Evidence(*row[3:5], Rule(row[5]), row[2], Severity(row[10]), Suggestion(row[11]), row[12])
        for row in rows
        if row[0] == NODE_ID
    ]
    wanted_policy = [
        (*each[:2], each.action.value, each.amount, each.rule.value, each.evidence, each.mode)
        for each in decide(told_node, AS_OF_US, 24, "shadow")
    ]
    decided = policy(found, AS_OF_US, 24, "shadow")
    columns = ("node_id", "subject_kind", "subject_ref", "action", "amount", "rule", "evidence", "mode")
    got = [row[1:] for row in rows_of(decided, *columns) if row[0] == NODE_ID]

    assert got == sorted(wanted_policy, key=repr)
    assert {"rate", "block"} <= {row[2] for row in got}
    assert decided.columns == [*GOLD_POLICY.names(), "event_date"]
