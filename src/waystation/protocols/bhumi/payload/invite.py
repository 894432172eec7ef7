"""Encodes and decodes invitations; each permits its holder one first request to the inviter.

An invitation is ``bhumi:`` and base64url without padding of: version u8 = 2 ‖ identity[32] ‖ preimage[32] ‖ pairing
secret[32] ‖ suite u8 ‖ expires u32 ‖ authority u8 (0 none; 1 a SHA-256 of 32 bytes follows) ‖ count u8 ‖ count times
(length u8 ‖ relay address in ASCII) ‖ check[4] = SHA-256 of all bytes before it, cut to four. Integers are big-endian.

Tokens of the first version have 86 characters: base64url of identity and preimage. They have no secret. So a relay that
sees such an invite used can use it itself. They are still read and written. Spec: BHUMI-D and BHUMI-PAIR.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from waystation.core.cursor import Cursor, ShortError
from waystation.core.errors import LocalError
from waystation.core.ids import KEY_BYTES, PublicKey
from waystation.crypto.hashing import sha256
from waystation.protocols.bhumi.extension_wire import ADDRESS_CHARS_MAX, is_address
from waystation.protocols.bhumi.messages import PREIMAGE_BYTES
from waystation.protocols.bhumi.payload.pairing import PAIRING_SECRET_BYTES, PairedSuite

__all__ = [
    "AUTHORITY_BYTES",
    "INVITE_PREFIX",
    "INVITE_RELAYS_MAX",
    "TOKEN_CHARS",
    "Invite",
    "decode_invite",
    "encode_invite",
]

TOKEN_CHARS: Final = 86  # spec 6: 64 bytes in base64url
INVITE_PREFIX: Final = "bhumi:"
INVITE_RELAYS_MAX: Final = 8  # BHUMI-PAIR: more would not fit into a QR code that a camera reads from a screen
AUTHORITY_BYTES: Final = 32  # SHA-256
_VERSION: Final = 2
_CHECK_BYTES: Final = 4
_CHARS_MAX: Final = 4_096  # above the longest invitation: eight addresses of 255 characters
_ALPHABET: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_AUTHORITY_NONE: Final = 0
_AUTHORITY_SHA256: Final = 1
_EXPIRES_MAX: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Invite:
    """The content of an invitation."""

    identity: PublicKey
    """32 bytes: who invites."""
    preimage: bytes = field(repr=False)
    """32 bytes: the right to send one message to them."""
    secret: bytes = field(default=b"", repr=False)
    """32 bytes that no relay sees; empty in tokens of the first version."""
    suite: PairedSuite | None = None
    """What the pairing is sealed in; None without a secret."""
    expires_s: int = 0
    """Unix seconds from which on the inviter refuses it, u32; 0 for never."""
    authority: bytes = b""
    """SHA-256 of the DER certificate of the authority that the relays' certificates come from; empty when not given."""
    relays: tuple[str, ...] = ()
    """Where the inviter listens, ``tls://host:port`` or ``tcp://host:port``; at most 8."""

    @property
    def is_legacy(self) -> bool:
        """Whether a relay that sees it used could use it itself."""
        return not self.secret


def encode_invite(invite: Invite) -> str:
    """Return the text of an invitation; 86 characters when it has no secret, which leaves out all but its key."""
    if invite.is_legacy:
        return _encoded(invite.identity + invite.preimage)
    assert invite.suite is not None
    assert len(invite.secret) == PAIRING_SECRET_BYTES
    assert 0 <= invite.expires_s <= _EXPIRES_MAX
    assert len(invite.authority) in {0, AUTHORITY_BYTES}
    authority = bytes((_AUTHORITY_SHA256,)) + invite.authority if invite.authority else bytes((_AUTHORITY_NONE,))
    head = bytes((_VERSION,)) + invite.identity + invite.preimage + invite.secret
    body = head + bytes((invite.suite,)) + invite.expires_s.to_bytes(4, "big") + authority + _relays(invite.relays)
    return INVITE_PREFIX + _encoded(body + sha256(body)[:_CHECK_BYTES])


def decode_invite(token: str) -> Invite:
    """Return what an invitation says, of either version.

    Raises:
        LocalError: No text, a character outside the alphabet, padding, bits behind the last byte that are not zero; a
            wrong length or check; an unknown version or suite; a relay's address that is none.
    """
    if not isinstance(token, str):
        raise LocalError(f"an invitation is a text that begins with {INVITE_PREFIX}, not {type(token).__name__}")
    if token.startswith(INVITE_PREFIX):
        return _decode(token.removeprefix(INVITE_PREFIX))
    if len(token) != TOKEN_CHARS:
        raise LocalError(
            f"an invite token begins with {INVITE_PREFIX}, or has {TOKEN_CHARS} characters and this has {len(token)}; "
            "was it copied whole?"
        )
    raw = _decoded(token)
    return Invite(identity=PublicKey(raw[:KEY_BYTES]), preimage=raw[KEY_BYTES:])


def _decode(text: str) -> Invite:
    if len(text) > _CHARS_MAX:
        raise LocalError(f"not an invite token: {len(text)} characters, at most {_CHARS_MAX}")
    raw = _decoded(text)
    body, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
    if raw and raw[0] > _VERSION:
        raise LocalError(
            f"the invite token was made by a newer version of the program (format {raw[0]}), or was not copied whole"
        )
    if not body or body[0] != _VERSION or check != sha256(body)[:_CHECK_BYTES]:
        raise LocalError("the invite token was not copied whole, or one of its characters is wrong")
    try:
        return _take_invite(Cursor(body[1:]))
    except ShortError as error:
        raise LocalError("not an invite token: it ends too early") from error


def _take_invite(cursor: Cursor) -> Invite:
    identity = PublicKey(cursor.take(KEY_BYTES))
    preimage, secret = cursor.take(PREIMAGE_BYTES), cursor.take(PAIRING_SECRET_BYTES)
    suite = cursor.take_u8()
    if suite not in PairedSuite.__members__.values():
        raise LocalError(f"the invite token is for suite {suite}, which is unknown here; a newer version made it")
    expires_s = cursor.take_u32()
    kind = cursor.take_u8()
    if kind not in {_AUTHORITY_NONE, _AUTHORITY_SHA256}:
        raise LocalError(f"not an invite token: {kind} is no kind of authority")
    authority = cursor.take(AUTHORITY_BYTES) if kind == _AUTHORITY_SHA256 else b""
    count = cursor.take_u8()
    if count > INVITE_RELAYS_MAX:
        raise LocalError(f"not an invite token: it names {count} relays, at most {INVITE_RELAYS_MAX}")
    relays = tuple(_take_relay(cursor) for _ in range(count))
    if cursor.left:
        raise LocalError(f"not an invite token: {cursor.left} bytes behind its end")
    return Invite(identity, preimage, secret, PairedSuite(suite), expires_s, authority, relays)


def _take_relay(cursor: Cursor) -> str:
    text = cursor.take(cursor.take_u8()).decode("ascii", errors="replace")
    if not is_address(text):
        raise LocalError("not an invite token: a relay's address in it is not tls://host:port or tcp://host:port")
    return text


def _relays(relays: Sequence[str]) -> bytes:
    """Return count and addresses; raises LocalError for too many, or one that is no address."""
    if len(relays) > INVITE_RELAYS_MAX:
        raise LocalError(f"an invitation names at most {INVITE_RELAYS_MAX} relays, not {len(relays)}")
    wrong = next((relay for relay in relays if not is_address(relay)), None)
    if wrong is not None:
        raise LocalError(f"{wrong!r} is no relay's address: tls://host:port, at most {ADDRESS_CHARS_MAX} characters")
    parts = (bytes((len(relay),)) + relay.encode("ascii") for relay in relays)
    return bytes((len(relays),)) + b"".join(parts)


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _decoded(text: str) -> bytes:
    """Return the bytes of base64url without padding; raises LocalError unless the text is their only spelling."""
    if not _ALPHABET.issuperset(text):
        raise LocalError("not an invite token: it has characters outside A-Z a-z 0-9 - and _")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise LocalError("not an invite token: was it copied whole?") from error
    if _encoded(raw) != text:
        raise LocalError("not an invite token: the last character has bits that must be zero")
    return raw
