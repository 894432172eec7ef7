"""The simulator's own codec of BSP agrees with the vectors, and with the protocol's."""

import json
from pathlib import Path

import pytest

from waystation.protocols.bsp.graph.formats import DepsV1, InvalidMessageError, deps_v1_body
from waystation.protocols.bsp.messages import Ack, Message, RecordType
from waystation.protocols.bsp.profile import PROFILES
from waystation.protocols.bsp.wire import encode, encode_ids
from waystation.sim.bsp import records

SEED = PROFILES["seed"]
IDS = [bytes([number]) * 32 for number in range(1, 70)]


def test_identifiers_are_those_of_the_profile():
    """Groups and messages are called the same by both, with and without content."""
    for descriptor, body in ((b"", b""), (b"d" * 32_768, b"b" * 32_768)):
        group_id = records.group_id_of(IDS[0], descriptor)

        assert group_id == SEED.group(IDS[0], descriptor, "opaque").group_id
        assert records.message_id_of(group_id, 5, body) == SEED.message_id(group_id, 5, body)


def test_records_are_those_of_the_wire():
    """Both write the same bytes, and what is read is what was written."""
    message = records.message_record(IDS[0], 7, b"body")
    listed = records.ids_record(records.ACK, *IDS[:2])
    read = records.read_records(listed + message)

    assert message == encode(SEED, Message(IDS[0], 7, b"body"))
    assert listed == encode(SEED, Ack((IDS[0], IDS[1])))
    assert [each.data for each in read] == [listed, message]
    assert read[0].ids == (IDS[0], IDS[1])
    assert read[1][3:] == (IDS[0], 7, b"body")
    assert read[1].ids == (records.message_id_of(IDS[0], 7, b"body"),)


def test_kinds_are_those_of_the_wire():
    """The four types have the numbers of the specification."""
    for kind in (RecordType.ACK, RecordType.OFFER, RecordType.REQUEST):
        assert records.read_records(encode_ids(SEED, kind, IDS[:3])[0])[0].kind == kind
        assert records.KINDS[kind] == kind.name


@pytest.mark.parametrize(
    "data",
    [
        b"\x01\x00\x00",
        b"\x02\x00\x00\x20" + bytes(32),
        b"\x01\x00\x00\x20" + bytes(31),
        b"\x01\x00\x00\x21" + bytes(33),
        b"\x01\x00\x00\x00",
        b"\x01\x01\x00\x27" + bytes(39),
        b"\x01\x01\x00\x28" + bytes(32) + b"\x80" + bytes(7),
        records.message_record(bytes(32), 1, bytes(32_769)),
        records.ids_record(records.OFFER, *[bytes(32)] * 2_047) + b"\x01",
    ],
)
def test_what_is_no_record_is_refused(data):
    """Headers cut off, other versions, lists and messages of a wrong length, times before 1970."""
    with pytest.raises(ValueError, match=r"record|list|message|cut off"):
        records.read_records(data)


def test_unknown_types_are_passed_over():
    """A type that nobody knows is no error and no record."""
    known = records.ids_record(records.ACK, IDS[0])

    assert [each.data for each in records.read_records(b"\x01\x09\x00\x02ab" + known)] == [known]


@pytest.mark.parametrize("count", [0, 1, 64])
def test_dependencies_are_those_of_the_format(count):
    """Bodies of format deps_v1 are written and read alike; what stands twice counts once."""
    body = records.deps_body([*IDS[:count], *IDS[: min(1, count)]], b"content")

    assert body[: 3 + 32 * count] == body[:1] + (count + min(1, count)).to_bytes(2, "big") + b"".join(IDS[:count])
    assert records.deps_body(IDS[:count], b"content") == deps_v1_body(IDS[:count], b"content")
    assert records.dependencies_of(body) == tuple(dict.fromkeys(DepsV1().parse(body))) == tuple(IDS[:count])


@pytest.mark.parametrize("body", [b"", b"\x01\x00", b"\x02\x00\x00", b"\x01\x00\x01" + bytes(31)])
def test_bodies_that_no_client_takes(body):
    """Both refuse the same bodies; more than 64 dependencies are no format's business, but no device takes them."""
    with pytest.raises(InvalidMessageError):
        DepsV1().parse(body)
    assert records.dependencies_of(body) is None
    assert records.dependencies_of(records.deps_body(IDS[:65], b"")) is None


def test_vectors_of_the_seed_profile():
    """Group identifiers of the shared vectors come out."""
    path = Path(__file__).parents[2] / "vectors" / "bsp.json"
    seed = json.loads(path.read_text())["seed_profile"]
    first = seed["groups"][0]

    assert records.group_id_of(bytes.fromhex(seed["client_id"]), b"").hex() == first["group_id"]
