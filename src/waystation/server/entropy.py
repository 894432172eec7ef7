"""Provides protocol machines with random bytes from the kernel, fetched one block at a time.

``NodeServer`` passes one ``SystemEntropy`` to every relay as ``rng``; the simulator passes a seeded generator instead.
A system call per nonce or message number would cost as much as parsing its frame.
"""

import os
import random
import struct
from typing import Final

__all__ = ["SystemEntropy"]

_BLOCK_BYTES: Final = 4_096
_WORD: Final = struct.Struct(">I")
_WORD_BITS: Final = 32


class SystemEntropy(random.Random):
    """``random.Random`` over the kernel's generator; nothing it returns can be predicted or repeated.

    Every draw consumes fresh bytes, and a byte is used once.
    """

    def __init__(self) -> None:
        """Start with an empty block."""
        self._block = b""
        self._offset = 0
        super().__init__()

    def randbytes(self, n: int) -> bytes:
        """Return ``n`` random bytes."""
        end = self._offset + n
        if end > len(self._block):
            self._block = os.urandom(max(_BLOCK_BYTES, n))
            self._offset, end = 0, n
        drawn = self._block[self._offset : end]
        self._offset = end
        return drawn

    def getrandbits(self, k: int) -> int:
        """Return an integer of ``k`` random bits."""
        if k == _WORD_BITS:  # nonces and message numbers, the hot path
            return _WORD.unpack(self.randbytes(_WORD.size))[0]  # type: ignore[no-any-return]
        count = (k + 7) // 8
        return int.from_bytes(self.randbytes(count), "big") >> (8 * count - k)

    def random(self) -> float:
        """Return a float in [0, 1) of 53 random bits."""
        return self.getrandbits(53) * 2.0**-53

    def seed(self, *_args: object, **_kwargs: object) -> None:
        """Do nothing: there is no state to set."""
