"""Laws of crypto.small_order, against the curve's own arithmetic."""

import hashlib

import pytest

from waystation.crypto.signing import KeyPair, verify
from waystation.crypto.small_order import SMALL_ORDER_KEYS, is_small_order

PRIME = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, PRIME) % PRIME
NEUTRAL = (0, 1)
SORTED_KEYS = sorted(SMALL_ORDER_KEYS)
"""So that the names of the cases are the same in every run."""


def added(first, second):
    """Return the sum of two affine points. Source: RFC 8032 5.1."""
    (x1, y1), (x2, y2) = first, second
    bend = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + bend, -1, PRIME)
    y = (y1 * y2 + x1 * x2) * pow(1 - bend, -1, PRIME)
    return x % PRIME, y % PRIME


def multiple(factor, point):
    """Return a point added to itself ``factor`` times, by doubling."""
    total = NEUTRAL
    while factor:
        if factor & 1:
            total = added(total, point)
        point, factor = added(point, point), factor >> 1
    return total


def point_at(y):
    """Return a point with this y, or None when the curve has none. Source: RFC 8032 5.1.3."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, PRIME) % PRIME
    x = pow(square, (PRIME + 3) // 8, PRIME)
    if x * x % PRIME != square:
        x = x * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
    return (x, y) if x * x % PRIME == square else None


def small_points():
    """Return all points whose order divides 8: the multiples of one of order 8, which is the group order times any."""
    for y in range(2, 50):
        point = point_at(y)
        root = multiple(ORDER, point) if point else NEUTRAL
        found = {multiple(factor, root) for factor in range(8)}
        if len(found) == 8:
            return found
    raise AssertionError("no point of order 8 below y = 50")


def spellings(y):
    """Return every text of 32 bytes that a lenient reader takes for a point with this y."""
    numbers = [number for number in (y, y + PRIME) if number < 2**255]
    return {(number | sign << 255).to_bytes(32, "little") for number in numbers for sign in (0, 1)}


def test_keys_are_all_spellings_of_the_eight_points():
    """Nothing is missing and nothing is there besides."""
    points = small_points()

    assert all(multiple(8, point) == NEUTRAL for point in points)
    assert set().union(*(spellings(y) for _, y in points)) == SMALL_ORDER_KEYS
    assert len(SMALL_ORDER_KEYS) == 14


@pytest.mark.parametrize("key", SORTED_KEYS, ids=bytes.hex)
def test_strict_verification_refuses_the_key(key):
    """A signature that satisfies the equation under such a key, for a message chosen to fit, is still refused."""
    forged = (1).to_bytes(32, "little") + bytes(32)  # R is the neutral point, S is zero
    digests = ((b"%d" % n, hashlib.sha512(forged[:32] + key + b"%d" % n).digest()) for n in range(1_000))
    fitting = [message for message, digest in digests if digest[0] % 8 == 0]

    assert is_small_order(key)
    assert len(fitting) > 50
    assert not any(verify(key, message, forged) for message in fitting)


def test_honest_keys_have_no_small_order():
    """No key that grows from a seed is in the list, nor its neighbours."""
    keys = [KeyPair.from_seed(hashlib.sha256(b"%d" % number).digest()).public for number in range(200)]

    assert not any(is_small_order(key) for key in keys)
    assert not is_small_order((2).to_bytes(32, "little"))
    assert not is_small_order((2**255 - 21).to_bytes(32, "little"))


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33)])
def test_bytes_of_another_length_are_no_key(key):
    """Only 32 bytes can be one of them."""
    assert not is_small_order(key)
