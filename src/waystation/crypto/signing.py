"""Ed25519 signatures with libsodium's strict verification.

Rejected are small-order and non-canonical public keys, small-order R, and S not below the group order. All nodes
therefore agree on every borderline signature.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from nacl import bindings
from nacl.exceptions import BadSignatureError

from waystation.core.ids import KEY_BYTES, PublicKey

__all__ = ["SEED_BYTES", "SIGNATURE_BYTES", "KeyPair", "sign", "verify", "verify_any"]

SEED_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An Ed25519 key pair; build it with ``from_seed``."""

    public: PublicKey
    """32 bytes."""
    seed: bytes = field(repr=False)
    """32 bytes; everything else derives from it."""
    secret: bytes = field(repr=False)
    """64 bytes: seed and public key, libsodium's secret key."""

    @classmethod
    def from_seed(cls, seed: bytes) -> "KeyPair":
        """Return the pair that grows from a 32-byte seed."""
        assert len(seed) == SEED_BYTES
        public, secret = bindings.crypto_sign_seed_keypair(seed)
        return cls(public=PublicKey(public), seed=seed, secret=secret)


def sign(key_pair: KeyPair, message: bytes) -> bytes:
    """Return the 64-byte signature of ``message``."""
    return bytes(bindings.crypto_sign(message, key_pair.secret)[:SIGNATURE_BYTES])


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether the 64-byte ``signature`` of ``message`` is valid under the 32-byte key ``public``."""
    if len(public) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        bindings.crypto_sign_open(signature + message, public)
    except (BadSignatureError, ValueError):
        return False
    return True


def verify_any(keys: Sequence[bytes], message: bytes, signature: bytes) -> int:
    """Return the index of the first of ``keys`` under which the signature is valid, or -1."""
    for index, key in enumerate(keys):
        if verify(key, message, signature):
            return index
    return -1
