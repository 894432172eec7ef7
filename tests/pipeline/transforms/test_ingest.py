"""Lines to rows: the contract is applied by Spark as plain Python applies it."""

import hashlib

import pytest

from tests.journal.build import ONE_OF_EACH, name_at, segment_bytes
from waystation.journal.segment import NOT_A_WORD, event_id, read_rows
from waystation.pipeline.tables import BRONZE_EVENTS, OPS_QUARANTINE
from waystation.pipeline.transforms.ingest import accept, parse_lines, quarantine, reject

pytestmark = pytest.mark.spark

NAME = name_at()
LINES = segment_bytes(NAME, ONE_OF_EACH).decode().splitlines()
BAD = {
    "hello": "unparsable",
    "[]": "unparsable",
    '{"ts":"x","seq":50,"protocol":"bhumi","kind":"refused"}': "unparsable",
    '{"ts":1,"seq":51,"protocol":"bhumi"}': "missing_kind",
    '{"ts":1,"seq":52,"protocol":"bhumi","kind":"gossip"}': "unknown_kind",
    '{"seq":53,"protocol":"bhumi","kind":"refused"}': "missing_column",
    '{"ts":1,"seq":-54,"protocol":"bhumi","kind":"refused"}': "bad_number",
    '{"ts":4102444800000000,"seq":55,"protocol":"bhumi","kind":"refused"}': "bad_number",
    '{"ts":1,"seq":56,"protocol":"bhumi","kind":"refused","peer_ref":"AB"}': "bad_reference",
}
SMUGGLED = (
    '{"ts":1,"seq":60,"protocol":"bhumi","kind":"refused","payload":"secret","attrs":{"n":"2","payload":"secret"}}'
)
PHRASED = (
    '{"ts":1,"seq":61,"protocol":"bhu mi","kind":"packet_judged","outcome":"no such user: wren","reason":"'
    + "a" * 52
    + '","relay_id":"not a relay","attrs":{"origin":"hello world","n":"3","author_ref":"'
    + "ab" * 32
    + '"}}'
)
REFERRED = (
    '{"ts":1,"seq":62,"protocol":"bsp","kind":"message_stored","reason":"word\\n","relay_id":"0123456789abcdef",'
    '"attrs":{"dependency_refs":"' + "ab" * 48 + '","message_ref":"' + "cd" * 16 + '"}}'
)


@pytest.fixture(scope="module")
def parsed(spark):
    """Give all lines of this module parsed in one frame."""
    lines = [*LINES, LINES[1], "", "  ", *BAD, SMUGGLED, PHRASED, REFERRED]
    frame = parse_lines(spark.createDataFrame([(line, NAME.text) for line in lines], "value string, segment string"))
    return frame.cache()


def test_every_bad_line_has_its_reason(parsed) -> None:
    """A line that breaks the contract is named with the first rule it breaks."""
    rows = parsed.where("rejection is not null").select("value", "rejection").collect()

    assert {row["value"]: row["rejection"] for row in rows} == BAD


def test_good_lines_are_the_rows_of_plain_python(parsed) -> None:
    """Each good line becomes one row with the values plain Python reads, each event once."""
    rows = {row["seq"]: row for row in accept(parsed).selectExpr("*", "unix_micros(ts) as ts_us").collect()}
    plain = {row["seq"]: row for row in read_rows("\n".join([*LINES, SMUGGLED]).encode())}
    rows = {seq: row for seq, row in rows.items() if seq not in {61, 62}}
    assert rows.keys() == plain.keys()

    for seq, row in rows.items():
        expected = plain[seq]
        assert row["ts_us"] == expected["ts"]
        assert row["event_id"] == event_id(NAME.text, seq)
        assert row["node_id"] == NAME.node_id
        assert all(
            row[key] == expected[key] for key in ("kind", "protocol", "outcome", "reason", "latency_us", "bytes")
        )
        assert all((row[key] and row[key].hex()) == expected[key] for key in ("conn_ref", "peer_ref"))


def test_unknown_fields_never_get_in(parsed) -> None:
    """A field or attribute outside the contract is dropped, the allowed ones beside it stay."""
    (row,) = accept(parsed).where("seq = 60").collect()

    assert row["attrs"] == {"n": "2"}
    assert "secret" not in str(row)


def test_what_somebody_phrased_is_replaced(parsed) -> None:
    """Text that is no word never reaches the lake; words, numbers and references stay as they are."""
    phrased, referred = accept(parsed).where("seq in (61, 62)").orderBy("seq").collect()

    assert [phrased[name] for name in ("protocol", "outcome", "reason", "relay_id")] == [*[NOT_A_WORD] * 3, None]
    assert phrased["attrs"] == {"origin": NOT_A_WORD, "n": "3", "author_ref": NOT_A_WORD}
    assert (referred["reason"], referred["relay_id"]) == (NOT_A_WORD, "0123456789abcdef")
    assert referred["attrs"] == {"dependency_refs": "ab" * 48, "message_ref": "cd" * 16}


def test_rows_have_the_declared_columns(parsed) -> None:
    """What comes out is bronze.events and the date."""
    frame = accept(parsed)

    assert frame.columns == [*BRONZE_EVENTS.names(), "event_date"]
    types = dict(frame.dtypes)
    assert all(types[column.name] == column.type for column in BRONZE_EVENTS.columns)


def test_rejected_lines_leave_only_a_hash(parsed) -> None:
    """What is kept of a bad line is its segment, the reason and 64 hexadecimal digits, equal lines once."""
    frame = quarantine(parsed.union(parsed), "bronze.events")
    rows = frame.collect()

    assert reject(parsed).columns == ["segment", "reason", "hash"]
    assert frame.columns == [*OPS_QUARANTINE.names(), "event_date"]
    assert sorted(row["reason"] for row in rows) == sorted(BAD.values())
    assert {row["hash"] for row in rows} == {hashlib.sha256(line.encode()).hexdigest() for line in BAD}
    assert {(row["dataset"], row["segment"], str(row["event_date"])) for row in rows} == {
        ("bronze.events", NAME.text, "2026-05-29")
    }
