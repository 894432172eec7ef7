"""The codec of the laws agrees with the relay's own on what is right, and reads nothing into what is not."""

import pytest

from tests.sim.build_bhumi_open import DEVICE, NOW_S, OTHER_RELAY, RELAY, advert, presence
from waystation.protocols.bhumi.extension_messages import Gossip, Relays, WhereEntry, WhereResult
from waystation.protocols.bhumi.extension_wire import encode_extension, encode_record
from waystation.protocols.bhumi.messages import Feature, Keepalive, Options
from waystation.protocols.bhumi.signed_records import sign_advert, sign_presence
from waystation.protocols.bhumi.wire import encode
from waystation.sim import bhumi_open_records as records

PRESENCE = sign_presence(DEVICE, RELAY, NOW_S, 600)
ADVERT = sign_advert(DEVICE, "tls://relay-1.sim:443", NOW_S, 3_600)


def payload_of(message):
    """Return the payload of an extension frame as the relay writes it."""
    return encode_extension(message)[6:]


def test_presence_is_read_as_it_was_signed():
    """Owner, relay and times stand where the specification puts them."""
    slip = records.read_presence(encode_record(PRESENCE))

    assert slip == (records.PRESENCE, DEVICE.public, RELAY, NOW_S, 600, "", encode_record(PRESENCE))
    assert slip.expires_at_s == NOW_S + 600


def test_advert_is_read_as_it_was_signed():
    """An advert names its relay twice: who owns it is who it is about."""
    slip = records.read_advert(encode_record(ADVERT))

    assert (slip.owner, slip.relay, slip.address) == (DEVICE.public, DEVICE.public, "tls://relay-1.sim:443")
    assert (slip.issued_at_s, slip.ttl_s, slip.kind) == (NOW_S, 3_600, records.RELAY_AD)


@pytest.mark.parametrize("slip", [presence(), advert()])
def test_signature_is_checked_against_the_digest_of_the_specification(slip):
    """What the owner signed is genuine; with one bit changed anywhere it is not."""
    bad = [slip._replace(data=slip.data[:at] + bytes([slip.data[at] ^ 1]) + slip.data[at + 1 :]) for at in (0, 70, -1)]

    assert records.is_genuine(slip)
    assert not any(map(records.is_genuine, bad))


def test_gossip_is_read_record_by_record():
    """Presences and adverts come out of a GOSSIP in their order, to the byte."""
    slips = records.read_gossip(payload_of(Gossip((PRESENCE, ADVERT))))

    assert [slip.data for slip in slips] == [encode_record(PRESENCE), encode_record(ADVERT)]
    assert records.read_gossip(payload_of(Gossip())) == []


def test_answers_are_read_with_their_addresses():
    """A WHERE_RESULT is whom it is about, and hints."""
    other = sign_presence(DEVICE, OTHER_RELAY, NOW_S + 1, 60)
    entries = (WhereEntry(other, "tcp://a.sim:1"), WhereEntry(PRESENCE, ""))
    identity, hints = records.read_where_result(payload_of(WhereResult(DEVICE.public, entries)))

    assert identity == DEVICE.public
    assert [(slip.data, address) for slip, address in hints] == [
        (encode_record(other), "tcp://a.sim:1"),
        (encode_record(PRESENCE), ""),
    ]
    assert records.read_where_result(payload_of(WhereResult(DEVICE.public))) == (DEVICE.public, [])


def test_lists_of_relays_are_read():
    """A RELAYS is its adverts."""
    slips = records.read_relays(payload_of(Relays((ADVERT, ADVERT))))

    assert [slip.data for slip in slips] == [encode_record(ADVERT)] * 2


@pytest.mark.parametrize(
    ("read", "payload"),
    [
        (records.read_gossip, payload_of(Gossip((PRESENCE, ADVERT)))),
        (records.read_relays, payload_of(Relays((ADVERT, ADVERT)))),
        (records.read_where_result, payload_of(WhereResult(DEVICE.public, (WhereEntry(PRESENCE, "tcp://a.sim:1"),)))),
        (records.read_presence, encode_record(PRESENCE)),
        (records.read_advert, encode_record(ADVERT)),
    ],
)
def test_what_is_cut_or_too_long_is_nothing(read, payload):
    """Every cut, and a byte too many, makes a structure unreadable; nothing raises."""
    assert read(payload) is not None
    assert [read(payload[:size]) for size in range(len(payload))] == [None] * len(payload)
    assert read(payload + b"\x00") is None


def test_record_with_an_unknown_tag_is_nothing():
    """GOSSIP carries presences and adverts and nothing else."""
    payload = bytearray(payload_of(Gossip((PRESENCE,))))
    payload[4] = records.WHERE

    assert records.read_gossip(bytes(payload)) is None


def test_features_are_the_bits_of_options():
    """OPTIONS is a version and 32 bits; of another length it says nothing."""
    payload = encode(Options(Feature.PRESENCE | Feature.QA))[6:]

    assert records.read_features(payload) == Feature.PRESENCE | Feature.QA
    assert records.read_features(payload) & records.PRESENCE_BIT
    assert records.read_features(payload[:-1]) == 0


@pytest.mark.parametrize("size", [1, 3, 7, 1_000])
def test_any_chunking_gives_the_same_frames(size):
    """Frames are cut by their headers, wherever the stream is."""
    stream = encode(Keepalive()) + encode_extension(PRESENCE) + encode(Keepalive()) + encode_extension(ADVERT)
    slicer = records.Slicer()
    frames = [frame for at in range(0, len(stream), size) for frame in slicer.feed(stream[at : at + size])]

    assert [kind for kind, _ in frames] == [0x06, records.PRESENCE, 0x06, records.RELAY_AD]
    assert frames[1][1] == encode_record(PRESENCE)
