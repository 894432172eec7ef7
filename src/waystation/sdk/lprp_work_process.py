"""A process that searches for proofs of work: blocks to search come in on descriptor 0, what was found leaves by 1.

It knows one block at a time and keeps nothing. It ends when the other end of descriptor 0 is gone or when another
process has become its parent: nobody has to end it, and it outlives a killed parent by no more than a second.

A block is a u32 ticket, u8 bits, u64 first counter, u32 count and the 208-byte challenge; its answer is the ticket, a
u32 with the counters tried, a u8 that says whether the last of them was enough, and a u64 with the nanoseconds it took.
Numbers are little-endian.
"""

import os
import select
import struct
import sys
import time
from typing import Final, NamedTuple

from waystation.protocols.lprp.messages import REPLY_BYTES
from waystation.protocols.lprp.work import search

__all__ = ["ANSWER_BYTES", "READY", "Answer", "Block", "answer_block", "main"]

READY: Final = b"\x7f"
"""The first byte of a process that can begin."""
_BLOCK: Final = struct.Struct(f"<IBQI{REPLY_BYTES}s")
_ANSWER: Final = struct.Struct("<IIBQ")
ANSWER_BYTES: Final = _ANSWER.size
_BLOCKS_FD: Final = 0
_ANSWERS_FD: Final = 1
_ORPHAN_LOOK_S: Final = 0.5
_READ_BYTES: Final = 4_096


class Block(NamedTuple):
    """Counters of one search, tried in one go."""

    ticket: int
    """Of the search, 0 to 2**32-1."""
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

    ticket: int
    tried: int
    """Counters tried: all of the block, or up to the one that was enough."""
    found: bool
    elapsed_ns: int

    @classmethod
    def decode(cls, data: bytes) -> "Answer":
        """Return the answer that ``ANSWER_BYTES`` bytes of a process hold."""
        ticket, tried, found, elapsed_ns = _ANSWER.unpack(data)
        return cls(ticket, tried, bool(found), elapsed_ns)

    def encode(self) -> bytes:
        """Return the bytes that the process writes."""
        return _ANSWER.pack(*self)


def answer_block(block: Block) -> Answer:
    """Search one block."""
    began = time.perf_counter_ns()
    counter = search(block.challenge, block.bits, block.start, block.size)
    tried = block.size if counter is None else counter - block.start + 1
    return Answer(block.ticket, tried, counter is not None, time.perf_counter_ns() - began)


def main(parent: int) -> None:
    """Answer blocks until nobody can ask any more.

    Args:
        parent: Process id of whoever started us.
    """
    os.write(_ANSWERS_FD, READY)
    heard = b""
    while os.getppid() == parent:
        if not select.select([_BLOCKS_FD], [], [], _ORPHAN_LOOK_S)[0]:
            continue
        data = os.read(_BLOCKS_FD, _READ_BYTES)
        if not data:
            return
        heard += data
        while len(heard) >= _BLOCK.size and os.getppid() == parent:
            answer = answer_block(Block(*_BLOCK.unpack_from(heard)))
            heard = heard[_BLOCK.size :]
            os.write(_ANSWERS_FD, answer.encode())


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except BrokenPipeError:
        sys.exit(0)  # nobody is there to hear the answer
