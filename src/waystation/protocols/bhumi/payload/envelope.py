"""The end-to-end envelope: encrypts a payload to the recipient's identity, so that the relay cannot read it.

Layout: hint[8] ‖ ephemeral X25519 public key[32] ‖ nonce[24] ‖ tag[16] ‖ ciphertext. The key is HKDF-SHA256 (salt
``bhumi-v1``, info ``encrypt``) of the secret between a fresh X25519 key and the recipient's identity. Associated data
is empty. The hint is SHA-256("bhumi-hint" ‖ preimage)[0:8]. With it a recipient finds the preimage when its relay omits
it from DELIVER; the relay itself saw the preimage in SEND. Answers use the same envelope and hint, encrypted to the
sender's identity. Spec: BHUMI-2 and BHUMI-11.

The envelope does not authenticate its author; the preimage does that (BHUMI-12).
"""

import random
from typing import Final

from waystation.core.ids import KEY_BYTES
from waystation.crypto import aead
from waystation.crypto.agreement import (
    SECRET_BYTES,
    WeakKeyError,
    agree,
    agreement_public_of,
    agreement_secret_of,
    public_of_secret,
)
from waystation.crypto.hashing import hkdf_sha256, sha256
from waystation.crypto.signing import KeyPair

__all__ = ["HINT_BYTES", "OVERHEAD_BYTES", "hint_of", "open_envelope", "seal"]

HINT_BYTES: Final = 8  # spec 6, envelope
OVERHEAD_BYTES: Final = HINT_BYTES + KEY_BYTES + aead.NONCE_BYTES + aead.TAG_BYTES
# Offsets within the envelope, from its first byte.
_EPHEMERAL_END: Final = HINT_BYTES + KEY_BYTES
_NONCE_END: Final = _EPHEMERAL_END + aead.NONCE_BYTES
_SALT: Final = b"bhumi-v1"  # BHUMI-11
_INFO: Final = b"encrypt"  # BHUMI-11
_HINT_PREFIX: Final = b"bhumi-hint"  # BHUMI-2


def hint_of(preimage: bytes) -> bytes:
    """Return the 8 bytes that let a recipient find ``preimage`` among those it gave out."""
    return sha256(_HINT_PREFIX + preimage)[:HINT_BYTES]


def seal(recipient: bytes, preimage: bytes, plaintext: bytes, rng: random.Random) -> bytes:
    """Return the envelope of ``plaintext``; 80 bytes longer.

    Args:
        recipient: 32-byte Ed25519 public key.
        preimage: 32 bytes; only its hint goes in.
        plaintext: Any bytes.
        rng: Gives the ephemeral secret and the nonce; must be cryptographically strong outside tests.

    Raises:
        WeakKeyError: The recipient's key cannot be used.
    """
    ephemeral = rng.randbytes(SECRET_BYTES)
    nonce = rng.randbytes(aead.NONCE_BYTES)
    key = _derive(agree(ephemeral, agreement_public_of(recipient)))
    return hint_of(preimage) + public_of_secret(ephemeral) + nonce + aead.seal(key, nonce, plaintext)


def open_envelope(key_pair: KeyPair, sealed: bytes) -> bytes | None:
    """Return the plaintext, or None when the bytes are no envelope for this identity; never raises."""
    if len(sealed) < OVERHEAD_BYTES:
        return None
    try:
        secret = agree(agreement_secret_of(key_pair), sealed[HINT_BYTES:_EPHEMERAL_END])
    except WeakKeyError:
        return None
    return aead.open_sealed(_derive(secret), sealed[_EPHEMERAL_END:_NONCE_END], sealed[_NONCE_END:])


def _derive(secret: bytes) -> bytes:
    return hkdf_sha256(secret, salt=_SALT, info=_INFO)
