"""Laws of protocols.bsp.wire."""

import dataclasses
import itertools

import pytest

from fuzz.bsp.wire import BspWireTarget
from fuzz.run import fuzz
from tests.protocols.bsp.build import (
    BRIAR_VECTORS,
    EVERY_PROFILE,
    GROUP,
    LENGTHS_AT_EDGES,
    LISTS,
    NOW_MS,
    SEED_VECTORS,
    VECTORS,
    VECTORS_OF,
    every_record,
    framed,
    ids,
    list_type,
    message,
    read_in_chunks,
    shown,
    spelled,
    stream_of,
    whole,
)
from waystation.protocols.bsp.messages import Ack, Message, Offer, Priority, RecordType, Request, Versions
from waystation.protocols.bsp.profile import BRIAR, PROFILES, SEED
from waystation.protocols.bsp.refusals import MalformedError, Refusal
from waystation.protocols.bsp.wire import (
    IDS_WRITTEN_MAX,
    RecordReader,
    encode,
    encode_ids,
    encode_message,
    read_all,
)

BY_NAME = pytest.mark.parametrize("profile", EVERY_PROFILE, ids=lambda profile: profile.name)
MESSAGES = [
    pytest.param(PROFILES[name], entry, id=f"{name} {entry['body']} {entry['timestamp']}")
    for name, vectors in VECTORS_OF.items()
    for entry in vectors["messages"]
]
ID_LISTS = [
    pytest.param(PROFILES[name], entry, id=f"{name} {entry['type']} {entry['ids']}")
    for name, vectors in VECTORS_OF.items()
    for entry in vectors["records"]
    if "ids" in entry
]
WHY_CLOSED = {
    "ack_empty": Refusal.EMPTY_LIST,
    "request_33": Refusal.LIST_LENGTH,
    "version_0": Refusal.VERSION,
    "message_32809": Refusal.MESSAGE_LENGTH,
    "message_32769": Refusal.MESSAGE_LENGTH,
    "message_neg_time": Refusal.TIMESTAMP,
    "versions_0": Refusal.VERSIONS_LENGTH,
    "versions_11": Refusal.VERSIONS_LENGTH,
}
"""What each vector that closes is refused for."""
MALFORMED = {
    expect: [
        pytest.param(PROFILES[entry["profile"]], entry, id=f"{entry['profile']} {entry['name']}")
        for entry in VECTORS["malformed"]
        if entry["expect"] == expect
    ]
    for expect in ("close", "skip", "eof-error", "clean-end")
}


def malformed_bytes(entry):
    """Return the stream of a malformed vector; large ones have a pattern behind the header or a message's head."""
    return whole(entry["bytes"], 44 if entry["name"].startswith("message") else 4)


def fed(profile, data):
    """Return a reader that has got these bytes at once."""
    reader = RecordReader(profile)
    reader.feed(data)
    return reader


# The vectors


@pytest.mark.parametrize(("profile", "entry"), MESSAGES)
def test_vector_of_a_message(profile, entry):
    """Written to the byte, and read as what it was."""
    record = Message(bytes.fromhex(entry["group_id"]), entry["timestamp"], spelled(entry["body"]))
    data = encode(profile, record)

    assert shown(data, entry["record"]) == entry["record"]
    assert data == encode_message(profile, *record)
    assert len(data) - 4 == entry.get("payload_length", len(data) - 4)
    assert read_all(profile, data) == [record]


@pytest.mark.parametrize(("profile", "entry"), ID_LISTS)
def test_vector_of_a_list(profile, entry):
    """One, two, 1,536 and, where the profile reads them, 2,047 identifiers."""
    record = LISTS[entry["type"]](spelled(entry["ids"]))
    data = encode(profile, record)

    assert shown(data, entry["record"]) == entry["record"]
    assert read_all(profile, data) == [record]


def test_vectors_of_versions_and_priority():
    """The two records that only profile briar has."""
    versions, priority = BRIAR_VECTORS["records"][:2]
    records = [Versions(bytes(versions["supported"])), Priority(bytes.fromhex(priority["nonce"]))]
    data = bytes.fromhex(versions["record"] + priority["record"])

    assert stream_of(BRIAR, *records) == data
    assert read_all(BRIAR, data) == records


@pytest.mark.parametrize(("profile", "entry"), MALFORMED["close"])
def test_vector_that_closes(profile, entry):
    """The stream ends there and then, and what stood before it stays said (BSP-D4, BSP-D5)."""
    front = every_record(profile)
    reader = RecordReader(profile)

    records = reader.feed(stream_of(profile, *front) + malformed_bytes(entry) + stream_of(profile, *front))

    assert records == front
    assert reader.refusal is WHY_CLOSED[entry["name"]]


@pytest.mark.parametrize(("profile", "entry"), MALFORMED["skip"])
def test_vector_that_is_read_past(profile, entry):
    """A type that we do not know says nothing and ends nothing."""
    front = every_record(profile)

    records = read_all(profile, stream_of(profile, *front) + malformed_bytes(entry) + stream_of(profile, *front))

    assert records == front + front


@pytest.mark.parametrize(("profile", "entry"), MALFORMED["eof-error"])
def test_vector_that_is_cut(profile, entry):
    """Nothing is wrong until the stream ends (BSP-D6)."""
    reader = fed(profile, malformed_bytes(entry))

    assert (reader.refusal, reader.is_inside) == (None, True)
    assert reader.finish() is Refusal.TRUNCATED


@pytest.mark.parametrize(("profile", "entry"), MALFORMED["clean-end"])
def test_vector_of_nothing(profile, entry):
    """No bytes at all are a clean end."""
    assert fed(profile, malformed_bytes(entry)).finish() is None


def test_every_malformed_vector_is_looked_at():
    """None of them expects a fifth thing."""
    assert sum(len(entries) for entries in MALFORMED.values()) == len(VECTORS["malformed"]) == 16


@pytest.mark.parametrize("entry", SEED_VECTORS["messages_rejected"], ids=lambda entry: entry["why"])
def test_vector_of_no_message(entry):
    """A body too long, a time before 1970, a payload without a whole head."""
    time = bytes.fromhex(entry.get("timestamp_hex", "00" * 8))
    payload = (GROUP.group_id + time + spelled(entry.get("body", "pattern(0)")))[: entry.get("payload_length")]
    expected = Refusal.TIMESTAMP if "timestamp_hex" in entry else Refusal.MESSAGE_LENGTH

    assert fed(SEED, framed(SEED, 1, payload)).refusal is expected


# Headers


def legal(profile, kind, length):
    """Return whether a payload may have this length, by the tables of the digest (1 and 7)."""
    if kind == 1:
        return profile.body_bytes_min + 40 <= length <= 32_808
    if kind <= 3:
        return length >= 32 and length % 32 == 0 and length <= (65_504 if profile is SEED else 49_152)
    if profile is SEED or kind > 5:
        return True
    return 1 <= length <= 10 if kind == 4 else length == 16


@BY_NAME
@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4, 5, 6, 255])
def test_header_alone_is_judged(profile, kind):
    """Of every edge and a thousand lengths between: what may not come is refused before a byte of it (BSP-D9)."""
    for length in (*LENGTHS_AT_EDGES, *range(0, 65_536, 67)):
        reader = fed(profile, framed(profile, kind, b"", length=length))

        assert (reader.refusal is None) == legal(profile, kind, length), length
        assert reader.is_inside == (legal(profile, kind, length) and length > 0)


@BY_NAME
@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4, 5, 9])
def test_header_in_single_bytes_is_judged_with_its_last(profile, kind):
    """However slowly it comes."""
    header = framed(profile, kind, b"", length=65_535)
    reader = RecordReader(profile)
    for byte in header[:3]:
        reader.feed(bytes((byte,)))
        assert (reader.refusal, reader.is_inside) == (None, True)
    reader.feed(header[3:])

    assert (reader.refusal is None) == legal(profile, kind, 65_535)


@BY_NAME
@pytest.mark.parametrize("kind", [0, 1, 4, 77])
@pytest.mark.parametrize("off", [1, 2, 255])
def test_other_version_closes_whatever_the_type(profile, kind, off):
    """Also a type that we do not know, and a list that is empty too."""
    version = (profile.version + off) % 256

    assert fed(profile, framed(profile, kind, b"", version=version)).refusal is Refusal.VERSION


@BY_NAME
def test_whole_record_of_another_version_closes(profile):
    """Of every type, alone and behind records that were well."""
    front = encode(profile, message(profile))
    for record in every_record(profile):
        data = bytearray(encode(profile, record))
        data[0] ^= 1

        assert fed(profile, bytes(data)).refusal is fed(profile, front + data).refusal is Refusal.VERSION
        assert RecordReader(profile).feed(front + data) == [message(profile)]


def test_profiles_do_not_read_each_other():
    """A peer of the other profile is noticed at its first record, whatever that is."""
    for profile, other in itertools.permutations(EVERY_PROFILE):
        for record in every_record(other):
            assert fed(profile, encode(other, record)).refusal is Refusal.VERSION


@pytest.mark.parametrize(
    ("profile", "kind", "length", "refusal"),
    [
        (SEED, 0, 0, Refusal.EMPTY_LIST),
        (SEED, 2, 31, Refusal.LIST_LENGTH),
        (SEED, 3, 65_535, Refusal.LIST_LENGTH),
        (SEED, 1, 39, Refusal.MESSAGE_LENGTH),
        (SEED, 1, 32_809, Refusal.MESSAGE_LENGTH),
        (BRIAR, 1, 40, Refusal.MESSAGE_LENGTH),
        (BRIAR, 3, 49_184, Refusal.TOO_MANY_IDS),
        (BRIAR, 0, 49_185, Refusal.LIST_LENGTH),
        (BRIAR, 4, 0, Refusal.VERSIONS_LENGTH),
        (BRIAR, 4, 11, Refusal.VERSIONS_LENGTH),
        (BRIAR, 5, 15, Refusal.PRIORITY_LENGTH),
        (BRIAR, 5, 17, Refusal.PRIORITY_LENGTH),
    ],
)
def test_reason_is_told(profile, kind, length, refusal):
    """Each rule has a word of its own."""
    assert fed(profile, framed(profile, kind, b"", length=length)).refusal is refusal


@BY_NAME
@pytest.mark.parametrize("time", ["8000000000000000", "ffffffffffffffff"])
def test_time_before_1970_closes(profile, time):
    """The top bit is a sign (BSP-D1), however the bytes come."""
    data = framed(profile, 1, GROUP.group_id + bytes.fromhex(time) + b"x")

    assert fed(profile, data).refusal is Refusal.TIMESTAMP
    assert read_in_chunks(profile, data, 1)[1].refusal is Refusal.TIMESTAMP
    assert read_in_chunks(profile, data, 44)[1].refusal is Refusal.TIMESTAMP


# Writing


@BY_NAME
@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize(
    ("count", "lengths"), [(0, []), (1, [1]), (1_536, [1_536]), (1_537, [1_536, 1]), (4_000, [1_536, 1_536, 928])]
)
def test_list_is_split_at_48_kib(profile, name, count, lengths):
    """No record that we write has more than 1,536 identifiers, and none is empty (BSP-D3)."""
    data = encode_ids(profile, list_type(name), ids(count))
    records = [record for one in data for record in read_all(profile, one)]

    assert [len(record.ids) for record in records] == lengths
    assert {type(record) for record in records} <= {LISTS[name]}
    assert tuple(itertools.chain.from_iterable(record.ids for record in records)) == ids(count)
    assert IDS_WRITTEN_MAX * 32 == 48 * 1_024


@BY_NAME
def test_record_written_is_the_record_read(profile):
    """Of every type."""
    for record in every_record(profile):
        assert read_all(profile, encode(profile, record)) == [record]


@pytest.mark.parametrize(
    ("profile", "record"),
    [
        (SEED, Ack(())),
        (SEED, Ack(ids(2_048))),
        (SEED, Offer((bytes(31),))),
        (SEED, Request((bytes(31), bytes(33), b""))),
        (SEED, Versions(b"\0")),
        (SEED, Priority(bytes(16))),
        (SEED, Message(bytes(31), 0, b"")),
        (SEED, Message(bytes(32), -1, b"")),
        (SEED, Message(bytes(32), 2**63, b"")),
        (SEED, Message(bytes(32), 0, bytes(32_769))),
        (BRIAR, Message(bytes(32), 0, b"")),
        (BRIAR, Ack(ids(1_537))),
        (BRIAR, Versions(b"")),
        (BRIAR, Versions(bytes(11))),
        (BRIAR, Priority(bytes(15))),
    ],
)
def test_what_nobody_may_read_is_not_written(profile, record):
    """To write it is a mistake of ours, seen where it is made."""
    with pytest.raises(AssertionError):
        encode(profile, record)


@pytest.mark.parametrize("kind", [RecordType.MESSAGE, RecordType.VERSIONS, RecordType.PRIORITY])
def test_only_lists_have_identifiers(kind):
    """A MESSAGE lists nothing."""
    with pytest.raises(AssertionError):
        encode_ids(SEED, kind, ids(1))


# All at once


@BY_NAME
def test_bytes_that_hold_nothing_else_are_read_at_once(profile):
    """A bundle's contents: records, and no byte behind them."""
    assert read_all(profile, b"") == []
    assert read_all(profile, stream_of(profile, *every_record(profile))) == every_record(profile)


@pytest.mark.parametrize(("tail", "refusal"), [("01", Refusal.TRUNCATED), ("01000000", Refusal.EMPTY_LIST)])
def test_bytes_that_end_badly_are_malformed(tail, refusal):
    """Cut or illegal, the whole is refused, with its reason."""
    with pytest.raises(MalformedError, match=rf"^{refusal.value}: after 5 records$") as caught:
        read_all(SEED, stream_of(SEED, *every_record(SEED)) + bytes.fromhex(tail))

    assert caught.value.refusal is refusal


def test_message_record_costs_76_bytes_with_its_acknowledgement():
    """specs/bsp.md 8: 44 in front of the body, and 32 of an identifier."""
    assert len(encode_message(SEED, GROUP.group_id, NOW_MS, bytes(1_000))) + 32 == 1_000 + 76


# The fuzz target


def test_fuzz_target_finds_nothing_in_its_first_inputs():
    """Bent streams are read or refused in a documented way, and every way comes up."""
    outcomes, find = fuzz(BspWireTarget(), 800, seed=5)

    assert find is None
    assert {"truncated", "version", "list_length", "message_length", "empty_list", "Message", "Ack"} <= set(outcomes)


def deaf(profile):
    """Return a reader that says something behind its refusal."""

    class Deaf(RecordReader):
        def feed(self, data):
            records = super().feed(data)
            return records or ([Ack(ids(1))] if self.refusal else [])

    return Deaf(profile)


CARELESS = {
    "deaf": deaf,
    "takes an empty body": lambda profile: RecordReader(dataclasses.replace(profile, body_bytes_min=0)),
    "takes too long a list": lambda profile: RecordReader(dataclasses.replace(profile, ids_read_max=2_047)),
    "knows a type too many": lambda profile: RecordReader(dataclasses.replace(profile, extra_types=frozenset({4, 5}))),
}


@pytest.mark.parametrize("make_reader", CARELESS.values(), ids=CARELESS)
def test_fuzz_target_sees_a_careless_reader(make_reader):
    """The target is no ornament."""
    assert fuzz(BspWireTarget(make_reader), 5_000, seed=5)[1] is not None
