"""The worker process that verifies signatures for a node: it reads batches and writes results on descriptor 0.

``server.verifier`` starts it. It imports only the signature code and keeps no state. It writes ``READY`` when it can
begin, processes one batch after another, and ends when the node's end of the socket is closed.

A batch is a u32 with the number of bytes after it, then its checks: u8 number of keys, u32 length of the message, the
64-byte signature, the keys of 32 bytes, the message. Its answer is one i8 for each check. Numbers are little-endian.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

from waystation.core.effects import SignatureCheck
from waystation.core.ids import KEY_BYTES
from waystation.crypto.signing import SIGNATURE_BYTES, verify_any

__all__ = ["READY", "decode_batch", "encode_batch", "main", "serve"]

READY: Final = b"\x7f"
_LENGTH: Final = struct.Struct("<I")
_CHECK: Final = struct.Struct("<BI")
_SOCKET_FD: Final = 0
_READ_BYTES: Final = 262_144  # two batches of 128 packets of 1 KiB


def encode_batch(checks: Sequence[SignatureCheck]) -> bytes:
    """Return a batch with its length before it; keys and signatures have their right sizes."""
    parts = [b""]
    for keys, message, signature in checks:
        parts += (_CHECK.pack(len(keys), len(message)), signature, *keys, message)
    body_bytes = sum(map(len, parts))
    parts[0] = _LENGTH.pack(body_bytes)
    return b"".join(parts)


def decode_batch(body: bytes) -> Iterator[SignatureCheck]:
    """Yield the checks of a batch without its length."""
    position = 0
    while position < len(body):
        keys_count, message_bytes = _CHECK.unpack_from(body, position)
        keys_at = position + _CHECK.size + SIGNATURE_BYTES
        message_at = keys_at + keys_count * KEY_BYTES
        position = message_at + message_bytes
        keys = tuple(body[at : at + KEY_BYTES] for at in range(keys_at, message_at, KEY_BYTES))
        yield SignatureCheck(keys, body[message_at:position], body[keys_at - SIGNATURE_BYTES : keys_at])


def serve(batches: BinaryIO, answers: BinaryIO) -> None:
    """Answer batches until there are no more of them."""
    answers.write(READY)
    while len(head := batches.read(_LENGTH.size)) == _LENGTH.size:
        body = batches.read(_LENGTH.unpack(head)[0])
        answers.write(bytes(verify_any(*check) & 0xFF for check in decode_batch(body)))


def main() -> None:
    """Serve the socket that is descriptor 0."""
    with (
        os.fdopen(_SOCKET_FD, "rb", _READ_BYTES, closefd=False) as batches,
        os.fdopen(_SOCKET_FD, "wb", 0, closefd=False) as answers,
    ):
        try:
            serve(batches, answers)
        except ConnectionError:
            return  # the node is gone


if __name__ == "__main__":
    main()
