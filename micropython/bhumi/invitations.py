"""Invites as people see them; in memory only meanwhile."""

import binascii
import struct
from hashlib import sha256

__all__ = ["invitation", "invite_token"]


def invite_token(key: bytes, preimage: bytes) -> str:
    """Return the 86-character token without a pairing secret, which a relay that sees it used can use itself."""
    return _base64(key + preimage)


def invitation(
    key: bytes, preimage: bytes, secret: bytes, relays: list, authority: bytes = b"", expires_s: int = 0
) -> str:
    """Return the text by which one person can pair with ``key``, in suite 4. Spec: BHUMI-PAIR.

    Args:
        key: 32 bytes: who invites.
        preimage: 32 bytes.
        secret: 32 bytes, which no relay sees.
        relays: At most eight whole addresses; further ones are left out.
        authority: SHA-256 of the certificate in DER of the relays' authority, or empty.
        expires_s: Unix seconds, 0 for never.
    """
    parts = [b"\x02", key, preimage, secret, struct.pack(">BIB", 4, expires_s, 1 if authority else 0), authority]
    relays = relays[:8]
    parts.append(bytes((len(relays),)))
    parts.extend([bytes((len(relay),)) + relay.encode() for relay in relays])
    body = b"".join(parts)
    return "bhumi:" + _base64(body + sha256(body).digest()[:4])


def _base64(data: bytes) -> str:
    text = binascii.b2a_base64(data).decode().strip()
    return text.replace("+", "-").replace("/", "_").rstrip("=")
