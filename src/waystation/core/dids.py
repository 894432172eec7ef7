"""Recognises decentralised identifiers (DIDs), the texts that name Strata's authors, and finds the public key in them.

``identity_of`` takes such a text and returns the name under which relays, limits and the journal count its owner.
``did:strata:z…`` contains the base58 text of an Ed25519 key and is self-certifying. Other DIDs need a resolver. Texts
of one key with and without the ed01 prefix differ, but ``identity_of`` maps both to the key.
Spec: RFC-0001 3.3, RFC-0101 7.2; specs/strata.md 3, 4, 5 (D7).
"""

import re
from typing import Final

from waystation.core.ids import decode_key_multibase, encode_did, encode_key_multibase, key_of_did

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

_matches_did: Final = re.compile(r"did:[a-z0-9]+:[A-Za-z0-9._:%-]{1,200}").fullmatch


def is_did(text: str) -> bool:
    """Return whether the text has the form of a DID of any method."""
    return len(text) <= DID_CHARS_MAX and _matches_did(text) is not None


def identity_of(did: str) -> bytes:
    """Return what a DID is counted under: its key, so that one key is one identity in all protocols, or its text."""
    return key_of_did(did) or did.encode()
