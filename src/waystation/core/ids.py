"""Public keys and their texts: hexadecimal digits, id52, and the self-certifying DID.

All rooms use it where a key is shown or read: 32 bytes to text and back, ``LocalError`` for a text that is no key. id52
is the 52-character text of a 32-byte Ed25519 public key. It is base32hex ("extended hex", RFC 4648 section 7), lower
case, without padding; the four unused bits are zero. Spec: Bhumi v2 2.1 (BASE32_DNSSEC); BHUMI-6. ``did:strata:z…``
contains the base58 of ed01 and the key. Spec: RFC-0001 3.3, RFC-0101 7.2; specs/strata.md 3, 4.
"""

import base64
import binascii
from typing import Final, Self

from waystation.core.base58 import decode_base58, encode_base58
from waystation.core.errors import LocalError

__all__ = [
    "KEY_BYTES",
    "NODE_ID_BYTES",
    "PublicKey",
    "decode_id52",
    "decode_key_hex",
    "decode_key_multibase",
    "encode_did",
    "encode_id52",
    "encode_key_multibase",
    "key_of_did",
    "node_id_of",
]


class PublicKey(bytes):
    """32 bytes: an Ed25519 public key in its canonical encoding."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str | bytes) -> Self:
        """Return the key that a text or 32 bytes name.

        Args:
            text: 64 hexadecimal digits, an id52, a self-certifying DID (``did:strata:z…``), or the 32 bytes.

        Raises:
            LocalError: It is none of these.
        """
        if isinstance(text, bytes):
            if len(text) != KEY_BYTES:
                raise LocalError(f"a key has {KEY_BYTES} bytes, this has {len(text)}")
            return text if isinstance(text, cls) else cls(text)
        if not isinstance(text, str):
            raise LocalError(f"a key is a text or {KEY_BYTES} bytes, not {type(text).__name__}")
        stripped = text.strip()
        try:
            key = key_of_did(stripped)
            if key is None:
                key = decode_key_hex(stripped) if len(stripped) == 2 * KEY_BYTES else decode_id52(stripped)
        except LocalError as error:
            raise LocalError(
                f"a key has 64 hexadecimal digits, or 52 characters as id52, or is a did:strata; this is none: {text}"
            ) from error
        return cls(key)

    @property
    def id52(self) -> str:
        """The 52-character text."""
        return encode_id52(self)

    @property
    def did(self) -> str:
        """The self-certifying DID of the Strata family."""
        return encode_did(self)


KEY_BYTES: Final = 32
NODE_ID_BYTES: Final = 8
"""As much of a node's public key as names it in journals and tables."""
_ID52_CHARS: Final = 52
_SELF_CERTIFYING: Final = "did:strata:"
_ED25519_PREFIX: Final = b"\xed\x01"  # multicodec ed25519-pub, as an unsigned varint
_MULTIBASE_BASE58: Final = "z"
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


def encode_did(public: bytes) -> str:
    """Return the self-certifying DID of a 32-byte Ed25519 key, in the prefixed spelling that we emit."""
    return _SELF_CERTIFYING + encode_key_multibase(public)


def key_of_did(did: str) -> PublicKey | None:
    """Return the key that certifies this DID, or None when it is a name that needs a resolver."""
    if not did.startswith(_SELF_CERTIFYING):
        return None
    return decode_key_multibase(did[len(_SELF_CERTIFYING) :])


def encode_key_multibase(public: bytes) -> str:
    """Return ``z`` and the base58 of ed01 and the 32-byte key: 48 characters that begin z6Mk."""
    assert len(public) == KEY_BYTES
    return _MULTIBASE_BASE58 + encode_base58(_ED25519_PREFIX + public)


def decode_key_multibase(text: str) -> PublicKey | None:
    """Return the key whose multibase text this is, with or without the ed01 prefix, or None."""
    if not text.startswith(_MULTIBASE_BASE58):
        return None
    try:
        payload = decode_base58(text[1:])
    except LocalError:
        return None
    if len(payload) == KEY_BYTES + len(_ED25519_PREFIX) and payload.startswith(_ED25519_PREFIX):
        return PublicKey(payload[len(_ED25519_PREFIX) :])
    return PublicKey(payload) if len(payload) == KEY_BYTES else None
