"""A process pool for LPRP proofs of work: searches run outside the event loop, report progress, and can be cancelled.

``sdk.lprp.connection`` starts a search when the host demands work. A search is split into blocks of about 20 ms. Each
process has at most two blocks, one running and one queued. Searches alternate block by block, so all get the same
share, and a cancelled one ends within two blocks. Processes start with the first search and end some seconds after the
last, or when this process dies; see ``work_process``.

If a worker process dies, its blocks are given to another one.
"""

import asyncio
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from waystation.core.errors import HostError, LocalError
from waystation.protocols.lprp.work import WorkProgress
from waystation.sdk.lprp.work_process import ANSWER_BYTES, Answer, Block

__all__ = ["SEARCHES_MAX", "Search", "WorkPool", "WorkProgress"]

SEARCHES_MAX: Final = 1_024
PROGRESS_S: Final = 0.1
BLOCK_S: Final = 0.02  # two of them are well below the 100 ms within which a cancelled search must be out
BLOCKS_PER_WORKER_MAX: Final = 2
IDLE_S: Final = 10.0  # the next search may come soon, and starting a process costs 0.1 s
FAILED_STARTS_MAX: Final = 3
_FIRST_COUNT: Final = 1 << 12  # 2 ms on a fast core, 20 ms on a small board
_COUNT_MIN: Final = 1 << 10
_COUNT_MAX: Final = 1 << 20
_COUNTERS: Final = 1 << 64
_NS_PER_S: Final = 1_000_000_000
# By its path: as a module it would load the whole package first.
_COMMAND: Final = (sys.executable, "-P", str(Path(__file__).with_name("work_process.py")))


class Search:
    """One search under way; await ``found``, or cancel it."""

    def __init__(self, block: Block, on_progress: Callable[[WorkProgress], None] | None) -> None:
        """Describe it; ``WorkPool.search`` makes one."""
        loop = asyncio.get_running_loop()
        self._block = block
        self._next = block.start
        self.again: list[Block] = []
        """Blocks that were given to a process which has died."""
        self._hashes = 0
        self._began_at = loop.time()
        self._on_progress = on_progress
        self.found: asyncio.Future[int] = loop.create_future()
        """The counter that is enough; raises HostError when no process can be kept. Cancelling it stops the search."""

    def progress(self) -> WorkProgress:
        """Return how far it is."""
        elapsed_s = asyncio.get_running_loop().time() - self._began_at
        return WorkProgress(self._block.bits, self._hashes, elapsed_s)

    def next_block(self, count: int) -> Block | None:
        """Take the next block of at most ``count`` counters; None when there are no more."""
        if self.again:
            return self.again.pop()
        start, count = self._next, min(count, _COUNTERS - self._next)
        self._next += count
        return self._block._replace(start=start, size=count) if count else None

    def take(self, block: Block, answer: Answer) -> None:
        """Count what was tried of a block, and end when a counter was enough."""
        self._hashes += answer.tried
        if answer.found and not self.found.done():
            self.report()
            self.found.set_result(block.start + answer.tried - 1)

    def report(self) -> None:
        """Report the progress."""
        if self._on_progress is not None and not self.found.done():
            self._on_progress(self.progress())


class WorkPool:
    """Processes for searches of one event loop; ``close`` it when done."""

    def __init__(self, workers_max: int | None = None, *, command: Sequence[str] = _COMMAND) -> None:
        """Prepare; nothing is started yet.

        Args:
            workers_max: How many processes there may be, at least 1; None means one per core that we may use.
            command: What to start, for tests; our process id follows it.
        """
        assert workers_max is None or workers_max > 0
        self._workers_max = _cores() if workers_max is None else workers_max
        self._command = (*command, str(os.getpid()))
        self._searches: deque[Search] = deque()
        self._workers: list[_Worker] = []
        self._failed_starts = 0
        self._idle = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def workers_count(self) -> int:
        """How many processes there are."""
        return len(self._workers)

    @property
    def searches_count(self) -> int:
        """How many searches are under way."""
        return sum(not search.found.done() for search in self._searches)

    def search(
        self, challenge: bytes, bits: int, *, start: int = 0, on_progress: Callable[[WorkProgress], None] | None = None
    ) -> Search:
        """Begin to search for a counter from ``start`` on whose hash has at least ``bits`` zero bits.

        Args:
            challenge: The whole packet of 208 bytes.
            bits: 0 to 255.
            start: 0 to 2**64-1.
            on_progress: Called every 100 ms, and once before the end.

        Raises:
            LocalError: ``SEARCHES_MAX`` are under way already.
        """
        if self.searches_count >= SEARCHES_MAX:
            raise LocalError(f"{SEARCHES_MAX} searches for work are under way already; wait for some to end")
        found = Search(Block(bits, start, 0, challenge), on_progress)
        self._searches.append(found)
        self._distribute()
        if self._timer is None or self._idle:
            self._idle = False
            self._set_timer(PROGRESS_S)
        return found

    def close(self) -> None:
        """Cancel all searches and end the processes; safe to call twice, and the pool can be used again."""
        for search in self._searches:
            search.found.cancel()
        self._searches.clear()
        self._end_workers()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _distribute(self) -> None:
        """Give blocks to processes with room, least busy first; searches take turns."""
        while self._searches:
            search = self._searches[0]
            if search.found.done():
                self._searches.popleft()
                continue
            worker = self._free_worker()
            if worker is None:
                return
            self._searches.rotate(-1)
            block = search.next_block(worker.count)
            if block is None:
                search.found.cancel()
            else:
                worker.give(search, block)

    def _free_worker(self) -> "_Worker | None":
        """Return the process to give a block to, starting one while there are too few; None when all are busy."""
        least = min(self._workers, key=lambda worker: len(worker.under_way), default=None)
        if (least is None or least.under_way) and len(self._workers) < self._workers_max:
            least = self._start_another() or least
        return least if least is not None and len(least.under_way) < BLOCKS_PER_WORKER_MAX else None

    def _start_another(self) -> "_Worker | None":
        try:
            worker = _Worker(self._command, self._on_answer, self._on_death)
        except OSError as error:
            if not self._workers:
                self._fail(f"no process for the search can be started: {error}")
            return None
        self._workers.append(worker)
        return worker

    def _on_answer(self) -> None:
        self._failed_starts = 0
        self._distribute()

    def _on_death(self, worker: "_Worker") -> None:
        """Give what a dead process had to another one."""
        self._workers.remove(worker)
        self._failed_starts += 1
        for search, block in worker.under_way:
            search.again.append(block)
        if self._failed_starts >= FAILED_STARTS_MAX:
            self._fail("the processes for the search end before they have answered anything")
        self._distribute()

    def _fail(self, sentence: str) -> None:
        self._failed_starts = 0
        for search in self._searches:
            if not search.found.done():
                search.found.set_exception(HostError(sentence))
        self._searches.clear()

    def _on_timer(self) -> None:
        self._timer = None
        if self.searches_count:
            self._set_timer(PROGRESS_S)
            for search in tuple(self._searches):
                search.report()
        elif self._idle:
            self._end_workers()
        else:
            self._idle = True
            self._set_timer(IDLE_S)

    def _set_timer(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _end_workers(self) -> None:
        for worker in self._workers:
            worker.end()
        self._workers.clear()


class _Worker:
    """One process and the blocks it has."""

    def __init__(
        self, command: Sequence[str], on_answer: Callable[[], None], on_death: Callable[["_Worker"], None]
    ) -> None:
        self.under_way: deque[tuple[Search, Block]] = deque()
        self.count = _FIRST_COUNT
        self._on_answer = on_answer
        self._on_death = on_death
        self._received = b""
        self._loop = asyncio.get_running_loop()
        # A session of its own: Ctrl-C on our terminal is our business, and we end the process.
        self._process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._blocks = self._process.stdin
        self._answers = self._process.stdout
        os.set_blocking(self._answers.fileno(), False)
        self._loop.add_reader(self._answers.fileno(), self._on_readable)

    def give(self, search: Search, block: Block) -> None:
        """Send a block; two of them are far less than a pipe holds, so this never waits."""
        self.under_way.append((search, block))
        try:
            self._blocks.write(block.encode())
        except OSError:
            self._loop.call_soon(self._end_dead)

    def end(self) -> None:
        """End the process; safe to call twice."""
        if self._answers.closed:
            return
        self._loop.remove_reader(self._answers.fileno())
        self._answers.close()
        self._blocks.close()
        self._process.kill()
        self._process.wait()

    def _on_readable(self) -> None:
        try:
            data = os.read(self._answers.fileno(), ANSWER_BYTES * BLOCKS_PER_WORKER_MAX)
        except BlockingIOError:
            return
        if not data:
            self._end_dead()
            return
        self._received += data
        while len(self._received) >= ANSWER_BYTES:
            answer = Answer.decode(self._received[:ANSWER_BYTES])
            self._received = self._received[ANSWER_BYTES:]
            self._take(answer)

    def _take(self, answer: Answer) -> None:
        search, block = self.under_way.popleft()
        if not answer.found and answer.elapsed_ns > 0:
            in_time = int(answer.tried * BLOCK_S * _NS_PER_S / answer.elapsed_ns)
            self.count = max(_COUNT_MIN, min(_COUNT_MAX, in_time))
        search.take(block, answer)
        self._on_answer()

    def _end_dead(self) -> None:
        if not self._answers.closed:
            self.end()
            self._on_death(self)


def _cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
