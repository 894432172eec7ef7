"""ChaCha20-Poly1305 (RFC 8439) in Python; for boards suite 2 is ten times as quick."""

import struct

from .port import same

__all__ = ["open_sealed", "seal"]

_MASK = 0xFFFFFFFF
_P = (1 << 130) - 5
_ROUNDS = (
    b"\x00\x04\x08\x0c\x01\x05\x09\x0d\x02\x06\x0a\x0e\x03\x07\x0b\x0f"
    b"\x00\x05\x0a\x0f\x01\x06\x0b\x0c\x02\x07\x08\x0d\x03\x04\x09\x0e"
)


def seal(key: bytes, nonce: bytes, plain: bytes, associated: bytes) -> bytes:
    """Return the 16-byte tag and the ciphertext behind it; key 32 bytes, nonce 12."""
    sealed = _stream(key, nonce, plain)
    return _tag(key, nonce, sealed, associated) + sealed


def open_sealed(key: bytes, nonce: bytes, sealed: bytes, associated: bytes) -> bytes:
    """Return the plaintext of tag and ciphertext, or None when they are not genuine."""
    tag, sealed = sealed[:16], sealed[16:]
    if not same(tag, _tag(key, nonce, sealed, associated)):
        return None
    return _stream(key, nonce, sealed)


def _stream(key: bytes, nonce: bytes, data: bytes) -> bytes:
    size = len(data)
    done = bytearray(size)
    for start in range(0, size, 64):
        part = data[start : start + 64]
        pad = _block(key, start // 64 + 1, nonce)[: len(part)]
        mixed = int.from_bytes(part, "little") ^ int.from_bytes(pad, "little")
        done[start : start + len(part)] = mixed.to_bytes(len(part), "little")
    return bytes(done)


def _tag(key: bytes, nonce: bytes, sealed: bytes, associated: bytes) -> bytes:
    block = _block(key, 0, nonce)
    r = int.from_bytes(block[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for data in (associated, sealed, struct.pack("<QQ", len(associated), len(sealed))):
        for start in range(0, len(data), 16):
            part = data[start : start + 16] + bytes(start + 16 - len(data) if len(data) < start + 16 else 0)
            total = (total + int.from_bytes(part, "little") + (1 << 128)) * r % _P
    total += int.from_bytes(block[16:32], "little")
    return (total & (1 << 128) - 1).to_bytes(16, "little")


def _block(key: bytes, counter: int, nonce: bytes) -> bytes:
    mask, rounds = _MASK, _ROUNDS
    first = struct.unpack("<16I", b"expand 32-byte k" + key + struct.pack("<I", counter) + nonce)
    s = list(first)
    for _ in range(10):
        for index in range(0, 32, 4):
            i, j, k, m = rounds[index], rounds[index + 1], rounds[index + 2], rounds[index + 3]
            a, b, c, d = s[i], s[j], s[k], s[m]
            a = a + b & mask
            d ^= a
            d = d << 16 & mask | d >> 16
            c = c + d & mask
            b ^= c
            b = b << 12 & mask | b >> 20
            a = a + b & mask
            d ^= a
            d = d << 8 & mask | d >> 24
            c = c + d & mask
            b ^= c
            b = b << 7 & mask | b >> 25
            s[i], s[j], s[k], s[m] = a, b, c, d
    return struct.pack("<16I", *[value + start & mask for value, start in zip(s, first)])
