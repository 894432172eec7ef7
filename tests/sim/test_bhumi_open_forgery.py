"""Every forgery is well formed, and none of them is signed by who it names."""

import random

import pytest

from tests.sim.build_bhumi_open import DEVICE, NOW_S, RELAY, pair
from waystation.core.addresses import is_public
from waystation.protocols.bhumi.extension_wire import decode_advert, decode_presence, encode_record, is_address
from waystation.protocols.bhumi.signed_records import is_signed, sign_advert, sign_presence
from waystation.sim import bhumi_open_forgery as forgery

FORGER = pair(66)
PRESENCE = sign_presence(DEVICE, RELAY, NOW_S, 300)
ADVERT = sign_advert(DEVICE, "tcp://relay-1.sim:4819", NOW_S, 300)


@pytest.mark.parametrize("record", [PRESENCE, ADVERT])
@pytest.mark.parametrize("seed", range(12))
def test_forged_record_is_well_formed_and_not_signed(record, seed):
    """What was altered, made fresh or prolonged decodes, differs from the original, and fails the check."""
    rng = random.Random(seed)
    decode = decode_presence if record is PRESENCE else decode_advert
    forged = [
        forgery.altered(rng, record),
        forgery.resigned(FORGER, record, NOW_S + 5),
        forgery.prolonged(rng, record),
    ]

    assert [decode(encode_record(each)) for each in forged] == forged
    assert record not in forged
    assert not any(map(is_signed, forged))


def test_prolonged_record_lasts_longer():
    """Only its end moves."""
    forged = forgery.prolonged(random.Random(1), PRESENCE)

    assert forged.ttl_s > PRESENCE.ttl_s
    assert (forged.issued_at_s, forged.signature) == (PRESENCE.issued_at_s, PRESENCE.signature)


@pytest.mark.parametrize("seed", range(4))
def test_claim_names_somebody_else(seed):
    """A presence in another's name carries no signature of theirs."""
    claim = forgery.claim_of(random.Random(seed), FORGER, DEVICE.public, RELAY, NOW_S)

    assert claim.identity == DEVICE.public
    assert not is_signed(claim)


def test_stolen_advert_names_its_victim():
    """It leads those who look for the victim elsewhere, under the thief's signature."""
    advert = forgery.stolen_advert(FORGER, DEVICE.public, "tcp://evil-0.sim:4819", NOW_S)

    assert (advert.relay_id, advert.address) == (DEVICE.public, "tcp://evil-0.sim:4819")
    assert not is_signed(advert)


@pytest.mark.parametrize("address", forgery.PRIVATE_ADDRESSES)
def test_private_addresses_are_addresses_and_not_public(address):
    """They pass the wire, and lead to no place on the open internet."""
    host = address.split("://")[1].rpartition(":")[0].strip("[]")

    assert is_address(address)
    assert not is_public(host)
    assert forgery.is_private(address)
    assert not forgery.is_private("tcp://relay-1.sim:4819")
