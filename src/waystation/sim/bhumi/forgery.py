"""Forges Bhumi records: every change to a signed record that is possible without its owner's key.

Hostile clients and relays send the results; the invariants demand that no honest side acts on one. All choices come
from the actor's generator, so a seed forges the same again.
"""

import random
from typing import Final

from waystation.core.ids import PublicKey
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.extension_messages import Presence, RelayAd, SignedRecord
from waystation.protocols.bhumi.extension_wire import ADDRESS_CHARS_MAX
from waystation.protocols.bhumi.signed_records import sign_advert, sign_presence

__all__ = ["PRIVATE_ADDRESSES", "altered", "claim_of", "is_private", "prolonged", "resigned", "stolen_advert"]

SIGNATURE_BYTES: Final = 64
TTL_S: Final = 600
PROLONGED_S: Final = (1, 60, 600)
PRIVATE_ADDRESSES: Final = (
    "tcp://10.0.0.1:22",
    "tcp://127.0.0.1:4819",
    "tls://169.254.169.254:80",
    "tls://[::1]:443",
    "tcp://[fe80::1]:1",
    "tcp://localhost:6379",
)
"""The private ones that are named in these worlds."""


def is_private(address: str) -> bool:
    """Return whether an address is one of the private ones of these worlds."""
    return address in PRIVATE_ADDRESSES


def claim_of(rng: random.Random, key_pair: KeyPair, victim: PublicKey, relay: PublicKey, issued_at_s: int) -> Presence:
    """Return a presence of the victim: with the forger's signature, or with random bytes in its place."""
    own = sign_presence(key_pair, relay, issued_at_s, TTL_S)
    signature = own.signature if rng.random() < 1 / 2 else rng.randbytes(SIGNATURE_BYTES)
    return Presence(victim, relay, issued_at_s, TTL_S, signature)


def altered(rng: random.Random, record: SignedRecord) -> SignedRecord:
    """Return a record with one bit of it changed; of an advert's address, one letter."""
    if isinstance(record, RelayAd):
        address = record.address[:-1] + str((int(record.address[-1]) + 1) % 10)
        return RelayAd(record.relay_id, record.issued_at_s, record.ttl_s, address, record.signature)
    place = rng.randrange(4)
    relay_id = PublicKey(_flipped(rng, record.relay_id)) if place == 0 else record.relay_id
    issued_at_s = record.issued_at_s + 1 if place == 1 else record.issued_at_s
    identity = PublicKey(_flipped(rng, record.identity)) if place == 2 else record.identity
    signature = _flipped(rng, record.signature) if place == 3 else record.signature
    return Presence(identity, relay_id, issued_at_s, record.ttl_s, signature)


def resigned(key_pair: KeyPair, record: SignedRecord, issued_at_s: int) -> SignedRecord:
    """Return a record made fresh, with the forger's signature under its owner's name."""
    if isinstance(record, RelayAd):
        signature = sign_advert(key_pair, record.address, issued_at_s, record.ttl_s).signature
        return RelayAd(record.relay_id, issued_at_s, record.ttl_s, record.address, signature)
    signature = sign_presence(key_pair, record.relay_id, issued_at_s, record.ttl_s).signature
    return Presence(record.identity, record.relay_id, issued_at_s, record.ttl_s, signature)


def prolonged(rng: random.Random, record: SignedRecord) -> SignedRecord:
    """Return a record that lasts longer than its owner signed, under its owner's old signature."""
    ttl_s = record.ttl_s + rng.choice(PROLONGED_S)
    if isinstance(record, RelayAd):
        return RelayAd(record.relay_id, record.issued_at_s, ttl_s, record.address, record.signature)
    return Presence(record.identity, record.relay_id, record.issued_at_s, ttl_s, record.signature)


def stolen_advert(key_pair: KeyPair, victim: PublicKey, address: str, issued_at_s: int) -> RelayAd:
    """Return an advert that sends clients which look for ``victim`` to another address."""
    assert len(address) <= ADDRESS_CHARS_MAX
    own = sign_advert(key_pair, address, issued_at_s, TTL_S)
    return RelayAd(victim, issued_at_s, TTL_S, address, own.signature)


def _flipped(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)
