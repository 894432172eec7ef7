"""Hash functions, HKDF key derivation and keyed references.

All rooms above hash with it: bytes go in, digests of a fixed size come out. A keyed reference is a hash that only the
holder of the key can make; it replaces identities in the journal.
"""

import hashlib
import hmac
from typing import Final

from blake3 import blake3

__all__ = [
    "REFERENCE_BYTES",
    "blake2b_256",
    "blake2b_256_begun",
    "blake2s_256",
    "blake2s_256_begun",
    "blake3_256",
    "hkdf_expand_sha256",
    "hkdf_sha256",
    "keyed_reference",
    "sha256",
]

REFERENCE_BYTES: Final = 16
_SHA256_BYTES: Final = 32
_HKDF_BLOCKS_MAX: Final = 255  # RFC 5869 2.3: the block number is one byte


def sha256(data: bytes) -> bytes:
    """Return the 32-byte SHA-256 of ``data``."""
    return hashlib.sha256(data).digest()


def blake3_256(data: bytes) -> bytes:
    """Return the 32-byte BLAKE3 of ``data``."""
    return blake3(data).digest()


def hkdf_sha256(secret: bytes, *, salt: bytes, info: bytes, output_bytes: int = _SHA256_BYTES) -> bytes:
    """Return ``output_bytes`` (1 to 8 160, 32 by default) derived from ``secret`` by HKDF-SHA256 (RFC 5869).

    A shorter output is the beginning of a longer one.
    """
    return hkdf_expand_sha256(hmac.digest(salt, secret, "sha256"), info, output_bytes)


def hkdf_expand_sha256(root: bytes, info: bytes, output_bytes: int) -> bytes:
    """Return ``output_bytes`` (1 to 8 160) expanded from a 32-byte key as in RFC 5869 2.3."""
    assert 0 < output_bytes <= _HKDF_BLOCKS_MAX * _SHA256_BYTES
    block = output = hmac.digest(root, info + b"\x01", "sha256")
    for number in range(2, -(-output_bytes // _SHA256_BYTES) + 1):
        block = hmac.digest(root, block + info + bytes((number,)), "sha256")
        output += block
    return output[:output_bytes]


def keyed_reference(key: bytes, subject: bytes) -> bytes:
    """Return a 16-byte BLAKE2b reference to ``subject`` that only holders of ``key`` (up to 64 bytes) can make."""
    return hashlib.blake2b(subject, digest_size=REFERENCE_BYTES, key=key).digest()


def blake2b_256(data: bytes) -> bytes:
    """Return the 32-byte BLAKE2b of ``data``, unkeyed and made for 32 bytes, not cut from 64."""
    return blake2b_256_begun(data).digest()


def blake2b_256_begun(data: bytes) -> hashlib.blake2b:
    """Return the state of ``blake2b_256`` after ``data``; copy it to hash many texts that begin alike."""
    return hashlib.blake2b(data, digest_size=_BLAKE2B_256_BYTES)


def blake2s_256(data: bytes) -> bytes:
    """Return the 32-byte BLAKE2s of ``data``, unkeyed."""
    return hashlib.blake2s(data).digest()


def blake2s_256_begun(data: bytes) -> hashlib.blake2s:
    """Return the state of ``blake2s_256`` after ``data``; copy it to hash many texts that begin alike."""
    return hashlib.blake2s(data)


_BLAKE2B_256_BYTES: Final = 32
