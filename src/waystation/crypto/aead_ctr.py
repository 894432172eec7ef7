"""AES-256-CTR encryption with HMAC-SHA256, for chips that accelerate both but not ChaCha20.

Bhumi's ``payload.sealing`` uses it where the two sides choose that cipher suite. Opening returns None for anything
altered. The counter block is the nonce (12 bytes) and a big-endian u32 that starts at 0. The tag is the first half of
the HMAC over associated data, nonce and ciphertext. It precedes the ciphertext. Spec: BHUMI-SUITE.
"""

import hmac
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

__all__ = ["CTR_KEY_BYTES", "CTR_NONCE_BYTES", "CTR_TAG_BYTES", "open_ctr", "seal_ctr"]

CTR_KEY_BYTES: Final = 64
"""32 for AES, then 32 for HMAC."""
CTR_NONCE_BYTES: Final = 12
CTR_TAG_BYTES: Final = 16
_CIPHER_KEY_BYTES: Final = 32
_FIRST_COUNTER: Final = bytes(4)


def seal_ctr(key: bytes, nonce: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """Return tag (16 bytes) and ciphertext (as long as the plaintext, below 64 GiB); key 64, nonce 12 bytes.

    A nonce must never come twice with one key. ``associated`` must contain its own length: the tag covers it right
    before the nonce.
    """
    ciphertext = _turned(key, nonce, plaintext)
    return _tag(key, nonce, ciphertext, associated) + ciphertext


def open_ctr(key: bytes, nonce: bytes, sealed: bytes, associated: bytes) -> bytes | None:
    """Return the plaintext of what ``seal_ctr`` returned, or None when it was not sealed with these."""
    if len(sealed) < CTR_TAG_BYTES:
        return None
    tag, ciphertext = sealed[:CTR_TAG_BYTES], sealed[CTR_TAG_BYTES:]
    if not hmac.compare_digest(tag, _tag(key, nonce, ciphertext, associated)):
        return None
    return _turned(key, nonce, ciphertext)


def _turned(key: bytes, nonce: bytes, data: bytes) -> bytes:
    """Return plaintext as ciphertext, and ciphertext as plaintext."""
    assert len(key) == CTR_KEY_BYTES
    assert len(nonce) == CTR_NONCE_BYTES
    stream = Cipher(AES256(key[:_CIPHER_KEY_BYTES]), CTR(nonce + _FIRST_COUNTER)).encryptor()
    return stream.update(data) + stream.finalize()


def _tag(key: bytes, nonce: bytes, ciphertext: bytes, associated: bytes) -> bytes:
    whole = hmac.digest(key[_CIPHER_KEY_BYTES:], associated + nonce + ciphertext, "sha256")
    return whole[:CTR_TAG_BYTES]
