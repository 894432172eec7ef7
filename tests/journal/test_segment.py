"""Segments: names, lines, and what a file turns out to be."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.journal.build import NODE_ID, NOON_US, ONE_OF_EACH, name_at, segment_bytes
from waystation.journal.contract import COLUMNS, KINDS
from waystation.journal.events import NodeStopped, PeerLeft, Refused
from waystation.journal.segment import (
    NOT_A_WORD,
    SegmentName,
    SegmentState,
    classify,
    encode_lines,
    event_id,
    inspect_segment,
    parse_name,
    read_rows,
)

NAME = name_at()
WHOLE = segment_bytes(NAME, ONE_OF_EACH)
LINES_COUNT = len(ONE_OF_EACH) + 2
FILE = f"{NAME.text}.jsonl"


def test_complete_segment_is_read_whole() -> None:
    """Every line of a finished segment is good, and as many as it promises."""
    report = inspect_segment(FILE, WHOLE)

    assert report.state is SegmentState.COMPLETE
    assert (report.rows_good, report.rows_bad, report.rows_promised) == (LINES_COUNT, 0, LINES_COUNT)


def test_lines_hold_what_events_hold() -> None:
    """A row read back carries each value of its event in the declared place."""
    rows = list(read_rows(WHOLE))
    finished = next(row for row in rows if row["kind"] == "delivery_finished")

    assert [row["seq"] for row in rows] == list(range(LINES_COUNT))
    assert finished == {
        "ts": NOON_US + 4,
        "seq": 5,
        "protocol": "bhumi",
        "kind": "delivery_finished",
        "conn_ref": None,
        "peer_ref": "70" * 16,
        "relay_id": None,
        "outcome": "ok",
        "reason": None,
        "latency_us": 1,
        "bytes": 128,
        "attrs": {"attempt_ref": "61" * 16, "tries": "2"},
    }


def test_packet_line_names_everything_by_reference() -> None:
    """What the node thought of a packet stands in columns and allowed attributes; who is who only as keyed hashes."""
    judged = next(row for row in read_rows(WHOLE) if row["kind"] == "packet_judged")

    assert (judged["outcome"], judged["reason"], judged["latency_us"], judged["bytes"]) == (
        "invalid_timestamp",
        "too_old",
        70,
        512,
    )
    assert judged["attrs"] == {
        "author_ref": "75" * 16,
        "relay_ref": "72" * 16,
        "packet_ref": "69" * 16,
        "source": "peer",
        "content_type": "POST",
        "packet_ts": "1780000000",
        "received_at": "1780056000",
        "expires_at": "1790000000",
        "store_seq": "9",
        "origin": "AI_MODEL",
        "downgrade": "no_chain",
        "n": "1",
    }


def test_format_is_asked_for_by_name() -> None:
    """A whole segment is foreign to whoever looks for lines of another format."""
    first = WHOLE.partition(b"\n")[0]

    assert classify(NAME, first, WHOLE)[0] is SegmentState.COMPLETE
    assert classify(NAME, first, WHOLE, "archive-1") == (SegmentState.FOREIGN, None)


def test_every_line_keeps_to_its_kind() -> None:
    """A line has only columns and attributes that the contract lists for its kind."""
    kinds = {kind.name: kind for kind in KINDS}
    lines = [json.loads(line) for line in WHOLE.splitlines()]

    assert all(set(line) <= set(kinds[line["kind"]].columns_filled()) for line in lines)
    assert all(set(line.get("attrs", {})) <= set(kinds[line["kind"]].attribute_names()) for line in lines)


@pytest.mark.parametrize("text", ["refused by 10.0.0.1:443", "", "x" * 52, "a" * 64, 'say "no"', "naïve"])
def test_free_text_is_not_written(text: str) -> None:
    """A reason that is no short word, be it prose, an id52 or a key, never reaches the line."""
    (row,) = read_rows(encode_lines([NodeStopped(NOON_US, text)], 0))

    assert row["reason"] == NOT_A_WORD


def test_nothing_is_encoded_as_nothing() -> None:
    """No events make no bytes, not an empty line."""
    assert encode_lines([], 7) == b""


def test_torn_segment_is_recognised_at_every_length() -> None:
    """A file cut anywhere behind its first line is read up to the cut."""
    first = WHOLE.index(b"\n") + 1
    reports = [inspect_segment(FILE, WHOLE[:length]) for length in range(first, len(WHOLE))]

    assert {report.state for report in reports} == {SegmentState.TORN, SegmentState.UNSEALED}
    assert all(report.rows_bad <= 1 for report in reports)
    assert [report.rows_good for report in reports] == [
        WHOLE[:length].count(b"\n") + (WHOLE[length : length + 1] == b"\n") for length in range(first, len(WHOLE))
    ]


@pytest.mark.parametrize(
    ("file_name", "data"),
    [
        ("notes.jsonl", WHOLE),
        (FILE, b""),
        (FILE, b"\x7fELF\x00\x01"),
        (FILE, b"[1,2]\n"),
        (FILE, b'{"kind":"segment_opened"}\n'),
        (FILE, WHOLE.replace(b'"format":"1"', b'"format":"9"')),
        (f"{name_at(number=2).text}.jsonl", WHOLE),
    ],
    ids=["name", "empty", "binary", "array", "no attributes", "format", "renamed"],
)
def test_foreign_file_is_not_read(file_name: str, data: bytes) -> None:
    """What a node did not write under this name, in this format, gives no rows."""
    report = inspect_segment(file_name, data)

    assert report.state is SegmentState.FOREIGN
    assert report.rows_good == 0


BAD_LINES = {
    "not json": b"hello",
    "not an object": b"[]",
    "not utf-8": b'{"kind":"\xff"}',
    "no kind": b'{"ts":1,"seq":1,"protocol":"bhumi"}',
    "unknown kind": b'{"ts":1,"seq":1,"protocol":"bhumi","kind":"gossip"}',
    "no time": b'{"seq":1,"protocol":"bhumi","kind":"refused"}',
    "negative": b'{"ts":1,"seq":-1,"protocol":"bhumi","kind":"refused"}',
    "far future": b'{"ts":4102444800000000,"seq":1,"protocol":"bhumi","kind":"refused"}',
    "text for a number": b'{"ts":"1","seq":1,"protocol":"bhumi","kind":"refused"}',
    "short reference": b'{"ts":1,"seq":1,"protocol":"bhumi","kind":"refused","peer_ref":"ab"}',
}


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES.keys())
def test_bad_line_is_passed_over(line: bytes) -> None:
    """A line that breaks the contract costs itself only."""
    first, rest = WHOLE.split(b"\n", 1)
    report = inspect_segment(FILE, first + b"\n" + line + b"\n" + rest)

    assert (report.state, report.rows_good, report.rows_bad) == (SegmentState.COMPLETE, LINES_COUNT, 1)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_are_classified(first: bytes, ending: bytes) -> None:
    """Whatever a file holds, looking at it gives a state and never an error."""
    state, _ = classify(NAME, first, ending)

    assert state is SegmentState.FOREIGN


@given(st.integers(0, 2**52), st.integers(0, 10**8))
def test_names_are_read_back(start_us: int, number: int) -> None:
    """A name survives being written as a file name, open or sealed."""
    name = SegmentName(NODE_ID, start_us, number)

    assert parse_name(f"{name.text}.jsonl") == name == parse_name(f"{name.text}.jsonl.open")


@pytest.mark.parametrize(
    "text", ["", ".jsonl", "x-1-1.jsonl", f"{NAME.text}", f"{NAME.text}.open", f"{NAME.text}.json"]
)
def test_other_names_are_no_segments(text: str) -> None:
    """A name of another form is nobody's segment."""
    assert parse_name(text) is None


def test_folder_is_the_utc_date() -> None:
    """A segment lies in the folder of the date on which it began."""
    assert name_at().folder == "event_date=2026-05-29"


def test_event_ids_differ_by_segment_and_line() -> None:
    """Two events of the world never share a name; a copy of one does."""
    names = {event_id(name_at(number=n).text, seq) for n in range(10) for seq in range(100)}

    assert len(names) == 1_000
    assert event_id(NAME.text, 3) == event_id(NAME.text, 3)
    assert {len(name) for name in names} == {16}


def test_absent_values_leave_no_trace() -> None:
    """A value that is None is left out of the line."""
    lines = encode_lines([PeerLeft(1, "bhumi", b"c" * 8, b"p" * 16, "gone"), Refused(1, "bhumi", None, "oversize")], 0)

    assert b"null" not in lines
    assert b"bytes_in" not in lines
    assert all(set(json.loads(line)) <= {column.name for column in COLUMNS} for line in lines.splitlines())
