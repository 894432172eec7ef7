"""Identities and relays as people see them."""

__all__ = ["id52", "join_relay", "split_relay"]

_PORT = 8443
_DIGITS = "0123456789abcdefghijklmnopqrstuv"  # base32hex, lower case


def id52(key: bytes) -> str:
    """Return the 52-character text of a 32-byte key."""
    number = int.from_bytes(key, "big") << 4  # 52 characters carry 260 bits; the last four are zero
    text = ""
    for shift in range(255, -1, -5):
        text += _DIGITS[number >> shift & 31]
    return text


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
