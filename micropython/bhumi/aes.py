"""AES-256 in counter mode on whatever AES there is.

MicroPython's ``cryptolib`` refuses counter mode in many builds, so that blocks of the counter are encrypted one by one
(ECB), which is the same; CPython has the library cryptography.
"""

import struct

try:
    from cryptolib import aes

    def _ecb(key: bytes) -> object:
        return aes(key, 1).encrypt

except ImportError:  # CPython

    def _ecb(key: bytes) -> object:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update  # noqa: S305 - counter mode is built on it


__all__ = ["stream"]

_PART_BYTES = 512  # so that a large payload needs no large numbers


def stream(key: bytes, nonce: bytes, data: bytes) -> bytes:
    """Return the data encrypted or decrypted; key 32 bytes, nonce 12, the counter begins with 0."""
    encrypt = _ecb(key)
    done = []
    for start in range(0, len(data), _PART_BYTES):
        part = data[start : start + _PART_BYTES]
        size = len(part)
        first = start // 16
        counters = b"".join([nonce + struct.pack(">I", n) for n in range(first, first + (size + 15) // 16)])
        pad = encrypt(counters)[:size]
        done.append((int.from_bytes(part, "big") ^ int.from_bytes(pad, "big")).to_bytes(size, "big"))
    return done[0] if len(done) == 1 else b"".join(done)
