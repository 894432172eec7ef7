"""What a machine carried by the day: Spark and a plain loop over the same samples agree."""

import datetime
import random
from collections import defaultdict
from typing import Any

import pytest

from tests.journal.build import DAY_US, NODE_ID, NOON_US, traffic
from tests.pipeline.build import OTHER_NODE, date_of
from tests.pipeline.frames import PARTS, Told, events_frame, plain_events, rows_of
from waystation.journal.events import Event, NodeSampled, WorkJudged
from waystation.pipeline.tables import GOLD_CAPACITY
from waystation.pipeline.transforms.capacity import capacity
from waystation.pipeline.transforms.pow import work
from waystation.rules.capacity import days_to_full, growth

pytestmark = pytest.mark.spark

DISK_GIB = 3


def days_of_samples(seed: int, days: list[int], per_day: int) -> list[Event]:
    """Return samples of some days, work beside them, and two samples at one moment."""
    rng = random.Random(seed)
    events: list[Event] = []
    for day in days:
        for minute in range(per_day):
            at = NOON_US + day * DAY_US + minute * 60_000_000
            sizes = (day * 50_000_000 + rng.randrange(10_000_000), rng.randrange(1_000))
            events.append(NodeSampled(at, *(rng.randrange(10_000) for _ in range(6)), *sizes))
            if minute % 10 == 0:
                events.append(WorkJudged(at, "lprp", b"w" * 16, "lease", "accepted", rng.randrange(27), 5))
                events.append(WorkJudged(at + 1, "lprp", None, "relay", "too_few_bits", None, None, 3))
    return events


TOLD: Told = {
    NODE_ID: [*days_of_samples(1, [0, 1, 2, 5, 6, 8], 120), *traffic(2, NOON_US, 20)],
    OTHER_NODE: [
        *days_of_samples(2, [3], 1),
        WorkJudged(NOON_US + 4 * DAY_US, "lprp", b"w" * 16, "lease", "accepted", 60, 5),
        WorkJudged(NOON_US + 4 * DAY_US + 1, "lprp", b"w" * 16, "lease", "accepted", None, 5),
    ],
}


def plain(told: Told) -> list[tuple[Any, ...]]:
    """Sum up in a plain loop."""
    samples: dict[tuple[str, datetime.date], list[dict[str, int]]] = defaultdict(list)
    judged: dict[tuple[str, datetime.date], list[tuple[str, int, int]]] = defaultdict(list)
    for row in plain_events(told):
        key = (row["node_id"], date_of(row["ts"]))
        if row["kind"] == "node_sampled":
            samples[key].append({name: int(value) for name, value in row["attrs"].items()})
        if row["kind"] == "work_judged":
            attrs = row["attrs"]
            judged[key].append((row["outcome"], int(attrs.get("bits", 0)), int(attrs.get("n", 1))))
    stores = {key: rows[-1]["store_bytes"] + rows[-1]["journal_bytes"] for key, rows in samples.items()}
    return sorted([_plain_day(key, samples[key], judged[key], stores) for key in samples], key=repr)


def _plain_day(key, samples, judged, stores) -> tuple[Any, ...]:
    node, day = key
    week = [(day - datetime.timedelta(days=ago)) for ago in range(6, -1, -1)]
    points = [(each.toordinal(), stores[node, each]) for each in week if (node, each) in stores]
    slope = growth(points)
    minutes = sorted(sample["messages"] for sample in samples)
    p99 = minutes[max(0, -(-len(minutes) * 99 // 100) - 1)]
    used = stores[key]
    return (
        *(node, day, max(sample["connections"] for sample in samples), sum(minutes), round(p99 / 60, 6)),
        *(sum(sample[name] for sample in samples) for name in ("bytes_in", "bytes_out", "cpu_us")),
        *(max(sample["memory_bytes"] for sample in samples), used, slope),
        days_to_full(used, slope, DISK_GIB),
        sum(n for verdict, _, n in judged if verdict == "accepted"),
        sum(n for verdict, _, n in judged if verdict != "accepted"),
        float(sum(n * 2 ** min(bits, 40) for verdict, bits, n in judged if verdict == "accepted")),
    )


@PARTS
def test_days_are_those_of_plain_python(spark, parts: int) -> None:
    """Sums, peaks, rank, last size, slope and paid hashes are exact, however the frame is cut.

    The other node's second day has only work: what its machine carried is not known, and no zero says it.
    """
    events = events_frame(spark, TOLD).repartition(parts, "seq")
    frame = capacity(events, work(events), DISK_GIB)
    found = rows_of(frame, *GOLD_CAPACITY.names())

    assert found == plain(TOLD)
    assert frame.columns == [*GOLD_CAPACITY.names(), "event_date"]
    assert {row[11] is None for row in found} == {True, False}
    assert len(found) == 7
