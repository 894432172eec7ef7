"""The worker process for LPRP proofs of work: it reads blocks to search on descriptor 0 and writes results on 1.

``sdk.lprp.solver`` starts it. It processes one block at a time, in order, and has no other state. It ends when
descriptor 0 is closed or its parent process has changed. So it needs no signal, and outlives a killed parent by at most
a second.

A block is u8 bits, u64 first counter, u32 count and the 208-byte challenge. A result is a u32 with the counters tried,
u8 success of the last one, and a u64 with the nanoseconds used. Numbers are little-endian.
"""

import os
import select
import struct
import sys
import time
from typing import Final, NamedTuple

from waystation.protocols.lprp.messages import REPLY_BYTES
from waystation.protocols.lprp.work import search

__all__ = ["ANSWER_BYTES", "Answer", "Block", "answer_block", "main"]

_BLOCK: Final = struct.Struct(f"<BQI{REPLY_BYTES}s")
_ANSWER: Final = struct.Struct("<IBQ")
ANSWER_BYTES: Final = _ANSWER.size
_BLOCKS_FD: Final = 0
_ANSWERS_FD: Final = 1
_ORPHAN_LOOK_S: Final = 0.5
_READ_BYTES: Final = 4_096


class Block(NamedTuple):
    """Counters of one search, tried in one go."""

    bits: int
    """Zero bits wanted, 0 to 255."""
    start: int
    """First counter, 0 to 2**64-1."""
    size: int
    """How many counters to try, 1 to 2**32-1."""
    challenge: bytes
    """208 bytes."""

    def encode(self) -> bytes:
        """Return the bytes that the process reads."""
        return _BLOCK.pack(*self)


class Answer(NamedTuple):
    """What became of a block."""

    tried: int
    """Counters tried: all of the block, or up to the one that was enough."""
    found: bool
    elapsed_ns: int

    @classmethod
    def decode(cls, data: bytes) -> "Answer":
        """Return the answer that ``ANSWER_BYTES`` bytes of a process hold."""
        tried, found, elapsed_ns = _ANSWER.unpack(data)
        return cls(tried, bool(found), elapsed_ns)

    def encode(self) -> bytes:
        """Return the bytes that the process writes."""
        return _ANSWER.pack(*self)


def answer_block(block: Block) -> Answer:
    """Search one block."""
    began = time.perf_counter_ns()
    counter = search(block.challenge, block.bits, block.start, block.size)
    tried = block.size if counter is None else counter - block.start + 1
    return Answer(tried, counter is not None, time.perf_counter_ns() - began)


def main(parent: int) -> None:
    """Answer blocks until the parent process is gone.

    Args:
        parent: Process id of the parent.
    """
    received = b""
    while os.getppid() == parent:
        if not select.select([_BLOCKS_FD], [], [], _ORPHAN_LOOK_S)[0]:
            continue
        data = os.read(_BLOCKS_FD, _READ_BYTES)
        if not data:
            return
        received += data
        while len(received) >= _BLOCK.size and os.getppid() == parent:
            answer = answer_block(Block(*_BLOCK.unpack_from(received)))
            received = received[_BLOCK.size :]
            os.write(_ANSWERS_FD, answer.encode())


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except BrokenPipeError:
        sys.exit(0)  # the parent process is gone
