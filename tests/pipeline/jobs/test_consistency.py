"""From archives of several nodes to what each lacks."""

import dataclasses
import datetime

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from tests.journal.build import DAY_US, NOON_US
from tests.pipeline.build import archive_bytes, archived, context_of, put
from tests.pipeline.frames import rows_of
from waystation.journal.segment import SegmentName
from waystation.pipeline.jobs.consistency import compare_relays
from waystation.pipeline.jobs.ingest import ARCHIVE, ingest
from waystation.pipeline.lake import Lake
from waystation.pipeline.tables import GOLD_CONSISTENCY, SILVER_PACKET_SEEN

pytestmark = pytest.mark.spark

NODES = ("aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb", "cccccccccccccccc")
LACKS = range(5, 15)
FIRST = datetime.date(2026, 5, 29)


@pytest.mark.slow
def test_a_relay_that_drops_is_seen_and_late_copies_put_it_right(spark, tmp_path) -> None:
    """What two others have is missed at the third, by id; what it archives a day later counts as had."""
    lake, folder = Lake(tmp_path / "lake"), tmp_path / "archive"
    for node in NODES:
        name = SegmentName(node, NOON_US, 1)
        kept = [number for number in range(40) if node != NODES[2] or number not in LACKS]
        put(folder, name, archive_bytes(name, [archived(number) for number in kept]))
    ingest(spark, lake, folder, ARCHIVE)
    context = context_of(spark, lake, "one")
    first = compare_relays(context)
    columns = ("relay_id", "n_expected", "n_missing", "peers_compared", "suspicious")
    of_day = F.col("day") == F.lit(FIRST)
    before = rows_of(lake.read(spark, GOLD_CONSISTENCY).where(of_day), *columns)
    late = SegmentName(NODES[2], NOON_US + DAY_US, 2)
    put(folder, late, archive_bytes(late, [archived(number, NOON_US + DAY_US) for number in LACKS]))
    ingest(spark, lake, folder, ARCHIVE)
    compare_relays(dataclasses.replace(context, run_id="two"))
    after = rows_of(lake.read(spark, GOLD_CONSISTENCY).where(of_day), *columns[:3])
    missing = sorted(archived(number).packet_id for number in LACKS)

    assert [(row[0], row[1], row[2], row[3]) for row in before] == [
        (NODES[0], 30, 0, 2),
        (NODES[1], 30, 0, 2),
        (NODES[2], 40, 10, 2),
    ]
    assert [bytes(each) for each in before[2][4]] == missing
    assert after == [(node, 40, 0) for node in NODES]
    assert (first.rows_in, first.rows_out) == (110, 110 + 3)
    assert lake.read(spark, SILVER_PACKET_SEEN).count() == 120


def test_nothing_is_no_error(spark, tmp_path) -> None:
    """A lake without packets stays without."""
    counts = compare_relays(context_of(spark, Lake(tmp_path), "r"))

    assert (counts.rows_in, counts.rows_out) == (0, 0)
