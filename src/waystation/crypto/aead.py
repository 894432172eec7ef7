"""XChaCha20-Poly1305 encryption with the tag before the ciphertext, the layout of Bhumi's device document.

It seals Bhumi's device documents (``protocols.bhumi.payload.envelope``) and LPRP's sealed payloads: a key of 32 and a
nonce of 24 bytes go in, sealed bytes come out; opening returns None for anything altered.
"""

from typing import Final

from nacl import bindings
from nacl.exceptions import CryptoError

__all__ = ["AEAD_KEY_BYTES", "NONCE_BYTES", "TAG_BYTES", "open_sealed", "seal"]

AEAD_KEY_BYTES: Final = 32
NONCE_BYTES: Final = 24
TAG_BYTES: Final = 16


def seal(key: bytes, nonce: bytes, plaintext: bytes) -> bytes:
    """Return tag (16 bytes) and ciphertext (as long as the plaintext); key 32, nonce 24 bytes, no associated data."""
    sealed = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, b"", nonce, key)
    return bytes(sealed[-TAG_BYTES:] + sealed[:-TAG_BYTES])


def open_sealed(key: bytes, nonce: bytes, sealed: bytes) -> bytes | None:
    """Return the plaintext of what ``seal`` returned, or None when it was not sealed with this key and nonce."""
    if len(sealed) < TAG_BYTES:
        return None
    ciphertext = sealed[TAG_BYTES:] + sealed[:TAG_BYTES]
    try:
        return bytes(bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(ciphertext, b"", nonce, key))
    except CryptoError:
        return None
