"""Seals and opens the content of a suite's envelope, once its keys and its header are known.

What follows the header of every suite: nonce[12] ‖ tag[16] ‖ ciphertext. The header is authenticated with the
ciphertext. Spec: BHUMI-SUITE.
"""

import random
from enum import Enum, auto
from typing import Final

from waystation.crypto.aead_chacha import (
    CHACHA_KEY_BYTES,
    CHACHA_NONCE_BYTES,
    CHACHA_TAG_BYTES,
    open_chacha,
    seal_chacha,
)
from waystation.crypto.aead_ctr import CTR_KEY_BYTES, CTR_NONCE_BYTES, CTR_TAG_BYTES, open_ctr, seal_ctr

__all__ = ["KEYS_BYTES", "NONCE_BYTES", "TAG_BYTES", "Cipher", "open_body", "seal_body"]

KEYS_BYTES: Final = 64  # BHUMI-SUITE: two keys of 32 bytes, of which ChaCha20-Poly1305 uses the first
NONCE_BYTES: Final = 12  # RFC 8439 2.8
TAG_BYTES: Final = 16  # RFC 8439 2.8
assert CTR_KEY_BYTES == KEYS_BYTES
assert CHACHA_NONCE_BYTES == CTR_NONCE_BYTES == NONCE_BYTES
assert CHACHA_TAG_BYTES == CTR_TAG_BYTES == TAG_BYTES


class Cipher(Enum):
    """What seals the content."""

    CHACHA = auto()
    """ChaCha20-Poly1305 of RFC 8439."""
    AES_CTR = auto()
    """AES-256-CTR and HMAC-SHA256, of which 16 bytes are the tag."""


def seal_body(cipher: Cipher, keys: bytes, header: bytes, plaintext: bytes, rng: random.Random) -> bytes:
    """Return header, nonce, tag and ciphertext; 28 bytes longer than header and ``plaintext``.

    Args:
        cipher: How to seal.
        keys: 64 bytes.
        header: Everything before the nonce.
        plaintext: Any bytes.
        rng: Gives the nonce; must be cryptographically strong outside tests.
    """
    nonce = rng.randbytes(NONCE_BYTES)
    if cipher is Cipher.AES_CTR:
        return header + nonce + seal_ctr(keys, nonce, plaintext, header)
    sealed = seal_chacha(keys[:CHACHA_KEY_BYTES], nonce, plaintext, header)
    return header + nonce + sealed[-TAG_BYTES:] + sealed[:-TAG_BYTES]


def open_body(cipher: Cipher, keys: bytes, header_bytes: int, sealed: bytes) -> bytes | None:
    """Return the plaintext of an envelope that has at least a nonce and a tag behind its header, or None."""
    header, nonce = sealed[:header_bytes], sealed[header_bytes : header_bytes + NONCE_BYTES]
    body = sealed[header_bytes + NONCE_BYTES :]
    if cipher is Cipher.AES_CTR:
        return open_ctr(keys, nonce, body, header)
    return open_chacha(keys[:CHACHA_KEY_BYTES], nonce, body[TAG_BYTES:] + body[:TAG_BYTES], header)
