"""What rules would have refused: Spark and a plain loop over the same events agree."""

import random
from collections import Counter
from typing import Any

import pytest

from tests.journal.build import NODE_ID, NOON_US, ONE_OF_EACH, traffic
from tests.pipeline.frames import PARTS, Told, events_frame, plain_events, rows_of
from waystation.core.facts import Outcome
from waystation.journal.events import DeliveryFinished, Event, PacketJudged, WorkJudged
from waystation.pipeline.transforms.backtest import BASE_BITS, RULES_DDL, accepted_items, tried

pytestmark = pytest.mark.spark

ACTORS = tuple(bytes([number]) * 16 for number in range(3))
MINUTE_US = 60_000_000
RULES = [
    (0, "peer", ACTORS[0], "block", 0),
    (1, "peer", ACTORS[0], "rate", 4),
    (2, "peer", ACTORS[1], "rate", 1_000),
    (3, "peer", ACTORS[1], "pow", 3),
    (4, "peer", b"?" * 16, "block", 0),
    (5, "source", ACTORS[2], "block", 0),
]


def minutes(seed: int) -> list[Event]:
    """Return some minutes of three actors, with moments that several events share, and what was not accepted."""
    rng = random.Random(seed)
    events: list[Event] = []
    for number in range(150):
        at, actor = NOON_US + rng.randrange(8) * MINUTE_US // 2, rng.choice(ACTORS)
        verdict = rng.choice(["accepted", "accepted", "duplicate"])
        result, bits = rng.choice([("accepted", rng.randrange(14, 26)), ("too_few_bits", None)])
        outcome, latency = rng.choice([(Outcome.OK, 5), (Outcome.CACHED, None), (Outcome.OFFLINE, None)])
        events += [
            PacketJudged(at, "strata", verdict, None, actor, None, "client", 9, rng.randrange(1, 3)),
            WorkJudged(at, "lprp", actor, rng.choice(["lease", "whitelist"]), result, bits, 9),
            DeliveryFinished(at, "bhumi", number.to_bytes(16), actor, outcome, latency, 9, rng.randrange(1, 4)),
        ]
    return events


TOLD: Told = {NODE_ID: [*minutes(5), *traffic(1, NOON_US, 30), *ONE_OF_EACH]}


def accepted(row: dict[str, Any]) -> tuple[str | None, str, int, int] | None:
    """Return of whom, what, how many and with how many bits above the base, or None for what was not accepted."""
    attrs, told = row["attrs"] or {}, (row["kind"], row["outcome"])
    if told == ("packet_judged", "accepted"):
        return attrs.get("author_ref"), "packet", int(attrs.get("n", 1)), 99
    if told == ("work_judged", "accepted"):
        return row["peer_ref"], "work", 1, int(attrs["bits"]) - BASE_BITS[attrs["work"]]
    if row["kind"] == "delivery_finished" and row["outcome"] in {"ok", "cached"}:
        return row["peer_ref"], "delivery", int(attrs.get("tries", 1)) if row["latency_us"] is None else 1, 99
    return None


def plain(told: Told) -> Counter[tuple[int, str, str]]:
    """Count accepted and refused ones in a plain loop; beyond a rate it matters only how many, not which."""
    counts: Counter[tuple[int, str, str]] = Counter()
    by_minute: Counter[tuple[int, int]] = Counter()
    for row in plain_events(told):
        for number, kind, ref, action, amount in RULES:
            item = accepted(row)
            if item is None or kind != "peer" or item[0] != ref.hex():
                continue
            counts[number, "accepted", item[1]] += item[2]
            by_minute[number, row["ts"] // MINUTE_US] += item[2]
            if action == "block" or (action == "pow" and item[3] < amount):
                counts[number, "refused", "all"] += item[2]
    for (number, _), n in by_minute.items():
        if RULES[number][3] == "rate":
            counts[number, "refused", "all"] += max(0, n - RULES[number][4])
    return +counts


@PARTS
def test_counts_are_those_of_plain_python(spark, parts: int) -> None:
    """Blocked is all, a rate cuts each minute, and work counts by its bits, however the frame is cut."""
    rules = spark.createDataFrame(RULES, RULES_DDL)
    items = accepted_items(events_frame(spark, TOLD).repartition(parts, "seq"), BASE_BITS)
    told = rows_of(tried(items, rules), "number", "item", "n", "refused")
    counts: Counter[tuple[int, str, str]] = Counter()
    for number, item, n, refused in told:
        counts[number, "accepted", item] += n
        counts[number, "refused", "all"] += refused

    assert +counts == plain(TOLD)
    assert {number for number, *_ in told} == {0, 1, 2, 3}
    assert all(counts[number, "refused", "all"] for number in (0, 1, 3))
    assert not counts[2, "refused", "all"]
