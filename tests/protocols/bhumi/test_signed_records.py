"""Laws of protocols.bhumi.signed_records: who signed what, and until when it may be believed."""

import hashlib

import pytest

from tests.protocols.bhumi.build import ALICE, BOB
from waystation.crypto.signing import verify
from waystation.protocols.bhumi import signed_records
from waystation.protocols.bhumi.extension_messages import BindChallenge, RelayAd
from waystation.protocols.bhumi.refusals import Refusal

NOW_S = 1_700_000_000


def test_presence_signs_the_digest_of_the_document():
    """SHA-256 over the label and the first 76 bytes, signed as 32 bytes (BHUMI-27)."""
    presence = signed_records.sign_presence(ALICE, BOB.public, NOW_S, 300)
    body = ALICE.public + BOB.public + NOW_S.to_bytes(8, "big") + (300).to_bytes(4, "big")
    digest = hashlib.sha256(b"bhumi-presence/1" + body).digest()

    assert len(body) == 76
    assert verify(ALICE.public, digest, presence.signature)
    assert signed_records.is_signed(presence)


def test_advert_signs_address_and_times():
    """SHA-256 over the label and everything before the signature."""
    address = b"tcp://[2001:db8::1]:8443"
    advert = signed_records.sign_advert(BOB, address.decode(), NOW_S, 600)
    body = BOB.public + NOW_S.to_bytes(8, "big") + (600).to_bytes(4, "big") + len(address).to_bytes(2, "big") + address

    assert verify(BOB.public, hashlib.sha256(b"bhumi-relay-ad/1" + body).digest(), advert.signature)
    assert signed_records.is_signed(advert)
    assert not signed_records.is_signed(RelayAd(BOB.public, NOW_S, 600, "tcp://[2001:db8::2]:8443", advert.signature))


@pytest.mark.parametrize(
    ("issued_after_s", "ttl_s", "refusal"),
    [
        (0, 1, None),
        (0, 600, None),
        (120, 600, None),
        (-599, 600, None),
        (0, 0, Refusal.RECORD_TTL),
        (0, 601, Refusal.RECORD_TTL),
        (0, 2**32 - 1, Refusal.RECORD_TTL),
        (121, 600, Refusal.RECORD_FROM_FUTURE),
        (2**62, 600, Refusal.RECORD_FROM_FUTURE),
        (-600, 600, Refusal.RECORD_EXPIRED),
        (-NOW_S, 600, Refusal.RECORD_EXPIRED),
    ],
)
def test_times_of_a_presence(issued_after_s, ttl_s, refusal):
    """From 120 s before it begins until issued_at + ttl, never longer; 1 to 600 s (BHUMI-A20)."""
    presence = signed_records.sign_presence(ALICE, BOB.public, NOW_S + issued_after_s, ttl_s)

    assert signed_records.untimely(presence, NOW_S) is refusal


@pytest.mark.parametrize(("ttl_s", "refusal"), [(3_600, None), (3_601, Refusal.RECORD_TTL)])
def test_times_of_an_advert(ttl_s, refusal):
    """A relay may speak for an hour (BHUMI-ADVERT)."""
    assert signed_records.untimely(signed_records.sign_advert(BOB, "tcp://a:1", NOW_S, ttl_s), NOW_S) is refusal


def test_binding_names_relay_nonce_and_identity():
    """Another relay cannot use the proof (BHUMI-5)."""
    challenge = BindChallenge(BOB.public, b"\1" * 32)
    proof = signed_records.sign_binding(ALICE, challenge)

    assert verify(ALICE.public, b"bhumi-bind/1" + BOB.public + b"\1" * 32 + ALICE.public, proof)
    assert not verify(
        ALICE.public, signed_records.binding_bytes(BindChallenge(ALICE.public, b"\1" * 32), ALICE.public), proof
    )
