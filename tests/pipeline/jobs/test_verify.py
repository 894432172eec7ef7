"""Verifying over several runs."""

import pytest

from tests.journal.build import DAY_US, NOON_US, name_at
from tests.pipeline.build import archive_bytes, archived, context_of, forged, put
from tests.pipeline.conftest import Ran
from waystation.pipeline.jobs.ingest import ARCHIVE, ingest
from waystation.pipeline.jobs.verify import verify_packets
from waystation.pipeline.lake import Lake
from waystation.pipeline.tables import SILVER_PACKETS

pytestmark = pytest.mark.spark


def test_verdicts_are_those_of_what_was_written(spark, ran: Ran) -> None:
    """Every packet of the rough archive has the verdict that its making deserves."""
    rows = ran.lake.read(spark, SILVER_PACKETS).collect()

    assert {bytes(row["packet_id"]): row["verdict"] for row in rows} == ran.verdicts
    assert len(rows) == len(ran.verdicts)
    assert {row["n_nodes"] for row in rows} == {1, 2}
    assert {step.name: step for step in ran.first.steps}["verify"].counts.rows_rejected == 2


def test_new_packets_join_the_old(spark, tmp_path) -> None:
    """A second run keeps the verdicts of the first, adds what is new, and an earlier copy moves a packet's date."""
    lake, folder = Lake(tmp_path / "lake"), tmp_path / "archive"
    late, early = name_at(NOON_US + DAY_US, 1), name_at(NOON_US, 2)
    put(folder, late, archive_bytes(late, [archived(1, NOON_US + DAY_US), forged(2, NOON_US + DAY_US)]))
    ingest(spark, lake, folder, ARCHIVE)
    first = verify_packets(context_of(spark, lake, "one"))
    put(folder, early, archive_bytes(early, [archived(1), archived(3)]))
    ingest(spark, lake, folder, ARCHIVE)
    second = verify_packets(context_of(spark, lake, "two"))
    rows = {bytes(row["packet_id"]): row for row in lake.read(spark, SILVER_PACKETS).collect()}

    assert (first.rows_in, first.rows_out, first.rows_rejected) == (2, 2, 1)
    assert (second.rows_in, second.rows_out, second.rows_rejected) == (4, 3, 1)
    assert str(rows[archived(1).packet_id]["event_date"]) == "2026-05-29"
    assert rows[forged(2).packet_id]["verdict"] == "bad_signature"


def test_nothing_archived_is_no_error(spark, tmp_path) -> None:
    """A lake without packets stays without."""
    counts = verify_packets(context_of(spark, Lake(tmp_path), "r"))

    assert (counts.rows_in, counts.rows_out) == (0, 0)
