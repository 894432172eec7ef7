"""Messages of groups: Spark and a plain loop agree, on one frame for all cases."""

import datetime

import pytest

from tests.journal.build import DAY_US, NOON_US
from tests.pipeline.graphs import bronze, group_events, plain_messages, ref
from waystation.journal.events import MessageChanged, MessageStored
from waystation.pipeline.tables import SILVER_BSP_MESSAGES
from waystation.pipeline.transforms.bsp_messages import bsp_messages, malformed_message

pytestmark = pytest.mark.spark

GROUP = ref("cases")
NOON, NEXT_NOON = datetime.date(2026, 5, 29), datetime.date(2026, 5, 30)
CASES = [
    # Twice stored, as after a restart; depends on two, one of them named twice; changed at the same moment, then later.
    MessageStored(NOON_US + 9, "bsp", None, "waiting", 1, GROUP, ref("whole"), b"", 1, 0),
    MessageStored(NOON_US, "bsp", None, "waiting", 64, GROUP, ref("whole"), ref("z") + ref("a") + ref("z"), 7, 0),
    MessageChanged(NOON_US, "bsp", "delivered", None, GROUP, ref("whole"), 5),
    MessageChanged(NOON_US + DAY_US, "bsp", "deleted", None, GROUP, ref("whole"), 0),
    MessageChanged(NOON_US + DAY_US, "bsp", "invalid", "unparsable", GROUP, ref("lost"), 0),
    MessageStored(NOON_US, "bsp", None, "invalid", 1, GROUP, ref("unexplained"), b"", 1, 0),
]
ODD = [
    '{"ts":1,"seq":9000,"protocol":"bsp","kind":"message_stored","outcome":"waiting","attrs":{%s}}' % attrs  # noqa: UP031
    for attrs in (
        f'"group_ref":"{"0" * 32}","message_ref":"{"1" * 32}","dependency_refs":"{"2" * 33}"',
        f'"group_ref":"{"0" * 32}","message_ref":"{"1" * 32}"',
        f'"group_ref":"{"0" * 32}","message_ref":"odd","dependency_refs":""',
        f'"group_ref":"{"0" * 32}","message_ref":"{"1" * 32}","dependency_refs":"","order":"-1"',
    )
]
ODD = [line.replace("9000", str(9_000 + number)) for number, line in enumerate(ODD)]
ODD.append(ODD[0].replace("9000", "9010").replace('"waiting"', '"gossip"').replace("2" * 33, ""))


@pytest.fixture(scope="module")
def events(spark):
    """Give the cases, random groups, and what is malformed."""
    return bronze(spark, [*CASES, *group_events(1)], ODD)


@pytest.fixture(scope="module")
def rows(events):
    """Give the rows by group and message, times in microseconds."""
    frame = bsp_messages(events)
    found = frame.selectExpr("*", "unix_micros(stored_at) as s", "unix_micros(changed_at) as c").collect()
    return {(bytes(row["group_ref"]), bytes(row["message_ref"])): row for row in found}


def test_rows_are_those_of_a_plain_loop(rows) -> None:
    """Arrival, last state and dependencies of every message are what reading the events in order gives."""
    names = ("created_ms", "size", "delivery_order", "state", "reason")
    found = {
        key: {
            **{name: row[name] for name in names},
            "dependency_refs": [bytes(each) for each in row["dependency_refs"]],
            "stored_at": row["s"],
            "changed_at": row["c"],
        }
        for key, row in rows.items()
    }

    assert found == plain_messages([*CASES, *group_events(1)])


def test_first_arrival_and_last_state_count(rows) -> None:
    """A row is dated by the first arrival, and tells the last state and the order it once had."""
    whole, lost = rows[GROUP, ref("whole")], rows[GROUP, ref("lost")]

    assert (whole["size"], whole["state"], whole["delivery_order"], whole["event_date"]) == (64, "deleted", 5, NOON)
    assert [bytes(each) for each in whole["dependency_refs"]] == [ref("a"), ref("z")]
    assert (lost["s"], lost["reason"], lost["event_date"]) == (None, "unparsable", NEXT_NOON)
    assert lost["dependency_refs"] == []


def test_malformed_events_fall_away(events, rows) -> None:
    """Half a reference, none at all, an unknown state, or a number that is none: no row, and told as malformed."""
    assert bytes(16) not in {group for group, _ in rows}
    assert events.where(malformed_message()).count() == len(ODD)


def test_rows_have_the_declared_columns(events) -> None:
    """What comes out is the table's columns in their types, and the date."""
    types = dict(bsp_messages(events).dtypes)

    assert list(types) == [*SILVER_BSP_MESSAGES.names(), "event_date"]
    assert all(types[column.name] == column.type for column in SILVER_BSP_MESSAGES.columns)
