"""The second opinion about a packet, from its signed bytes alone."""

import json

import nacl.signing
import pytest
import rfc8785
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.build import archived, forged
from tests.protocols.strata.build import PEOPLE, VECTORS, vector
from waystation.journal.archive import ArchivedPacket, encode_archive, read_packets
from waystation.pipeline.packets import PacketVerdict, check_packet

VALID = archived(1)


def row_of(packet: ArchivedPacket) -> dict:
    """Return the packet as the table has it, through the archive's own line."""
    (line,) = read_packets(encode_archive([packet], 0))
    hexes = {name: bytes.fromhex(line[name]) for name in ("packet_id", "pubkey", "sig")}
    return {**line, **hexes, "signed_bytes": line["signed_bytes"].encode()}


def verdict_of(packet: ArchivedPacket) -> PacketVerdict:
    """Return the verdict alone."""
    return check_packet(row_of(packet)).verdict


def edited(packet: ArchivedPacket, **members) -> ArchivedPacket:
    """Return the packet with other members at its top, signature and id as they were."""
    return packet._replace(canonical=rfc8785.dumps({**json.loads(packet.canonical), **members}))


def foreign(content: dict, **members) -> ArchivedPacket:
    """Return a packet that foreign libraries made and signed."""
    key = nacl.signing.SigningKey(b"s" * 32)
    body = {"version": 1, "timestamp": 5, "author_id": "did:web:a.example", "content": content, **members}
    covered = rfc8785.dumps(body)
    packet_id = blake3(covered).digest()
    signature = key.sign(covered).signature
    whole = {**body, "packet_id": "0x" + packet_id.hex(), "signature": "0x" + signature.hex()}
    return ArchivedPacket(
        1,
        "strata",
        packet_id,
        1,
        "did:web:a.example",
        content["type"],
        5,
        None,
        bytes(key.verify_key),
        rfc8785.dumps(whole),
    )


def test_valid_packet_is_valid() -> None:
    """Everything about a packet that our own code made is right."""
    check = check_packet(row_of(VALID))

    assert check == (True, True, True, PacketVerdict.VALID)


ODD = [
    {"type": "POST"},
    {"type": "POST", "packet_id": "0xno", "signature": ["nested", {"signature": 1}]},
    {"type": "MESSAGE", "ciphertext": "A" * 2_000, "n": [1e300, 0.1, -5, None, True]},
    {"type": "ü\u2028\x00\x1f\x7f𝄞", '\x01key"\\/': {"\ue000": 1, "𝄞": 2}},
]


@pytest.mark.parametrize("content", ODD)
def test_packet_of_foreign_libraries_is_valid(content: dict) -> None:
    """Names that occur deeper down, odd text and odd numbers do not disturb what is cut out."""
    odd_members = {"zz\x02": [], "𝄞": {"signature": 2}, 'a"b': 0}

    assert verdict_of(foreign(content)) is PacketVerdict.VALID
    assert verdict_of(foreign(content, **odd_members)) is PacketVerdict.VALID


TAKEN = [entry["id"] for entry in VECTORS["vectors"] if entry["kind"] == "packet" and entry["expect"]["result"] == "OK"]


@pytest.mark.parametrize("name", TAKEN)
def test_vector_that_relays_take_is_valid(name: str) -> None:
    """Each packet of the vectors that a relay accepts is valid under one of the vectors' keys."""
    packet = vector(name)["packet"]
    row = {
        "packet_id": bytes.fromhex(packet["packet_id"][2:]),
        "author_id": packet["author_id"],
        "content_type": packet["content"]["type"],
        "packet_ts": packet["timestamp"],
        "expires_at": packet.get("expires_at"),
        "sig": bytes.fromhex(packet["signature"][2:]),
        "signed_bytes": rfc8785.dumps({**packet, "signature": packet["signature"].lower()}),
    }
    found = {check_packet({**row, "pubkey": key.public}).verdict for key in PEOPLE.values()}

    assert PacketVerdict.VALID in found


def test_forged_signature_is_found() -> None:
    """Somebody else's signature makes the packet bad, and only the signature."""
    assert check_packet(row_of(forged(5))) == (True, True, False, PacketVerdict.BAD_SIGNATURE)


def test_other_key_is_found() -> None:
    """A node that names another key than the one that signed is caught."""
    assert verdict_of(VALID._replace(pubkey=archived(2).pubkey)) is PacketVerdict.BAD_SIGNATURE


@pytest.mark.parametrize("members", [{"content": {"type": "POST", "text": "other"}}, {"zz": 1}, {"version": 2}])
def test_changed_packet_has_another_id(members: dict) -> None:
    """A changed, added or replaced member breaks id and signature."""
    check = check_packet(row_of(edited(VALID, **members)))

    assert check == (True, False, False, PacketVerdict.BAD_ID)


@pytest.mark.parametrize(
    "fields",
    [
        {"packet_id": b"x" * 32},
        {"author_id": "did:strata:other"},
        {"content_type": "CONFIG"},
        {"packet_ts": 1},
        {"expires_at": 5},
    ],
)
def test_columns_must_repeat_the_packet(fields: dict) -> None:
    """A column that says something else than the signed bytes is found, though the bytes hold."""
    check = check_packet(row_of(VALID._replace(**fields)))

    assert check == (False, True, True, PacketVerdict.MISLABELLED)


def test_signature_column_must_be_the_packets() -> None:
    """A valid signature beside the bytes does not heal a packet that carries another."""
    row = row_of(forged(5)) | {"sig": row_of(archived(5))["sig"]}

    assert check_packet(row) == (False, True, True, PacketVerdict.MISLABELLED)


@pytest.mark.parametrize(
    "signed_bytes",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        VALID.canonical[:-1],
        VALID.canonical + b" ",
        b" " + VALID.canonical,
        VALID.canonical.replace(b'{"author_id"', b'{"zz":1,"zz":1,"author_id"'),
        VALID.canonical.replace(b'"version":1', b'"version": 1'),
        VALID.canonical.replace(b'"version"', b'"\\u0076ersion"'),
        b'{"a":' * 2_000,
    ],
    ids=range(11),
)
def test_bytes_that_are_no_canonical_packet_are_malformed(signed_bytes: bytes) -> None:
    """Cut, padded, doubled or otherwise spelled bytes are no packet, whatever they would say."""
    assert check_packet({**row_of(VALID), "signed_bytes": signed_bytes}).verdict is PacketVerdict.MALFORMED


@given(st.integers(0, len(VALID.canonical) - 1), st.integers(1, 255))
def test_any_changed_byte_is_found(position: int, flip: int) -> None:
    """No single byte of a packet can change without being noticed."""
    data = bytearray(VALID.canonical)
    data[position] ^= flip

    assert check_packet({**row_of(VALID), "signed_bytes": bytes(data)}).verdict is not PacketVerdict.VALID


@given(st.binary(max_size=200))
def test_any_bytes_are_judged(signed_bytes: bytes) -> None:
    """Whatever stands in the archive, a check ends with a verdict and never with an error."""
    assert check_packet({**row_of(VALID), "signed_bytes": signed_bytes}).verdict is PacketVerdict.MALFORMED
