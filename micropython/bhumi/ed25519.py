"""Ed25519 signatures (RFC 8032) in Python.

A signature takes about a second on an ESP32; a device needs two for each connection. ``keys.use_native`` puts something
quicker in, such as a user module around the board's crypto hardware. The arithmetic here is not constant in time:
whoever can measure the board's power or its exact timing can learn the key.
"""

from . import sha512
from .ed25519_table import POINTS
from .port import make_room

__all__ = ["public_of", "sign"]

_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493


def public_of(seed: bytes, feed: object = None) -> bytes:
    """Return the 32-byte public key of a 32-byte seed; ``feed`` is called several times meanwhile."""
    return _times_base(_scalar(sha512.digest(seed)), feed)


def sign(seed: bytes, public: bytes, message: bytes, feed: object = None) -> bytes:
    """Return the 64-byte signature.

    Args:
        seed: 32 bytes, the secret.
        public: Its ``public_of``.
        message: Any bytes.
        feed: Called several times meanwhile, for a watchdog.
    """
    make_room()  # some hundred kilobytes of big numbers come and go
    hashed = sha512.digest(seed)
    once = int.from_bytes(sha512.digest(hashed[32:] + message), "little") % _L
    point = _times_base(once, feed)
    challenge = int.from_bytes(sha512.digest(point + public + message), "little") % _L
    answer = (once + challenge * _scalar(hashed)) % _L
    return point + answer.to_bytes(32, "little")


def _scalar(hashed: bytes) -> int:
    number = int.from_bytes(hashed[:32], "little")
    return number & (2**254 - 8) | 2**254


def _times_base(scalar: int, feed: object) -> bytes:
    """Return scalar * B, encoded: a comb of four teeth, 64 doublings and as many additions from the table."""
    p = _P
    x, y, z, t = 0, 1, 1, 0
    for bit in range(63, -1, -1):
        if feed is not None and bit & 7 == 7:
            feed()
        # Doubling, dbl-2008-hwcd for a = -1.
        a, b = x * x % p, y * y % p
        e, g, h = ((x + y) * (x + y) - a - b) % p, b - a, a + b
        f = g - 2 * z * z
        x, y, z, t = e * f % p, -g * h % p, f * g % p, -e * h % p
        tooth = scalar >> bit & 1 | scalar >> bit + 63 & 2 | scalar >> bit + 126 & 4 | scalar >> bit + 189 & 8
        minus, plus, product = _entry(tooth)
        # Addition of a point with z = 1, madd-2008-hwcd-3.
        a, b, c = (y - x) * minus % p, (y + x) * plus % p, t * product % p
        e, f, g, h = b - a, 2 * z - c, 2 * z + c, b + a
        x, y, z, t = e * f % p, g * h % p, f * g % p, e * h % p
    inverse = pow(z, p - 2, p)
    x, y = x * inverse % p, y * inverse % p
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _entry(index: int) -> tuple:
    start = 96 * index
    return (
        int.from_bytes(POINTS[start : start + 32], "little"),
        int.from_bytes(POINTS[start + 32 : start + 64], "little"),
        int.from_bytes(POINTS[start + 64 : start + 96], "little"),
    )
