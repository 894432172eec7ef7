"""Checked packets: one row each, whoever stored them, and no check twice."""

import pyarrow as pa
import pytest

from tests.journal.build import DAY_US, NOON_US, name_at
from tests.pipeline.build import OTHER_NODE, archive_bytes, archived, forged
from waystation.journal.segment import SegmentName
from waystation.pipeline.packets import RULE_VERSION
from waystation.pipeline.tables import SILVER_PACKETS
from waystation.pipeline.transforms.archive import accept_packets, parse_packet_lines
from waystation.pipeline.transforms.packets import _CHECKED, _check_firsts, check_new, packets

pytestmark = pytest.mark.spark

MINE = [archived(1, NOON_US + DAY_US), archived(2), forged(3)]
THEIRS = [archived(1, NOON_US), archived(4)]


@pytest.fixture(scope="module")
def archive(spark):
    """Give what two nodes stored as the table has it."""
    rows = []
    for name, stored in ((name_at(), MINE), (SegmentName(OTHER_NODE, NOON_US, 1), THEIRS)):
        rows += [(line, name.text) for line in archive_bytes(name, stored).decode().split("\n")[:-1]]
    return accept_packets(parse_packet_lines(spark.createDataFrame(rows, "value string, segment string"))).cache()


def known(spark, *rows):
    """Return a frame of packets that were checked before: id, verdict, rules."""
    full = [
        (packet_id, "strata", "d", "POST", 1, None, 1, None, 1, True, True, True, verdict, rules)
        for packet_id, verdict, rules in rows
    ]
    return spark.createDataFrame(full, ", ".join(f"`{c.name}` {c.type}" for c in SILVER_PACKETS.columns))


def test_every_packet_is_checked_once(spark, archive) -> None:
    """Copies are one packet; each has what a plain check finds."""
    rows = check_new(archive, known(spark)).collect()

    assert {bytes(row["packet_id"]): row["verdict"] for row in rows} == {
        **{packet.packet_id: "valid" for packet in (*MINE[:2], *THEIRS)},
        MINE[2].packet_id: "bad_signature",
    }
    assert len(rows) == 4


def test_copies_are_one_wherever_a_batch_ends(archive) -> None:
    """The earliest copy is checked and no other, also where a batch ends between copies or holds nothing new."""
    columns = ("packet_id", *_CHECKED)
    rows = {row["packet_id"]: row.asDict() for row in archive.select(*columns).collect()}
    sorted_rows = [rows[packet_id] for packet_id in sorted(rows)]
    later = {"signed_bytes": b"later"}
    copies = pa.Table.from_pylist([row | changed for row in sorted_rows for changed in ({}, later, later)])
    whole = [row for batch in _check_firsts(iter(copies.to_batches())) for row in batch.to_pylist()]
    cut = {
        size: [row for batch in _check_firsts(iter(copies.to_batches(size))) for row in batch.to_pylist()]
        for size in range(1, copies.num_rows)
    }

    assert [(row["packet_id"], row["verdict"]) for row in whole] == [
        (packet_id, "bad_signature" if packet_id == MINE[2].packet_id else "valid") for packet_id in sorted(rows)
    ]
    assert {str(rows) for rows in cut.values()} == {str(whole)}


def test_known_packets_are_not_checked_again(spark, archive) -> None:
    """Only packets without a verdict by today's rules are checked."""
    before = known(spark, (MINE[1].packet_id, "valid", RULE_VERSION), (MINE[0].packet_id, "valid", "older"))
    rows = check_new(archive, before).collect()

    assert {bytes(row["packet_id"]) for row in rows} == {p.packet_id for p in (MINE[0], MINE[2], THEIRS[1])}


def test_row_joins_copies_and_old_verdicts(spark, archive) -> None:
    """A packet tells its earliest sight and how many nodes have it; a verdict of today's rules is taken over."""
    before = known(spark, (MINE[1].packet_id, "from before", RULE_VERSION), (MINE[0].packet_id, "old rules", "older"))
    frame = packets(archive, before, check_new(archive, before))
    rows = {
        bytes(row["packet_id"]): row
        for row in frame.selectExpr("*", "unix_micros(first_received_at) as first_us").collect()
    }
    twice, old = rows[MINE[0].packet_id], rows[MINE[1].packet_id]

    assert (twice["n_nodes"], twice["first_us"], twice["verdict"]) == (2, NOON_US, "valid")
    assert (old["n_nodes"], old["verdict"], old["author_id"]) == (1, "from before", MINE[1].author_id)
    assert {row["verified_with"] for row in rows.values()} == {RULE_VERSION}
    assert {str(row["event_date"]) for row in rows.values()} == {"2026-05-29"}


def test_rows_have_the_declared_columns(spark, archive) -> None:
    """What comes out is silver.packets and the date."""
    frame = packets(archive, known(spark), check_new(archive, known(spark)))
    types = dict(frame.dtypes)

    assert frame.columns == [*SILVER_PACKETS.names(), "event_date"]
    assert all(types[column.name] == column.type for column in SILVER_PACKETS.columns)
