"""Laws of protocols.bhumi.extension_wire: each frame 0x41 to 0x4F there and back, and whatever lies about itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.bhumi.build import ALICE, BOB, CAROL
from waystation.protocols.bhumi import extension_wire as wire
from waystation.protocols.bhumi import signed_records
from waystation.protocols.bhumi.extension_messages import (
    FRAME_TYPES,
    Authority,
    BindChallenge,
    BindProof,
    Gossip,
    IAmOk,
    Presence,
    QaReport,
    QaRequest,
    QaVerdict,
    RelayAd,
    Relays,
    RelaysRequest,
    RevokeCommits,
    Watch,
    Watched,
    WatchState,
    Where,
    WhereEntry,
    WhereResult,
)
from waystation.protocols.bhumi.refusals import MalformedError, Refusal

PRESENCE = signed_records.sign_presence(ALICE, BOB.public, 1_700_000_000, 300)
AD = signed_records.sign_advert(BOB, "tls://relay.example:8443", 1_700_000_000, 3_600)
AS_LONG_AS_A_PRESENCE = RelayAd(BOB.public, 1, 2, "tcp://" + "a" * 22 + ":1", bytes(64))
CASES = [
    (RevokeCommits(()), wire.decode_revoke_commits, 2),
    (RevokeCommits((bytes(32), b"\1" * 32)), wire.decode_revoke_commits, 66),
    (BindChallenge(BOB.public, b"\2" * 32), wire.decode_bind_challenge, 64),
    (BindProof(b"\3" * 64), wire.decode_bind_proof, 64),
    (IAmOk(4_096, 256), wire.decode_i_am_ok, 4),
    (PRESENCE, wire.decode_presence, 140),
    (Where(ALICE.public), wire.decode_where, 32),
    (WhereResult(ALICE.public), wire.decode_where_result, 33),
    (
        WhereResult(ALICE.public, (WhereEntry(PRESENCE, AD.address), WhereEntry(PRESENCE, ""))),
        wire.decode_where_result,
        33 + 2 * 142 + 24,
    ),
    (AD, wire.decode_advert, 110 + 24),
    (RelaysRequest(), wire.decode_relays_request, 0),
    (Relays((AD, AD)), wire.decode_relays, 2 + 2 * 136),
    (QaRequest(7, "tcp://[::1]:8443", 60), wire.decode_qa_request, 8 + 16),
    (QaReport(7, QaVerdict.SLOW, 4_294_967_295), wire.decode_qa_report, 9),
    (Watch(ALICE.public), wire.decode_watch, 33),
    (Watch(ALICE.public, begins=False), wire.decode_watch, 33),
    (Watched(ALICE.public, WatchState.REFUSED), wire.decode_watched, 33),
    (Authority(b"\x30"), wire.decode_authority, 3),
    (Authority(b"\x30" * 4_096), wire.decode_authority, 4_098),
    (Gossip(), wire.decode_gossip, 2),
    (Gossip((PRESENCE, AD, AS_LONG_AS_A_PRESENCE)), wire.decode_gossip, 2 + 143 + 3 + 134 + 143),
]
IDS = [f"{type(message).__name__}-{size}" for message, _, size in CASES]


def payload_of(message):
    """Return what is inside a message's frame, whose header must tell the truth."""
    frame = wire.encode_extension(message)
    assert int.from_bytes(frame[:2], "big") == FRAME_TYPES[type(message)]
    assert int.from_bytes(frame[2:6], "big") == len(frame) - 6
    return frame[6:]


def refusal_of(decode, payload):
    """Return why ``payload`` is refused."""
    with pytest.raises(MalformedError) as caught:
        decode(payload)
    return caught.value.refusal


@pytest.mark.parametrize(("message", "decode", "size"), CASES, ids=IDS)
def test_there_and_back(message, decode, size):
    """Every message has the size that BHUMI-X gives it, and reads as it was written."""
    payload = payload_of(message)

    assert len(payload) == size
    assert decode(payload) == message


@pytest.mark.parametrize(("message", "decode", "size"), CASES, ids=IDS)
def test_cut_anywhere(message, decode, size):
    """A structure that ends early is refused at every byte, and nothing else is raised."""
    payload = payload_of(message)

    assert {refusal_of(decode, payload[:end]) for end in range(size)} <= {
        Refusal.TRUNCATED,
        Refusal.BAD_RECORD,
    }


@pytest.mark.parametrize(("message", "decode", "size"), CASES, ids=IDS)
def test_trailing_bytes(message, decode, size):
    """A structure fills its frame exactly (BHUMI-F)."""
    assert refusal_of(decode, payload_of(message) + b"\0") is Refusal.TRAILING_BYTES
    assert size >= 0


@pytest.mark.parametrize(
    ("decode", "payload", "refusal"),
    [
        (wire.decode_revoke_commits, b"\x10\x01" + bytes(4_097 * 32), Refusal.TOO_MANY_COMMITS),
        (wire.decode_revoke_commits, b"\x00\x02" + bytes(32), Refusal.TRUNCATED),
        (wire.decode_relays, b"\xff\xff" + bytes(200), Refusal.TRUNCATED),
        (wire.decode_gossip, b"\xff\xff" + bytes(200), Refusal.TRUNCATED),
        (wire.decode_where_result, bytes(32) + b"\xff" + bytes(200), Refusal.TRUNCATED),
        (wire.decode_qa_report, bytes(4) + b"\x05" + bytes(4), Refusal.BAD_VERDICT),
        (wire.decode_watch, bytes(32) + b"\x02", Refusal.BAD_WATCH),
        (wire.decode_watched, bytes(32) + b"\x03", Refusal.BAD_WATCH),
        (wire.decode_authority, bytes(2), Refusal.BAD_AUTHORITY),
        (wire.decode_authority, b"\x10\x01" + bytes(4_097), Refusal.BAD_AUTHORITY),
        (wire.decode_gossip, b"\x00\x01\x00\x00" + bytes(200), Refusal.BAD_RECORD),
        (wire.decode_gossip, b"\x00\x01\x00\x8d\x44" + bytes(139), Refusal.TRUNCATED),
        (wire.decode_gossip, b"\x00\x01\x00\x8c\x44" + bytes(139), Refusal.BAD_RECORD),
        (wire.decode_gossip, b"\x00\x01\x00\x8d\x45" + bytes(140), Refusal.BAD_RECORD),
        (wire.decode_gossip, b"\x00\x01\x00\x8d\x00" + bytes(140), Refusal.BAD_RECORD),
    ],
)
def test_lies_about_counts_and_lengths(decode, payload, refusal):
    """A count or length is checked against what is there before anything is read by it."""
    assert refusal_of(decode, payload) is refusal


@pytest.mark.parametrize(
    "address",
    [
        "",
        "relay.example:8443",
        "http://relay.example:80",
        "tls://relay.example",
        "tls://relay.example:0",
        "tls://relay.example:65536",
        "tls://relay.example:8443/path",
        "tls://user@relay.example:8443",
        "tls://relay\nexample:8443",
        "tls://relay.example:8443\n",
        "tls://r\u00e9lais.example:8443",
        "tls://" + "a" * 244 + ":65535",
    ],
)
def test_addresses_that_are_none(address):
    """Only what can be dialled and shown without further care is an address (BHUMI-ADDRESS)."""
    raw = address.encode("latin-1")
    payload = BOB.public + bytes(12) + len(raw).to_bytes(2, "big") + raw + bytes(64)

    assert refusal_of(wire.decode_advert, payload) is Refusal.BAD_ADDRESS
    assert not wire.is_address(address)


def test_longest_address():
    """255 characters are one too few for nobody."""
    address = "tls://" + "a" * 243 + ":65535"
    advert = RelayAd(BOB.public, 1, 2, address, bytes(64))

    assert len(address) == wire.ADDRESS_CHARS_MAX
    assert wire.decode_advert(payload_of(advert)) == advert
    assert len(wire.encode_record(advert)) == wire.ADVERT_BYTES_MAX


def test_gossip_passes_bytes_on_as_they_came():
    """A record that came can leave in another frame without being read (BHUMI-X: a hop changes no byte)."""
    payload = payload_of(Gossip((PRESENCE, AD)))
    records = wire.split_gossip(payload)

    assert wire.encode_gossip(records)[6:] == payload
    assert [wire.decode_tagged(record) for record in records] == [PRESENCE, AD]
    assert [wire.encode_tagged(record) for record in (PRESENCE, AD)] == records
    assert 2 + sum(wire.gossip_cost(record) for record in records) == len(payload)


@given(st.binary(max_size=400), st.sampled_from([decode for _, decode, _ in CASES]))
def test_any_bytes(payload, decode):
    """Whatever comes is read or refused; what was read is written as it came."""
    try:
        message = decode(payload)
    except MalformedError:
        return
    assert payload_of(message) == payload


@pytest.mark.parametrize("field", range(5))
def test_a_signature_covers_every_field(field):
    """A presence with any field changed is not its owner's any more (BHUMI-27)."""
    changed = [CAROL.public, CAROL.public, PRESENCE.issued_at_s + 1, PRESENCE.ttl_s + 1, bytes(64)]
    fields = [PRESENCE.identity, PRESENCE.relay_id, PRESENCE.issued_at_s, PRESENCE.ttl_s, PRESENCE.signature]
    fields[field] = changed[field]

    assert signed_records.is_signed(PRESENCE)
    assert not signed_records.is_signed(Presence(*fields))
