"""Encodes and decodes invite tokens; each permits its holder one first request to the inviter.

A token is 86 characters of base64url without padding. It contains the inviter's identity (32 bytes) and one preimage
(the 32-byte secret that permits one request). Spec: BHUMI-D.
"""

import base64
import binascii
from dataclasses import dataclass, field
from typing import Final

from waystation.core.errors import LocalError
from waystation.core.ids import KEY_BYTES, PublicKey
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES

__all__ = ["TOKEN_CHARS", "Invite", "decode_invite", "encode_invite"]

TOKEN_CHARS: Final = 86  # spec 6: 64 bytes in base64url
# Spec 6: strict length and no padding; the decoder adds it back.
_PADDING: Final = "=="  # 64 bytes are 86 characters and two signs of padding


@dataclass(frozen=True, slots=True)
class Invite:
    """The content of a token."""

    identity: PublicKey
    """32 bytes: who invites."""
    preimage: bytes = field(repr=False)
    """32 bytes: the right to send one message to them."""


def encode_invite(invite: Invite) -> str:
    """Return the 86-character token."""
    return base64.urlsafe_b64encode(invite.identity + invite.preimage).decode("ascii").rstrip("=")


def decode_invite(token: str) -> Invite:
    """Return what a token says.

    Raises:
        LocalError: No text, wrong length, a character outside the alphabet, padding, or non-zero bits behind the last
            byte.
    """
    if not isinstance(token, str):
        raise LocalError(f"an invite token is a text of {TOKEN_CHARS} characters, not {type(token).__name__}")
    if len(token) != TOKEN_CHARS:
        raise LocalError(f"an invite token has {TOKEN_CHARS} characters, this has {len(token)}; was it copied whole?")
    try:
        raw = base64.b64decode(token + _PADDING, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise LocalError("not an invite token: it has characters outside A-Z a-z 0-9 - and _") from error
    if len(raw) != KEY_BYTES + PREIMAGE_BYTES:
        raise LocalError("not an invite token: padding inside")
    invite = Invite(identity=PublicKey(raw[:KEY_BYTES]), preimage=raw[KEY_BYTES:])
    if encode_invite(invite) != token:
        raise LocalError("not an invite token: the last character has bits that must be zero")
    return invite
