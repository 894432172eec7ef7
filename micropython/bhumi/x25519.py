"""X25519 (RFC 7748) in Python, and the way from Ed25519 identities to its keys.

About two seconds on an ESP32; a device needs one for each peer that it meets, and one more for the handshake.
"""

from . import sha512
from .port import make_room

__all__ = ["agree", "public_of_identity", "secret_of_seed"]

_P = 2**255 - 19


def secret_of_seed(seed: bytes) -> bytes:
    """Return the 32-byte X25519 secret of an Ed25519 seed."""
    return sha512.digest(seed)[:32]


def public_of_identity(identity: bytes) -> bytes:
    """Return the X25519 public key of an Ed25519 public key: u = (1 + y) / (1 - y)."""
    y = int.from_bytes(identity, "little") & (2**255 - 1)
    return ((1 + y) * pow(1 - y + _P, _P - 2, _P) % _P).to_bytes(32, "little")


def agree(secret: bytes, public: bytes, feed: object = None) -> bytes:
    """Return the 32-byte shared secret, or None when it is zero, which is what weak public keys come to.

    Args:
        secret: 32 bytes, clamped here.
        public: 32 bytes of the other side.
        feed: Called several times meanwhile, for a watchdog.
    """
    make_room()
    p = _P
    k = int.from_bytes(secret, "little") & (2**254 - 8) | 2**254
    x1 = (int.from_bytes(public, "little") & (2**255 - 1)) % p
    x2, z2, x3, z3 = 1, 0, x1, 1
    swap = 0
    for bit in range(254, -1, -1):
        if feed is not None and bit & 15 == 15:
            feed()
        now = k >> bit & 1
        if swap != now:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = now
        a, b = x2 + z2, x2 - z2
        aa, bb = a * a % p, b * b % p
        e = aa - bb
        da, cb = (x3 - z3) * a % p, (x3 + z3) * b % p
        x3, z3 = (da + cb) * (da + cb) % p, (da - cb) * (da - cb) % p * x1 % p
        x2, z2 = aa * bb % p, e * (aa + 121665 * e) % p
    if swap:
        x2, z2 = x3, z3
    shared = x2 * pow(z2, p - 2, p) % p
    return shared.to_bytes(32, "little") if shared else None
