import random

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from nacl.bindings import crypto_aead_xchacha20poly1305_ietf_decrypt

from waystation.crypto.agreement import WeakKeyError, agreement_secret_of
from waystation.crypto.hashing import sha256
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.payload.envelope import HINT_BYTES, OVERHEAD_BYTES, hint_of, open_envelope, seal

ALICE = KeyPair.from_seed(bytes([0xA1]) * 32)
BOB = KeyPair.from_seed(bytes([0xB2]) * 32)
PREIMAGE = bytes([0x10]) * 32


def sealed(plaintext=b"hello", seed=1):
    """Return an envelope for Alice."""
    return seal(ALICE.public, PREIMAGE, plaintext, random.Random(seed))


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65_000])
def test_round_trip(size):
    """The recipient opens what was sealed for it; the envelope adds 80 bytes."""
    plaintext = random.Random(size).randbytes(size)

    envelope = sealed(plaintext)

    assert open_envelope(ALICE, envelope) == plaintext
    assert len(envelope) == size + OVERHEAD_BYTES == size + 80


def test_layout_by_another_implementation():
    """Another library reads the envelope field by field: hint, ephemeral key, nonce, tag, ciphertext."""
    envelope = sealed(b"hello")
    hint, ephemeral, nonce, tag, ciphertext = (
        envelope[:8], envelope[8:40], envelope[40:64], envelope[64:80], envelope[80:],
    )  # fmt: skip
    shared = X25519PrivateKey.from_private_bytes(agreement_secret_of(ALICE)).exchange(
        X25519PublicKey.from_public_bytes(ephemeral)
    )
    key = HKDF(SHA256(), 32, b"bhumi-v1", b"encrypt").derive(shared)

    assert hint == sha256(b"bhumi-hint" + PREIMAGE)[:8] == hint_of(PREIMAGE)
    assert crypto_aead_xchacha20poly1305_ietf_decrypt(ciphertext + tag, b"", nonce, key) == b"hello"


def test_only_the_recipient_opens():
    """Another identity gets nothing."""
    assert open_envelope(BOB, sealed()) is None


def test_every_changed_byte_behind_the_hint_is_noticed():
    """A flipped bit in key, nonce, tag or ciphertext makes the envelope unreadable."""
    envelope = sealed()
    for index in range(HINT_BYTES, len(envelope)):
        broken = envelope[:index] + bytes([envelope[index] ^ 1]) + envelope[index + 1 :]

        assert open_envelope(ALICE, broken) is None


def test_every_truncation_is_noticed():
    """An envelope cut anywhere opens to nothing and raises nothing."""
    envelope = sealed()
    for length in range(len(envelope)):
        assert open_envelope(ALICE, envelope[:length]) is None


def test_two_envelopes_share_only_the_hint():
    """Fresh key and nonce each time: equal messages look different except for the hint."""
    first, second = sealed(seed=1), sealed(seed=2)

    assert first[:8] == second[:8]
    assert first[8:40] != second[8:40]
    assert first[40:64] != second[40:64]


@pytest.mark.parametrize(
    "weak", [bytes(32), bytes([1]) + bytes(31), bytes([0xEC]) + bytes([0xFF]) * 30 + bytes([0x7F])]
)
def test_weak_recipient_is_refused(weak):
    """Keys of small order cannot be sealed to."""
    with pytest.raises(WeakKeyError):
        seal(weak, PREIMAGE, b"x", random.Random(1))


@pytest.mark.parametrize("point", [bytes(32), bytes([1]) + bytes(31)])
def test_all_zero_secret_is_refused(point):
    """An ephemeral key of small order gives an all-zero secret, which opens nothing."""
    envelope = sealed()

    assert open_envelope(ALICE, envelope[:8] + point + envelope[40:]) is None
