"""Lines of the archive to rows: Spark applies the rules as plain Python does."""

import json

import pytest

from tests.journal.build import NOON_US, name_at
from tests.pipeline.build import archive_bytes, archived
from waystation.journal.archive import read_packets
from waystation.journal.events import Refused
from waystation.pipeline.tables import BRONZE_ARCHIVE
from waystation.pipeline.transforms.archive import accept_packets, parse_packet_lines

pytestmark = pytest.mark.spark

NAME = name_at()
ROWS = [archived(0), archived(1, expires_at=1_790_000_000), Refused(NOON_US, "node", None, "archive_disk_error", 4)]
LINES = archive_bytes(NAME, ROWS).decode().split("\n")[:-1]
GOOD = json.loads(LINES[1])
BAD_FIELDS = [
    ({"seq": 50, "kind": None}, "missing_kind"),
    ({"seq": 51, "kind": "gossip"}, "unknown_kind"),
    ({"seq": 52, "protocol": "node"}, "unknown_kind"),
    ({"seq": 53, "author_id": None}, "missing_column"),
    ({"seq": 54, "ts": None}, "missing_column"),
    ({"seq": -55}, "bad_number"),
    ({"seq": 56, "received_at": 4_102_444_800}, "bad_number"),
    ({"seq": 57, "ts": 4_102_444_800_000_000}, "bad_number"),
    ({"seq": 58, "size": GOOD["size"] + 1}, "bad_number"),
    ({"seq": 59, "pubkey": "ab"}, "bad_bytes"),
    ({"seq": 60, "sig": "G" * 128}, "bad_bytes"),
    ({"seq": 61, "packet_ts": "soon"}, "unparsable"),
]
BAD = {json.dumps({**GOOD, **fields}): reason for fields, reason in BAD_FIELDS} | {"hello": "unparsable"}


@pytest.fixture(scope="module")
def parsed(spark):
    """Give all lines of this module parsed in one frame."""
    lines = [*LINES, LINES[1], "", *BAD, json.dumps({**GOOD, "seq": 70, "sender": "secret"})]
    frame = spark.createDataFrame([(line, NAME.text) for line in lines], "value string, segment string")
    return parse_packet_lines(frame).cache()


def test_every_bad_line_has_its_reason(parsed) -> None:
    """A line that breaks the rules is named with the first one it breaks."""
    rows = parsed.where("rejection is not null").select("value", "rejection").collect()

    assert {row["value"]: row["rejection"] for row in rows} == BAD


def test_good_packets_are_the_rows_of_plain_python(parsed) -> None:
    """Each packet becomes one row with the values plain Python reads; first, last and gap lines are no packets."""
    micros = "unix_micros(stored_at) as stored_us", "unix_micros(received_at) as received_us"
    rows = {row["seq"]: row for row in accept_packets(parsed).selectExpr("*", *micros).collect()}
    plain = {row["seq"]: row for row in read_packets("\n".join(LINES).encode())}
    assert rows.keys() == {*plain, 70}

    for seq, expected in plain.items():
        row = rows[seq]
        assert (row["node_id"], row["segment"], row["stored_us"]) == (NAME.node_id, NAME.text, expected["ts"])
        assert row["received_us"] == expected["received_at"] * 1_000_000
        assert bytes(row["signed_bytes"]) == expected["signed_bytes"].encode()
        assert all(row[name].hex() == expected[name] for name in ("packet_id", "pubkey", "sig"))
        assert all(
            row[name] == expected[name] for name in ("author_id", "content_type", "packet_ts", "expires_at", "size")
        )


def test_unknown_fields_never_get_in(parsed) -> None:
    """A field outside the declared ones is dropped."""
    (row,) = accept_packets(parsed).where("seq = 70").collect()

    assert "secret" not in str(row)


def test_rows_have_the_declared_columns(parsed) -> None:
    """What comes out is bronze.archive and the date on which the packet was received."""
    frame = accept_packets(parsed)
    types = dict(frame.dtypes)

    assert frame.columns == [*BRONZE_ARCHIVE.names(), "event_date"]
    assert all(types[column.name] == column.type for column in BRONZE_ARCHIVE.columns)
