"""Which node has seen which packet."""

import datetime

import pytest

from tests.pipeline.frames import rows_of
from waystation.pipeline.tables import SILVER_PACKET_SEEN
from waystation.pipeline.transforms.packet_seen import packet_seen

pytestmark = pytest.mark.spark

ARCHIVE_DDL = (
    "packet_id binary, node_id string, segment string, seq bigint, stored_at timestamp, author_id string, "
    "content_type string, packet_ts bigint, expires_at bigint"
)
DAY = datetime.datetime(2026, 5, 29, 12, tzinfo=datetime.UTC)


def copy(packet: bytes, node: str, seq: int, hours: int) -> tuple:
    """Return one archived copy, so many hours after noon."""
    return (packet, node, "s", seq, DAY + datetime.timedelta(hours=hours), "did:a", "POST", 7, None)


def known(packet: bytes, node: str, hours: int, copies: int) -> tuple:
    """Return a row as an earlier run left it."""
    return (packet, node, "did:a", "POST", 7, None, DAY + datetime.timedelta(hours=hours), copies)


def test_first_copies_and_old_rows_are_kept(spark) -> None:
    """The earliest copy dates a row; rows whose copies have left the archive stay, and counts never shrink."""
    copies = [copy(b"p", "a", 2, 5), copy(b"p", "a", 1, 9), copy(b"p", "b", 3, 40), copy(b"q", "a", 4, 1)]
    before = [known(b"old", "a", -300, 3), known(b"q", "a", -14, 2), known(b"p", "a", 7, 1)]
    archive = spark.createDataFrame(copies, ARCHIVE_DDL)
    frame = packet_seen(archive, spark.createDataFrame(before, SILVER_PACKET_SEEN.row_ddl()))
    after = DAY - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    hours = frame.selectExpr("*", f"(unix_seconds(first_seen_at) - {int(after.total_seconds())}) div 3600 hours")
    rows = rows_of(hours, "packet_id", "node_id", "hours", "n_copies", "event_date")

    assert rows == [
        (b"old", "a", -300, 3, datetime.date(2026, 5, 17)),
        (b"p", "a", 5, 2, datetime.date(2026, 5, 29)),
        (b"p", "b", 40, 1, datetime.date(2026, 5, 31)),
        (b"q", "a", -14, 2, datetime.date(2026, 5, 28)),
    ]
    assert frame.columns == [*SILVER_PACKET_SEEN.names(), "event_date"]
