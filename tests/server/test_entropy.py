"""Laws of server.entropy: the interface of random.Random over bytes nobody can predict, each used once."""

import random

import pytest

from waystation.server import entropy
from waystation.server.entropy import SystemEntropy


@pytest.fixture
def kernel(monkeypatch):
    """Count up instead of drawing from the kernel, and remember how much was asked for."""
    asked = []

    def urandom(size):
        asked.append(size)
        return bytes(number % 251 for number in range(size))

    monkeypatch.setattr(entropy.os, "urandom", urandom)
    return asked


def test_bytes_are_handed_out_in_order_and_once(kernel):
    """Successive draws are successive bytes of one block; the kernel is asked once for many draws."""
    rng = SystemEntropy()
    drawn = [rng.randbytes(size) for size in (4, 1, 8, 0)]

    assert drawn == [bytes(range(4)), bytes([4]), bytes(range(5, 13)), b""]
    assert kernel == [4_096]


def test_rest_of_a_block_is_never_stretched(kernel):
    """When a block has too little left a fresh one is fetched; a large draw gets a block of its own size."""
    rng = SystemEntropy()
    sizes = [len(rng.randbytes(size)) for size in (4_090, 7, 5_000)]

    assert sizes == [4_090, 7, 5_000]
    assert kernel == [4_096, 4_096, 5_000]


@pytest.mark.parametrize("bits", [1, 7, 8, 9, 32, 53, 64, 100])
def test_integers_fill_their_range(bits):
    """``getrandbits`` stays below 2**k and reaches its highest bit."""
    rng = SystemEntropy()
    drawn = [rng.getrandbits(bits) for _ in range(200)]

    assert all(0 <= number < 2**bits for number in drawn)
    assert any(number >> (bits - 1) for number in drawn)


def test_zero_bits_are_zero():
    """No bits asked for, none drawn."""
    assert SystemEntropy().getrandbits(0) == 0


def test_floats_are_in_the_unit_interval():
    """``random`` is in [0, 1) and spreads."""
    rng = SystemEntropy()
    drawn = [rng.random() for _ in range(500)]

    assert all(0 <= number < 1 for number in drawn)
    assert min(drawn) < 0.1 and max(drawn) > 0.9


def test_seeding_changes_nothing():
    """Two generators with one seed are as unlike as any two."""
    first, second = SystemEntropy(), SystemEntropy()
    first.seed(1)
    second.seed(1)

    assert first.randbytes(16) != second.randbytes(16)


def test_methods_of_random_work_on_it():
    """What ``random.Random`` builds on these draws works: choices, ranges, shuffles."""
    rng = SystemEntropy()
    shuffled = list(range(50))
    rng.shuffle(shuffled)

    assert isinstance(rng, random.Random)
    assert sorted(shuffled) == list(range(50))
    assert all(rng.randrange(10) in range(10) for _ in range(100))
