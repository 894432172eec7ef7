"""What each relay lacks: Spark and the pure rule over the same packets agree."""

import datetime
import random
from collections import defaultdict

import pytest

from tests.journal.build import DAY_US, NOON_US
from tests.pipeline.frames import PARTS, rows_of
from waystation.pipeline.tables import GOLD_CONSISTENCY, SILVER_PACKET_SEEN
from waystation.pipeline.transforms.consistency import consistency
from waystation.rules.consistency import WINDOW_DAYS, Behaviour, Sighting, Terms, tally

pytestmark = pytest.mark.spark

NODES = "abcde"
DAYS = 10
HOUR_US = 3_600_000_000
TERMS = Terms(2, HOUR_US, NOON_US + DAYS * DAY_US - 2 * HOUR_US)
Seen = tuple[bytes, str, str, int | None, int]
"""Packet, node, content type, last second, when first seen there in microseconds."""


def sightings() -> list[Seen]:
    """Return ten days: one relay drops a tenth, one a type by policy, one was away, one came late to it all."""
    rng = random.Random(7)
    seen: list[Seen] = []
    for number in range(900):
        packet, born = rng.randbytes(32), NOON_US + rng.randrange(DAYS * DAY_US)
        kind = rng.choice(["POST", "POST", "MESSAGE", "RARE"])
        last = (born // 1_000_000) + rng.choice([600, 3_600, 7_200]) if number % 5 == 0 else None
        for node in NODES:
            day = (born - NOON_US) // DAY_US
            dropped = (node == "a" and rng.random() < 0.1) or (node == "b" and kind == "MESSAGE")
            away = (node == "c" and day in {3, 4}) or (node == "d" and day < 5) or (node == "e" and rng.random() < 0.6)
            if not (dropped or away or (kind == "RARE" and node == "a" and day > 1)):
                seen.append((packet, node, kind, last, born + rng.randrange(HOUR_US)))
    return seen


def day_of(at_us: int) -> int:
    """Return the number of the UTC day."""
    return at_us // DAY_US


def plain(seen: list[Seen]) -> list[tuple]:
    """Compare in plain loops over the pure rule."""
    copies = defaultdict(list)
    for row in seen:
        copies[row[0]].append(row)
    packets = [
        Sighting(packet, rows[0][2], rows[0][3], min(row[4] for row in rows), frozenset(row[1] for row in rows))
        for packet, rows in copies.items()
    ]
    result = []
    for node in NODES:
        for day in {day_of(row[4]) for row in seen if row[1] == node}:
            reach = range(day - WINDOW_DAYS + 1, day + 1)
            types = {row[2] for row in seen if row[1] == node and day_of(row[4]) in reach}
            behaviour = Behaviour(node, types, min(row[4] for row in seen if row[1] == node))
            told = tally([packet for packet in packets if day_of(packet.first_seen_us) == day], behaviour, TERMS)
            peers = {row[1] for row in seen if day_of(row[4]) == day} - {node}
            date = datetime.date(1970, 1, 1) + datetime.timedelta(days=day)
            counts = (told.n_expected, told.n_served, told.n_expected - told.n_served)
            result.append((node, date, *counts, *told.ratio, len(peers), list(told.suspicious)))
    return sorted(result, key=repr)


@PARTS
def test_counts_and_bounds_are_those_of_the_rule(spark, parts: int) -> None:
    """Each relay and day has the rule's counts, ratio, bounds and missing packets, however the frame is cut."""
    seen = sightings()
    rows = [
        (packet, node, "did:a", kind, 7, last, datetime.datetime.fromtimestamp(at / 1e6, datetime.UTC), 1)
        for packet, node, kind, last, at in ((*row[:4], row[4] // 1_000_000 * 1_000_000) for row in seen)
    ]
    frame = spark.createDataFrame(rows, SILVER_PACKET_SEEN.row_ddl())
    compared = consistency(frame.repartition(parts, "packet_id"), TERMS)
    told = rows_of(compared, *GOLD_CONSISTENCY.names())
    found = sorted([(*row[:-1], [bytes(each) for each in row[-1]]) for row in told], key=repr)
    wanted = plain([(*row[:4], row[4] // 1_000_000 * 1_000_000) for row in seen])

    assert found == wanted
    assert compared.columns == [*GOLD_CONSISTENCY.names(), "event_date"]
    assert sum(row[4] for row in wanted if row[0] == "d") < 15  # it came on the fifth day, and was asked from then on
    assert any(len(row[-1]) == 20 < row[4] for row in wanted)
    assert any(row[5] is not None for row in wanted)
    assert any(row[5] is None for row in wanted)
