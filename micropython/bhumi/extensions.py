"""Frames of the extension that come once or twice a connection; in memory only meanwhile. Spec: BHUMI-X."""

import struct
from hashlib import sha256

from .frames import BIND, PRESENCE, MalformedError, frame
from .port import const

__all__ = ["authority_of", "bind", "presence", "revoke_commits"]

_REVOKE_COMMITS = const(0x41)


def revoke_commits(commits: list) -> bytes:
    """Return what takes 32-byte commits out of the relay's set."""
    return struct.pack(">HIH", _REVOKE_COMMITS, 2 + 32 * len(commits), len(commits)) + b"".join(commits)


def bind(identity: bytes, challenge: bytes, sign: object) -> bytes:
    """Return BIND, the proof of being at this relay; ``challenge`` is the payload of its BIND."""
    return frame(BIND, sign(b"bhumi-bind/1" + challenge + identity))


def presence(identity: bytes, relay_id: bytes, issued_at_s: int, ttl_s: int, sign: object) -> bytes:
    """Return PRESENCE: where its owner can be reached; ``sign`` signs the 32-byte digest."""
    record = identity + relay_id + struct.pack(">QI", issued_at_s, ttl_s)
    return frame(PRESENCE, record + sign(sha256(b"bhumi-presence/1" + record).digest()))


def authority_of(payload: bytes) -> bytes:
    """Return the certificate in AUTHORITY, in DER; raises MalformedError."""
    if len(payload) < 3 or struct.unpack_from(">H", payload)[0] != len(payload) - 2:
        raise MalformedError("AUTHORITY lies about its length")
    return payload[2:]
