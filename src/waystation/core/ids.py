"""How keys are shown and read back.

id52 is the 52-character text of a 32-byte Ed25519 public key: base32hex ("extended hex", RFC 4648 section 7), lower
case, no padding, the four unused bits of the last character zero. Spec: Bhumi v2 2.1 (BASE32_DNSSEC); BHUMI-6.
"""

import base64
import binascii
from typing import Final, NewType

from waystation.core.errors import LocalError

__all__ = [
    "KEY_BYTES",
    "NODE_ID_BYTES",
    "PublicKey",
    "decode_id52",
    "decode_key",
    "decode_key_hex",
    "encode_id52",
    "node_id_of",
]

PublicKey = NewType("PublicKey", bytes)
"""32 bytes: an Ed25519 public key in its canonical encoding."""

KEY_BYTES: Final = 32
NODE_ID_BYTES: Final = 8
"""As much of a node's public key as names it in journals and tables."""
_ID52_CHARS: Final = 52
_PADDING: Final = "===="  # 52 characters carry 260 bits; base32 wants groups of eight characters


def encode_id52(key: bytes) -> str:
    """Return the 52-character lower-case text of a 32-byte key."""
    assert len(key) == KEY_BYTES
    return base64.b32hexencode(key).decode("ascii").rstrip("=").lower()


def decode_id52(text: str) -> PublicKey:
    """Return the 32 bytes that an id52 text names; upper case is taken too.

    Raises:
        LocalError: Wrong length, a character outside 0-9a-v, padding, or non-zero trailing bits.
    """
    if len(text) != _ID52_CHARS:
        raise LocalError(f"an id52 has {_ID52_CHARS} characters, this has {len(text)}")
    try:
        key = base64.b32hexdecode(text.upper() + _PADDING)
    except (binascii.Error, ValueError) as error:
        raise LocalError(f"not an id52: {text!r} has characters outside 0-9 and a-v") from error
    if encode_id52(key) != text.lower():
        raise LocalError("not an id52: the last character has bits that must be zero")
    return PublicKey(key)


def node_id_of(key: bytes) -> str:
    """Return what a node is called among others: 16 hexadecimal digits, the first 8 bytes of its public key."""
    return key[:NODE_ID_BYTES].hex()


def decode_key_hex(text: str) -> PublicKey:
    """Return the 32 bytes written as 64 hexadecimal digits.

    Raises:
        LocalError: Anything but 64 hexadecimal digits.
    """
    try:
        key = bytes.fromhex(text)
    except ValueError as error:
        raise LocalError(f"not a key in hexadecimal: {text!r}") from error
    if len(key) != KEY_BYTES or len(text) != 2 * KEY_BYTES:
        raise LocalError(f"a key has {2 * KEY_BYTES} hexadecimal digits, this has {len(text)} characters")
    return PublicKey(key)


def decode_key(text: str) -> PublicKey:
    """Return the 32 bytes that 64 hexadecimal digits or an id52 name.

    Raises:
        LocalError: It is neither.
    """
    return decode_id52(text) if len(text) == _ID52_CHARS else decode_key_hex(text)
