"""What comes once or twice a connection, frames of the extension above all; in memory only meanwhile. Spec: BHUMI-X."""

import struct
from hashlib import sha256

from .answers import reason_of
from .frames import BIND, PRESENCE, MalformedError, frame
from .port import SetupError, const
from .tls import UnreachableError

__all__ = ["authority_of", "hint", "learn", "presence", "proof", "revoke_commits", "unshaken", "untrusted"]

_REVOKE_COMMITS = const(0x41)


def revoke_commits(commits: list) -> bytes:
    """Return what takes 32-byte commits out of the relay's set."""
    return struct.pack(">HIH", _REVOKE_COMMITS, 2 + 32 * len(commits), len(commits)) + b"".join(commits)


def proof(identity: bytes, challenge: bytes, relay: str, expected: bytes, sign: object) -> bytes:
    """Return BIND, the proof of being at this relay, by the key that it names: it cannot pass our I_AM on to another.

    Args:
        identity: 32 bytes, ours.
        challenge: The payload of its BIND.
        relay: Its address.
        expected: Its 32-byte key, or None when it may have any.
        sign: Signs a message.

    Raises:
        UnreachableError: It names another key.
    """
    if expected is not None and challenge[:32] != expected:
        raise UnreachableError("%s has another key than the one that is known" % relay)
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


def learn(relays: object, number: int, payload: bytes) -> tuple:
    """Trust what a relay shows by AUTHORITY; return an event's kind and text, or None. Raises MalformedError."""
    ca = authority_of(payload)
    try:
        if relays.add_authority(number, ca):
            return "trusted", "the next authority of " + relays.urls[number]
    except (SetupError, OSError, MemoryError) as error:
        return "trouble", "the relay's next authority cannot be kept: %s" % reason_of(error)
    return None


def hint(relay: str, is_greeted: bool) -> str:
    """Return what may be wrong with a relay that has not taken us."""
    if is_greeted:
        return "; it may not admit this device"
    if relay.startswith("tcp:"):
        return "; is this a TLS port?"
    return "; is it a Bhumi relay, and has it room for one more connection from here?"


def untrusted(relay: str, _text: str) -> str:
    """Return the sentence for a certificate that is not trusted."""
    return (
        "%s shows a certificate that is not trusted, or not made for this name; a board that was off while the "
        "relay changed its authority needs the new ca.pem, in DER, in its file" % relay
    )


def unshaken(relay: str, text: str) -> str:
    """Return the sentence for a TLS handshake that failed otherwise."""
    return "%s did not complete the TLS handshake (%s); is it a plain tcp:// listener?" % (relay, text)
