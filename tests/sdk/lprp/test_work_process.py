"""Laws of the process that searches for proofs of work."""

import os
import subprocess
import sys

from waystation.protocols.lprp.work import is_enough, solution_of
from waystation.sdk.lprp import work_process
from waystation.sdk.lprp.work_process import ANSWER_BYTES, Answer, Block, answer_block

CHALLENGE = bytes(range(208))


def start(parent=None):
    """Start the process as a child of ``parent``, of us by default."""
    command = [sys.executable, "-P", work_process.__file__, str(parent or os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_found_block_ends_at_the_counter_that_is_enough():
    """A block is tried up to the first counter with enough bits."""
    answer = answer_block(Block(8, 100, 100_000, CHALLENGE))
    last = 100 + answer.tried - 1

    assert answer.found
    assert is_enough(CHALLENGE, solution_of(last), 8)
    assert not any(is_enough(CHALLENGE, solution_of(each), 8) for each in range(100, last))


def test_vain_block_is_tried_to_its_end():
    """A block without such a counter says how many were tried, and how long that took."""
    answer = answer_block(Block(200, 0, 50, CHALLENGE))

    assert (answer.tried, answer.found) == (50, False)
    assert answer.elapsed_ns > 0


def test_answer_round_trip():
    """What the process writes is what the pool reads."""
    answer = Answer(2**32 - 1, found=True, elapsed_ns=2**63)

    assert Answer.decode(answer.encode()) == answer
    assert len(answer.encode()) == ANSWER_BYTES


def test_process_answers_blocks_in_any_chunking_and_ends_with_its_input():
    """Blocks that arrive in pieces are answered in order; the end of the input is the end of the process."""
    process = start()
    blocks = [Block(200, 0, 10, CHALLENGE), Block(0, 5, 10, CHALLENGE)]
    data = b"".join(block.encode() for block in blocks)
    for piece in (data[:100], data[100:300], data[300:]):
        process.stdin.write(piece)
        process.stdin.flush()
    out, _ = process.communicate(timeout=60)

    answers = [Answer.decode(out[at * ANSWER_BYTES :][:ANSWER_BYTES]) for at in range(2)]
    assert [(each.tried, each.found) for each in answers] == [(10, False), (1, True)]
    assert process.returncode == 0


def test_process_of_another_parent_ends():
    """A process whose parent is gone ends although its input is still open."""
    process = start(parent=1)

    assert process.wait(10) == 0
    process.stdin.close()
    process.stdout.close()
