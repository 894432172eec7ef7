"""List of the 14 encodings of Ed25519 keys of small order, non-canonical ones included, that nobody may use.

Under such a key, one signature is valid for many messages, so a lenient verifier accepts forgeries. ``verify`` rejects
these keys as well; this list allows a rejection without a verification.
"""

from typing import Final

__all__ = ["SMALL_ORDER_KEYS", "is_small_order"]


def is_small_order(key: bytes) -> bool:
    """Return whether a 32-byte key, in whatever spelling, is a point whose order divides 8."""
    return key in SMALL_ORDER_KEYS


# The y of the eight points, and those y that are written as a number not below the field prime 2**255 - 19; each comes
# with either sign bit. Source: RFC 8032 5.1 and 5.1.3; libsodium's ge25519_has_small_order knows the same seven.
_YS: Final = (
    0,  # order 4
    1,  # the neutral point
    0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,  # order 8
    0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,  # order 8
    2**255 - 20,  # order 2
    2**255 - 19,  # 0 again
    2**255 - 18,  # 1 again
)
_SIGN: Final = 1 << 255  # the highest bit says which of two x

SMALL_ORDER_KEYS: Final = frozenset((y | sign).to_bytes(32, "little") for y in _YS for sign in (0, _SIGN))
"""All of them, 32 bytes each."""
