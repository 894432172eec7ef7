"""X25519 key agreement: a secret and the other side's public key give 32 bytes that both share.

The sealing code of Bhumi, BSP, LPRP and MERK calls it. Ed25519 identity keys may be used as well. An Ed25519 key is
converted to an X25519 key by the birational map: public u = (1 + y) / (1 - y), private clamp(SHA-512(seed)[0:32]).
Spec: BHUMI-11.
"""

from typing import Final

from nacl import bindings
from nacl.exceptions import CryptoError

from waystation.core.errors import RemoteError
from waystation.crypto.signing import KeyPair

__all__ = [
    "SECRET_BYTES",
    "WeakKeyError",
    "agree",
    "agreement_public_of",
    "agreement_secret_of",
    "public_of_secret",
]

SECRET_BYTES: Final = 32


class WeakKeyError(RemoteError):
    """The other side's key is no point of the main subgroup, or the shared secret would be all zero."""


def agreement_secret_of(key_pair: KeyPair) -> bytes:
    """Return the 32-byte X25519 secret of an Ed25519 pair."""
    return bytes(bindings.crypto_sign_ed25519_sk_to_curve25519(key_pair.secret))


def agreement_public_of(public: bytes) -> bytes:
    """Return the 32-byte X25519 public key of a 32-byte Ed25519 public key.

    Raises:
        WeakKeyError: The key is not canonical, has small order, or lies off the main subgroup.
    """
    try:
        return bytes(bindings.crypto_sign_ed25519_pk_to_curve25519(public))
    except (CryptoError, ValueError, RuntimeError) as error:
        raise WeakKeyError("public key cannot be used for key agreement") from error


def public_of_secret(secret: bytes) -> bytes:
    """Return the 32-byte X25519 public key of a 32-byte secret."""
    return bytes(bindings.crypto_scalarmult_base(secret))


def agree(secret: bytes, public: bytes) -> bytes:
    """Return the 32-byte shared secret.

    Raises:
        WeakKeyError: The result would be all zero.
    """
    try:
        return bytes(bindings.crypto_scalarmult(secret, public))
    except (CryptoError, ValueError, RuntimeError) as error:
        raise WeakKeyError("key agreement gave an all-zero secret") from error
