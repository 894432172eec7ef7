"""AES-256-GCM encryption with the tag after the ciphertext, the layout of Web Crypto.

MERK clients seal messages with it (``protocols.merk.payload.sealing``), because browsers have no other authenticated
cipher. Opening returns None for anything altered.
"""

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["GCM_KEY_BYTES", "GCM_NONCE_BYTES", "GCM_TAG_BYTES", "open_gcm", "seal_gcm"]

GCM_KEY_BYTES: Final = 32
GCM_NONCE_BYTES: Final = 12
GCM_TAG_BYTES: Final = 16


def seal_gcm(key: bytes, nonce: bytes, plaintext: bytes, associated: bytes = b"") -> bytes:
    """Return ciphertext (as long as the plaintext) and tag (16 bytes); key 32, nonce 12 bytes.

    A nonce must never come twice with one key. ``associated`` is authenticated with the plaintext and not contained.
    """
    assert len(key) == GCM_KEY_BYTES
    assert len(nonce) == GCM_NONCE_BYTES
    return AESGCM(key).encrypt(nonce, plaintext, associated)


def open_gcm(key: bytes, nonce: bytes, sealed: bytes, associated: bytes = b"") -> bytes | None:
    """Return the plaintext of what ``seal_gcm`` returned, or None when it was not sealed with just these arguments."""
    assert len(key) == GCM_KEY_BYTES
    assert len(nonce) == GCM_NONCE_BYTES
    if len(sealed) < GCM_TAG_BYTES:
        return None
    try:
        return AESGCM(key).decrypt(nonce, sealed, associated)
    except InvalidTag:
        return None
