"""Identities and invites as people see them."""

import binascii

__all__ = ["id52", "invite_token", "split_relay"]

_DIGITS = "0123456789abcdefghijklmnopqrstuv"  # base32hex, lower case


def id52(key: bytes) -> str:
    """Return the 52-character text of a 32-byte key."""
    number = int.from_bytes(key, "big") << 4  # 52 characters carry 260 bits; the last four are zero
    text = ""
    for shift in range(255, -1, -5):
        text += _DIGITS[number >> shift & 31]
    return text


def invite_token(key: bytes, preimage: bytes) -> str:
    """Return the 86-character token by which one person can pair with ``key``."""
    text = binascii.b2a_base64(key + preimage).decode().strip()
    return text.replace("+", "-").replace("/", "_").rstrip("=")


def split_relay(relay: str) -> tuple:
    """Return scheme, host and port of ``tls://host:port`` or ``tcp://host:port``; raises ValueError."""
    scheme, found, rest = relay.partition("://")
    host, colon, port = rest.rpartition(":")
    host = host.strip("[]")
    if scheme not in ("tls", "tcp") or not found or not colon or not host or not port.isdigit():
        raise ValueError("not a relay address: " + relay)
    return scheme, host, int(port)
