"""Proof of work: searches and checks bytes whose hash with a challenge begins with enough zero bits.

The SDK's worker processes search, the host checks. The hash is BLAKE2b-256 over the whole 208-byte challenge and the
solution (LPRP-D7). The challenge includes the host's signature, so work cannot be done in advance, and a solution fits
one challenge only.

Spec: specs/lprp.md 6, LPRP-D7 to LPRP-D7B.
"""

from typing import Final, NamedTuple

from waystation.crypto.hashing import blake2b_256, blake2b_256_begun
from waystation.protocols.lprp.messages import REPLY_BYTES, SOLUTION_BYTES_MAX

__all__ = ["COUNTER_BYTES", "WorkProgress", "is_enough", "leading_zero_bits", "search", "solution_of", "work_hash"]

COUNTER_BYTES: Final = 8
"""Size of our own solutions; other clients may send 0 to 300 bytes (LPRP-D7A)."""


def work_hash(challenge: bytes, solution: bytes) -> bytes:
    """Return the 32 bytes whose leading zero bits count; challenge 208 bytes, solution 0 to 300."""
    assert len(challenge) == REPLY_BYTES
    assert len(solution) <= SOLUTION_BYTES_MAX
    # Spec 3: H = BLAKE2b with 32 bytes of output over the 208 bytes of the challenge and S.
    return blake2b_256(challenge + solution)


def leading_zero_bits(digest: bytes) -> int:
    """Return how many zero bits a digest begins with, from the most significant bit of its first byte."""
    return 8 * len(digest) - int.from_bytes(digest, "big").bit_length()


def is_enough(challenge: bytes, solution: bytes, bits: int) -> bool:
    """Return whether a solution of 0 to 300 bytes has at least ``bits`` (0 to 256) zero bits under a challenge."""
    return leading_zero_bits(work_hash(challenge, solution)) >= bits


def solution_of(counter: int) -> bytes:
    """Return the 8 bytes, big-endian, of a counter of 0 to 2**64-1."""
    return counter.to_bytes(COUNTER_BYTES, "big")


def search(challenge: bytes, bits: int, start: int, count: int) -> int | None:
    """Return the first counter of [start, start + count) whose solution is enough, or None.

    Call it again from ``start + count`` to go on; between two calls the caller can stop, or do other things.

    Args:
        challenge: 208 bytes.
        bits: Zero bits wanted, 0 to 256.
        start: First counter to try.
        count: How many to try; start + count is at most 2**64.

    Cost: O(count), half a microsecond each; 2**bits tries on average.
    """
    assert len(challenge) == REPLY_BYTES
    copy = blake2b_256_begun(challenge).copy
    # The greatest digest that is enough; being of one length, digests compare as the numbers they stand for.
    greatest = ((1 << _DIGEST_BITS - bits) - 1).to_bytes(_DIGEST_BITS // 8, "big")
    for counter in range(start, start + count):
        state = copy()
        state.update(counter.to_bytes(COUNTER_BYTES, "big"))
        if state.digest() <= greatest:
            return counter
    return None


_DIGEST_BITS: Final = 256


class WorkProgress(NamedTuple):
    """How far a search is; each try is a new draw, so that what is left to expect never shrinks."""

    bits: int
    hashes: int
    """Tries so far."""
    elapsed_s: float

    @property
    def rate(self) -> float:
        """Tries a second of this search, 0 before the first."""
        return self.hashes / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def expected_hashes(self) -> int:
        """Tries that a search of so many bits takes on average."""
        return 1 << self.bits

    @property
    def remaining_s(self) -> float | None:
        """Seconds still to expect, whatever was tried in vain; None before the first tries came back."""
        return self.expected_hashes / self.rate if self.rate > 0 else None

    @property
    def chance(self) -> float:
        """Share of all searches of so many bits that are done after so many tries, 0 to 1."""
        return 1.0 - (1.0 - 1.0 / self.expected_hashes) ** self.hashes
