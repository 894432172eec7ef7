"""What peers hold, on one frame for all cases."""

import datetime

import pytest

from tests.journal.build import DAY_US, NOON_US
from tests.pipeline.graphs import bronze, ref
from waystation.journal.events import MessageHeld
from waystation.pipeline.tables import SILVER_BSP_SYNC
from waystation.pipeline.transforms.bsp_sync import bsp_sync, malformed_word

pytestmark = pytest.mark.spark

NAMED = ref("p"), ref("g")
EVENTS = [
    MessageHeld(NOON_US + DAY_US, "bsp", *NAMED, ref("m"), 9, 1, 1, 1),
    MessageHeld(NOON_US, "bsp", *NAMED, ref("m"), 2, 300, 200, None),
    MessageHeld(NOON_US, "bsp", *NAMED, ref("m"), 3, 1, 1, 1),
    MessageHeld(NOON_US + 5, "bsp", *NAMED, ref("never"), 0, None, None, None),
]
ODD = [
    f'{{"ts":1,"seq":{9_000 + number},"protocol":"bsp","kind":"message_held","peer_ref":"{"a" * 32}","attrs":'
    f'{{"group_ref":"{"0" * 32}","message_ref":"{"1" * 32}",{attrs}}}}}'
    for number, attrs in enumerate(('"copies":"many"', '"copies":"1","sent_us":"-4"', '"offered_us":"1"'))
]


def test_first_word_counts(spark) -> None:
    """The first word of a peer is the row, its times counted back from it; malformed ones fall away."""
    events = bronze(spark, EVENTS, ODD)
    frame = bsp_sync(events)
    times = [f"unix_micros({name}_at) as {name}" for name in ("held", "offered", "requested", "sent")]
    rows = {bytes(row["message_ref"]): row for row in frame.selectExpr("*", *times).collect()}
    first, never = rows[ref("m")], rows[ref("never")]

    assert len(rows) == 2
    assert (first["held"], first["send_count"]) == (NOON_US, 2)
    assert (first["offered"], first["requested"], first["sent"]) == (NOON_US - 300, NOON_US - 200, None)
    assert (never["offered"], never["requested"], never["sent"], never["send_count"]) == (None, None, None, 0)
    assert first["event_date"] == datetime.date(2026, 5, 29)
    assert events.where(malformed_word()).count() == len(ODD)
    assert frame.columns == [*SILVER_BSP_SYNC.names(), "event_date"]
    assert all(dict(frame.dtypes)[column.name] == column.type for column in SILVER_BSP_SYNC.columns)
