"""Laws of rules.snapshot: which pointers are read, and what their signature is over."""

import json
from dataclasses import replace

import pytest

from waystation.core.errors import RemoteError
from waystation.core.ids import PublicKey
from waystation.rules.lines import encode_line
from waystation.rules.snapshot import (
    AHEAD_US_MAX,
    CURRENT_BYTES_MAX,
    FILES_MAX,
    LASTS_US_MAX,
    POLICY_SCHEMA,
    FileEntry,
    Snapshot,
    decode_snapshot,
    encode_snapshot,
    file_name,
    refuse_older,
    refuse_time,
    signed_bytes,
)

NODE = "0011223344556677"
SHA = "ab" * 32
ENTRY = FileEntry(file_name(f"policy-{NODE}", SHA, "jsonl"), SHA, 3, POLICY_SCHEMA)
GOOD = Snapshot("0123456789abcdef", "", 1_000, "1", (ENTRY,), 2_000, PublicKey(b"k" * 32), b"s" * 64)


def altered(**fields):
    """Return the good pointer with other values in some fields."""
    return encode_line(json.loads(encode_snapshot(GOOD)) | fields) + b"\n"


def with_file(**fields):
    """Return the good pointer with other values in the fields of its file."""
    return altered(files=[ENTRY._asdict() | fields])


def test_pointer_reads_back():
    """What was written is read as it was, and its files are found by purpose."""
    assert decode_snapshot(encode_snapshot(GOOD)) == GOOD
    assert (ENTRY.name, ENTRY.stem) == (f"policy-{NODE}-abababababababab.jsonl", f"policy-{NODE}")
    assert GOOD.find(f"policy-{NODE}", POLICY_SCHEMA) == ENTRY
    assert GOOD.find("policy", POLICY_SCHEMA) is GOOD.find(f"policy-{NODE}", "table-1") is None


def test_signature_is_over_everything_else():
    """Every field but the signature changes what is signed."""
    changes = [
        {"snapshot": "1" * 16},
        {"node_id": NODE},
        {"as_of_us": 1_001},
        {"rule_version": "2"},
        {"files": ()},
        {"expires_at_us": 2_001},
        {"key": PublicKey(b"K" * 32)},
    ]
    texts = {signed_bytes(replace(GOOD, **change)) for change in changes}

    assert len(texts | {signed_bytes(GOOD)}) == len(changes) + 1
    assert signed_bytes(GOOD.signed(bytes(64))) == signed_bytes(GOOD)


@pytest.mark.parametrize(
    "data",
    [
        altered(format="waystation-published-2"),
        altered(snapshot="../../etc"),
        altered(node_id="x"),
        altered(as_of="1000"),
        altered(as_of=True),
        altered(as_of=2_000),
        altered(expires_at=1_001 + LASTS_US_MAX),
        altered(key="00"),
        altered(signature="00"),
        altered(files={}),
        altered(files=[1]),
        altered(more=1),
        with_file(name="../../../etc/passwd"),
        with_file(name=f"policy-{NODE}-{'0' * 16}.jsonl"),
        with_file(sha256="AB" * 32),
        with_file(rows=-1),
        with_file(schema=""),
        with_file(more=1),
        altered(files=[ENTRY._asdict(), ENTRY._asdict()]),
        altered(files=[ENTRY._asdict(), ENTRY._asdict() | {"name": f"policy-{NODE}-{SHA[:16]}.json"}]),
        encode_snapshot(GOOD)[:-1],
        encode_snapshot(GOOD) + b"\n",
        b" " * CURRENT_BYTES_MAX + encode_snapshot(GOOD),
    ],
)
def test_odd_pointer_is_refused(data):
    """Another format, a path, a purpose named twice, a lie about a hash: nothing of it is read."""
    with pytest.raises(RemoteError):
        decode_snapshot(data)


def test_pointer_cut_off_anywhere_is_refused():
    """A pointer is whole or it is none."""
    data = encode_snapshot(GOOD)

    for size in range(len(data)):
        with pytest.raises(RemoteError):
            decode_snapshot(data[:size])


def test_most_files_fit():
    """A pointer to as many files as there may be is short enough to be read."""
    shas = [f"{number:064x}"[::-1] for number in range(FILES_MAX)]
    files = [FileEntry(file_name(f"policy-{sha[:16]}", sha, "jsonl"), sha, 10_000_000, "policy-1") for sha in shas]
    data = encode_snapshot(replace(GOOD, files=tuple(files)))

    assert len(decode_snapshot(data).files) == FILES_MAX
    with pytest.raises(RemoteError, match="at most 256"):
        decode_snapshot(altered(files=[{}] * (FILES_MAX + 1)))


def test_time_says_whether_it_holds():
    """From its end on, and a day before its beginning, a snapshot is refused."""
    refuse_time(GOOD, 1_999)
    refuse_time(GOOD, GOOD.as_of_us - AHEAD_US_MAX)

    with pytest.raises(RemoteError, match="expired"):
        refuse_time(GOOD, 2_000)
    with pytest.raises(RemoteError, match="not come"):
        refuse_time(GOOD, GOOD.as_of_us - AHEAD_US_MAX - 1)


def test_older_than_before_is_refused():
    """The moment a key has spoken for never goes back; the same moment may be told again."""
    refuse_older(GOOD, None)
    refuse_older(GOOD, 1_000)

    with pytest.raises(RemoteError, match="goes back"):
        refuse_older(GOOD, 1_001)
