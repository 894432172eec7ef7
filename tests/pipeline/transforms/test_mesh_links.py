"""Links by the hour: Spark and a plain loop agree, on one frame for all cases."""

import pytest

from tests.journal.build import DAY_US, NODE_ID, NOON_US
from tests.pipeline.graphs import HOUR_US, bronze, mesh_events, plain_links, ref
from waystation.journal.events import MeshLinkEnded
from waystation.pipeline.tables import SILVER_MESH_LINKS
from waystation.pipeline.transforms.mesh_links import SPAN_DAYS_MAX, malformed_link, mesh_links

pytestmark = pytest.mark.spark

LONG, EXACT, POINT = "aa" * 8, "bb" * 8, "cc" * 8
CASES = [
    MeshLinkEnded(NOON_US, "merk", ref("n"), EXACT, 1, 2 * HOUR_US, 1, 2, 3, 4),
    MeshLinkEnded(NOON_US + 5, "merk", ref("n"), POINT, 0, 0, 1, 2, 3, 4),
]
LONGER = MeshLinkEnded(NOON_US, "merk", ref("n"), LONG, 1, 40 * DAY_US, 1, 1, 1, 1)
ODD = [
    f'{{"ts":1,"seq":{9_000 + number},"protocol":"merk","kind":"mesh_link_ended",{rest}}}'
    for number, rest in enumerate(
        (
            '"attrs":{"duration_us":"1","frames_in":"1","frames_out":"1","bytes_in":"1","bytes_out":"1"}',
            '"relay_id":"UPPER","attrs":{"duration_us":"1","frames_in":"1","frames_out":"1","bytes_in":"1","bytes_out":"1"}',
            f'"relay_id":"{LONG}","attrs":{{"duration_us":"long"}}',
        )
    )
]
HOUR = NOON_US // HOUR_US


@pytest.fixture(scope="module")
def events(spark):
    """Give the cases, random links that overlap, and what is malformed."""
    return bronze(spark, [*CASES, LONGER, *mesh_events(3)], ODD)


@pytest.fixture(scope="module")
def rows(events):
    """Give microseconds, frames, bytes and ends by other node and hour."""
    found = mesh_links(events).selectExpr("*", "unix_micros(hour) as h").collect()
    assert {row["from_server"] for row in found} == {NODE_ID}
    names = ("up_us", "n_frames", "n_bytes", "n_ended")
    return {(row["to_server"], row["h"] // HOUR_US): tuple(row[name] for name in names) for row in found}


def test_spans_are_split_to_the_microsecond(rows) -> None:
    """Every hour has what a plain loop finds; time that two links share counts once."""
    found = {key: row for key, row in rows.items() if key[0] != LONG}

    assert found == plain_links([*CASES, *mesh_events(3)])


def test_end_belongs_to_its_own_hour(rows) -> None:
    """A link that ends on the hour fills the hour before; its end is in the next, in which it never stood."""
    assert [rows[EXACT, HOUR + step] for step in (-2, -1)] == [(HOUR_US, 0, 0, 0)] * 2
    assert rows[EXACT, HOUR] == (0, 3, 7, 1)
    assert rows[POINT, HOUR] == (0, 3, 7, 1)


def test_long_span_is_cut_to_its_last_days(rows) -> None:
    """A link that stood for longer than the limit has the hours of its last days."""
    hours = sorted(hour for other, hour in rows if other == LONG)

    assert hours == list(range(HOUR - SPAN_DAYS_MAX * 24, HOUR + 1))
    assert sum(row[0] for (other, _), row in rows.items() if other == LONG) == SPAN_DAYS_MAX * DAY_US


def test_malformed_events_fall_away(events, rows) -> None:
    """A link without the other node or without numbers has no row, and is told as malformed."""
    assert min(hour for _, hour in rows) > 0
    assert events.where(malformed_link()).count() == len(ODD)


def test_rows_have_the_declared_columns(events) -> None:
    """What comes out is the table's columns in their types, and the date."""
    types = dict(mesh_links(events).dtypes)

    assert list(types) == [*SILVER_MESH_LINKS.names(), "event_date"]
    assert all(types[column.name] == column.type for column in SILVER_MESH_LINKS.columns)
