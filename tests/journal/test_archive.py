"""Lines of the archive: what a packet's line holds, and what is read back."""

import json

import pytest

from tests.journal.build import NODE_ID, NOON_US, name_at
from waystation.core.errors import LocalError
from waystation.journal.archive import (
    ARCHIVE_COLUMNS,
    ARCHIVE_FORMAT,
    ArchivedPacket,
    archive_line_ddl,
    encode_archive,
    read_packets,
)
from waystation.journal.contract import FORBIDDEN_NAMES, FORMAT_VERSION, Privacy
from waystation.journal.events import Refused, SegmentOpened, SegmentSealed

SIGNATURE = "5a" * 64
# A member of the content has the signature's name, and text that JSON must escape twice.
CANONICAL = (
    '{"author_id":"did:strata:a","content":{"signature":"0xno","text":"\\"ü\\u0001𝄞","type":"POST"},'
    f'"signature":"0x{SIGNATURE}","zz":{{"signature":1}}}}'
).encode()
PACKET = ArchivedPacket(
    NOON_US, "strata", b"i" * 32, 1_780_056_000, "did:strata:a", "POST", 1_780_000_000, None, b"k" * 32, CANONICAL
)


def only(data: bytes):
    """Return the one packet of some lines."""
    (row,) = read_packets(data)
    return row


def test_line_holds_the_packet_as_it_was_signed() -> None:
    """What comes back is the canonical text to the byte, with the signature that stands at its top."""
    row = only(encode_archive([PACKET], 7))

    assert row == {
        "ts": NOON_US,
        "seq": 7,
        "protocol": "strata",
        "kind": "packet",
        "packet_id": "69" * 32,
        "received_at": 1_780_056_000,
        "author_id": "did:strata:a",
        "content_type": "POST",
        "packet_ts": 1_780_000_000,
        "expires_at": None,
        "pubkey": "6b" * 32,
        "sig": SIGNATURE,
        "signed_bytes": CANONICAL.decode(),
        "size": len(CANONICAL),
    }


def test_packet_is_one_line_whatever_it_says() -> None:
    """Line ends in a stranger's words do not end the line."""
    odd = PACKET._replace(content_type="a\nb\r\u2028", author_id="did:x:\n")
    data = encode_archive([odd, PACKET._replace(expires_at=-5)], 0)

    assert data.count(b"\n") == 2
    assert [row["content_type"] for row in read_packets(data)] == ["a\nb\r\u2028", "POST"]
    assert [row["expires_at"] for row in read_packets(data)] == [None, -5]


def test_first_and_last_line_are_a_segments() -> None:
    """An archive opens and ends as a journal does, and tells gaps, but names another format."""
    name = name_at()
    data = encode_archive(
        [
            SegmentOpened(NOON_US, ARCHIVE_FORMAT, NODE_ID, name.text),
            Refused(NOON_US, "node", None, "archive_buffer_full", 3),
            SegmentSealed(NOON_US, 3),
        ],
        0,
    )
    first, gap, last = map(json.loads, data.splitlines())

    assert first["attrs"] == {"format": "archive-1", "node_id": NODE_ID, "segment": name.text}
    assert (gap["kind"], gap["attrs"]) == ("refused", {"n": "3"})
    assert (last["kind"], last["seq"]) == ("segment_sealed", 2)
    assert list(read_packets(data)) == []
    assert ARCHIVE_FORMAT != FORMAT_VERSION


@pytest.mark.parametrize("canonical", [b"", b"[]", b"{}", b'{"signature":5}', b'{"signature":"0x5a"', b"\xff"])
def test_bytes_without_a_signature_are_refused(canonical: bytes) -> None:
    """What is no packet is an error of whoever archives it."""
    with pytest.raises(LocalError, match="no packet"):
        encode_archive([PACKET._replace(canonical=canonical)], 0)


BAD = {
    "ts": [None, -1, "1", 4_102_444_800_000_000, True],
    "seq": [None, -1],
    "protocol": [None, "node"],
    "kind": [None, "refused"],
    "packet_id": [None, "69" * 31, "6G" * 32, "AB" * 32, 5],
    "received_at": [None, -1, 4_102_444_800],
    "author_id": [None, 5],
    "packet_ts": [None, 1.5, 1 << 63],
    "expires_at": ["soon"],
    "pubkey": [None, "6b"],
    "sig": ["6b" * 32],
    "signed_bytes": [None, {}],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_bad_line_is_passed_over(name: str, value: object) -> None:
    """A line that breaks the contract in one column costs itself only."""
    line = json.loads(encode_archive([PACKET], 0))
    bad = json.dumps({**line, name: value}).encode()

    assert only(b"\n".join([bad, b"hello", b"[]", json.dumps(line).encode()])) == only(json.dumps(line).encode())


def test_torn_archive_is_read_up_to_the_tear() -> None:
    """Cut anywhere, the whole lines before the cut are read."""
    data = encode_archive([PACKET, PACKET], 0)
    half = len(data) // 2

    assert [len(list(read_packets(data[:cut]))) for cut in (half - 2, half, half + 9, len(data) - 2)] == [0, 1, 1, 1]


def test_no_column_is_forbidden() -> None:
    """The archive names who wrote a packet, as the packet does, and nobody who brought or read it."""
    names = {column.name for column in ARCHIVE_COLUMNS}

    assert not names & FORBIDDEN_NAMES
    assert not {name for name in names if name.endswith("_ref") or "relay" in name}
    assert {column.privacy for column in ARCHIVE_COLUMNS} == {Privacy.PUBLIC, Privacy.OPERATIONAL}


def test_line_schema_lists_every_column() -> None:
    """Spark reads lines by the columns that are written."""
    line = json.loads(encode_archive([PACKET._replace(expires_at=1)], 0))
    declared = [column.split("`")[1] for column in archive_line_ddl().split(", ")]

    assert set(line) == set(declared) - {"reason", "attrs"}
