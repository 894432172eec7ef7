"""Decentralised identifiers of the Strata family, and the keys that stand inside some of them.

``did:strata:z…`` with a base58 payload of an Ed25519 key certifies itself: whoever holds the key is the identity. Other
names need a resolver. DIDs are compared as texts, so the two spellings of one key are two identities.
Spec: RFC-0001 3.3, RFC-0101 7.2; specs/strata.md 3, 4, 5 (D7).
"""

import re
from typing import Final

from waystation.core.base58 import decode_base58, encode_base58
from waystation.core.errors import LocalError
from waystation.core.ids import KEY_BYTES, PublicKey

__all__ = [
    "DID_CHARS_MAX",
    "decode_key_multibase",
    "encode_did",
    "encode_key_multibase",
    "identity_of",
    "is_did",
    "key_of_did",
]

DID_CHARS_MAX: Final = 256
"""Longest text that is looked at; the identifier itself has at most 200 characters (specs/strata.md 5)."""

_SELF_CERTIFYING: Final = "did:strata:"
_ED25519_PREFIX: Final = b"\xed\x01"  # multicodec ed25519-pub, as an unsigned varint
_MULTIBASE_BASE58: Final = "z"
_matches_did: Final = re.compile(r"did:[a-z0-9]+:[A-Za-z0-9._:%-]{1,200}").fullmatch


def is_did(text: str) -> bool:
    """Return whether the text has the form of a DID of any method."""
    return len(text) <= DID_CHARS_MAX and _matches_did(text) is not None


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


def identity_of(did: str) -> bytes:
    """Return what a DID is counted under: its key, so that one key is one identity in all protocols, or its text."""
    return key_of_did(did) or did.encode()
