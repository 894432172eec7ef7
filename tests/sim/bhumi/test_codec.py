"""The codec of the invariants agrees with the relay's own, and reads nothing into what is malformed."""

import pytest

from tests.sim.bhumi.build import DEVICE, NOW_S, OTHER_RELAY, RELAY, advert, presence
from waystation.protocols.bhumi.extension_messages import Gossip, Relays, WhereEntry, WhereResult
from waystation.protocols.bhumi.extension_wire import encode_extension, encode_record
from waystation.protocols.bhumi.signed_records import sign_advert, sign_presence
from waystation.sim.bhumi import codec

PRESENCE = sign_presence(DEVICE, RELAY, NOW_S, 600)
ADVERT = sign_advert(DEVICE, "tls://relay-1.sim:443", NOW_S, 3_600)
HINTS = (WhereEntry(sign_presence(DEVICE, OTHER_RELAY, NOW_S + 1, 60), "tcp://a.sim:1"), WhereEntry(PRESENCE, ""))


def payload_of(message):
    """Return the payload of an extension frame as the relay writes it."""
    return encode_extension(message)[6:]


def test_records_are_read_as_they_were_signed():
    """Owner, relay, times and address are where the specification puts them."""
    read, listed = codec.read_presence(encode_record(PRESENCE)), codec.read_advert(encode_record(ADVERT))

    assert read == (codec.PRESENCE, DEVICE.public, RELAY, NOW_S, 600, "", encode_record(PRESENCE))
    assert listed[:-1] == (codec.RELAY_AD, DEVICE.public, DEVICE.public, NOW_S, 3_600, "tls://relay-1.sim:443")


@pytest.mark.parametrize("record", [presence(), advert()])
@pytest.mark.parametrize("at", [0, 70, -1])
def test_signature_is_checked_against_the_digest_of_the_specification(record, at):
    """What the owner signed is genuine; with one bit changed anywhere it is not."""
    data = bytearray(record.data)
    data[at] ^= 1

    assert codec.is_genuine(record)
    assert not codec.is_genuine(record._replace(data=bytes(data)))


FRAMES = [
    (codec.GOSSIP, payload_of(Gossip((PRESENCE, ADVERT))), [PRESENCE, ADVERT]),
    (codec.RELAYS, payload_of(Relays((ADVERT, ADVERT))), [ADVERT, ADVERT]),
    (codec.WHERE_RESULT, payload_of(WhereResult(DEVICE.public, HINTS)), [hint.presence for hint in HINTS]),
    (codec.PRESENCE, encode_record(PRESENCE), [PRESENCE]),
    (codec.RELAY_AD, encode_record(ADVERT), [ADVERT]),
]


@pytest.mark.parametrize(("kind", "payload", "records"), FRAMES)
def test_frames_are_read_record_by_record(kind, payload, records):
    """Records come out of every frame that has some in their order, to the byte; a frame of another type has none."""
    assert [record.data for record in codec.read_records(kind, payload)] == list(map(encode_record, records))
    assert codec.read_records(codec.OPTIONS, payload) == []


@pytest.mark.parametrize(("kind", "payload", "_records"), FRAMES)
def test_what_is_cut_or_too_long_is_nothing(kind, payload, _records):
    """Every cut, and a byte too many, makes a frame unreadable; nothing raises."""
    cuts = [codec.read_records(kind, payload[:size]) for size in range(len(payload))]

    assert cuts == [None] * len(payload)
    assert codec.read_records(kind, payload + b"\x00") is None
