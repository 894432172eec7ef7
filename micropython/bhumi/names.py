"""Identities and invites as people see them."""

import binascii
import struct
from hashlib import sha256

__all__ = ["id52", "invitation", "invite_token", "join_relay", "split_relay"]

_PORT = 8443
_DIGITS = "0123456789abcdefghijklmnopqrstuv"  # base32hex, lower case


def id52(key: bytes) -> str:
    """Return the 52-character text of a 32-byte key."""
    number = int.from_bytes(key, "big") << 4  # 52 characters carry 260 bits; the last four are zero
    text = ""
    for shift in range(255, -1, -5):
        text += _DIGITS[number >> shift & 31]
    return text


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


def split_relay(relay: str) -> tuple:
    """Return scheme, host and port of ``tls://host:port`` or ``tcp://host:port``; raises ValueError.

    The scheme may be left out (tls) and the port, too (8443). IPv6 addresses stand in brackets.
    """
    scheme, found, rest = relay.partition("://")
    if not found:
        scheme, rest = "tls", relay
    host, port = rest, str(_PORT)
    if not rest.endswith("]"):
        before, colon, after = rest.rpartition(":")
        if colon:
            host, port = before, after
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    # A host of digits alone is a port whose host was forgotten.
    wrong = not bare or bare.isdigit() or (":" in bare) != (bare != host) or "/" in bare or " " in bare
    if wrong or scheme not in ("tls", "tcp") or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("not a relay address: " + relay)
    return scheme, bare, int(port)


def join_relay(scheme: str, host: str, port: int) -> str:
    """Return the whole address of a relay, as ``split_relay`` takes it apart."""
    return "%s://%s:%d" % (scheme, "[%s]" % host if ":" in host else host, port)


def _base64(data: bytes) -> str:
    text = binascii.b2a_base64(data).decode().strip()
    return text.replace("+", "-").replace("/", "_").rstrip("=")
