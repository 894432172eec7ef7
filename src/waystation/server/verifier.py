"""Verifies signatures for the node: few at a time in this process, large batches in worker processes.

The hub passes the checks of each ``Verify`` effect and gets one bool for each. One check takes 55 us of a core. A few
are done here, because sending them costs as much; batches go to workers, so that the event loop stays free. Threads
would not help: libsodium releases the interpreter lock, but must acquire it again from a busy loop after each
signature. Results are delivered in the order of the requests.

If a worker dies, its batches are checked here.
"""

import asyncio
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from waystation.core.effects import SignatureCheck
from waystation.core.ids import KEY_BYTES
from waystation.crypto.signing import SIGNATURE_BYTES, verify_any
from waystation.server.verify_worker import READY, encode_batch

__all__ = ["Verifier"]

CHECKS_INLINE_MAX: Final = 7  # from 8 on a batch pays for its way to another process
BATCH_CHECKS_MAX: Final = 128
BATCH_BYTES_MAX: Final = 1_048_576  # so that a batch of large packets does not keep one worker for long
BATCHES_PER_WORKER_MAX: Final = 2  # one to work on, one to begin at once after it
RESTART_S: Final = 1.0  # a worker that cannot live is not started more often
_KEYS_MAX: Final = 16
_READ_BYTES: Final = 4_096
_COMMAND: Final = (sys.executable, "-P", "-m", "waystation.server.verify_worker")

_log = structlog.get_logger("waystation.server")


class _Question:
    """Checks that were asked together, and the answers so far."""

    __slots__ = ("answers", "missing", "then")

    def __init__(self, count: int, then: Callable[[Sequence[int]], None]) -> None:
        self.answers = [0] * count
        self.missing = count
        self.then = then

    def answer(self, first: int, answers: Sequence[int]) -> None:
        self.answers[first : first + len(answers)] = answers
        self.missing -= len(answers)


class _Batch:
    """Checks for one worker, and where their answers go."""

    __slots__ = ("checks", "places", "size_bytes")

    def __init__(self) -> None:
        self.checks: list[SignatureCheck] = []
        self.places: list[tuple[_Question, int, int]] = []
        """Runs of checks: whose they are, the first one's index there, how many follow each other."""
        self.size_bytes = 0

    def add(self, checks: Sequence[SignatureCheck], question: _Question, first: int) -> int:
        """Take checks from ``first`` on until the batch is full or one is malformed; return how many."""
        count = 0
        for check in checks[first : first + BATCH_CHECKS_MAX - len(self.checks)]:
            if self.size_bytes >= BATCH_BYTES_MAX or not _well_formed(check):
                break
            self.size_bytes += len(check.message)
            count += 1
        self.checks += checks[first : first + count]
        self.places.append((question, first, count))
        return count

    @property
    def full(self) -> bool:
        return len(self.checks) >= BATCH_CHECKS_MAX or self.size_bytes >= BATCH_BYTES_MAX

    def resolve(self, answers: Sequence[int]) -> None:
        position = 0
        for question, first, count in self.places:
            question.answer(first, answers[position : position + count])
            position += count

    def check_here(self) -> None:
        self.resolve([verify_any(*check) for check in self.checks])


class Verifier:
    """Checks signatures for one event loop."""

    def __init__(self, workers_max: int | None = None, command: Sequence[str] = _COMMAND) -> None:
        """Prepare; the first process starts with the first batch that is worth one.

        Args:
            workers_max: How many processes there may be; 0 checks everything here, None means one per core but one: on
                a single core a process beside this one only costs the way to it.
            command: What to start; for tests.
        """
        self._workers_max = _cores() - 1 if workers_max is None else workers_max
        self._command = tuple(command)
        self._loop = asyncio.get_running_loop()
        self._gathered: list[tuple[_Question, Sequence[SignatureCheck]]] = []
        self._questions: deque[_Question] = deque()
        self._batches: deque[_Batch] = deque()
        self._workers: list[_Worker] = []
        self._restart_at = 0.0
        self._reported_death = False
        self._delivering = False
        self._closed = False

    @property
    def workers_count(self) -> int:
        """How many processes are ready."""
        return sum(worker.ready for worker in self._workers)

    @property
    def waiting_count(self) -> int:
        """How many questions have no answer yet."""
        return len(self._questions)

    def ask(self, checks: Sequence[SignatureCheck], then: Callable[[Sequence[int]], None]) -> None:
        """Gather a question; ``then`` gets one answer for each check, see ``core.effects.Verify``."""
        self._gathered.append((_Question(len(checks), then), checks))

    def flush(self) -> None:
        """Begin to answer what was gathered; call once per loop turn."""
        if not self._gathered:
            return
        gathered, self._gathered = self._gathered, []
        batches = _packed(gathered)
        few = sum(len(batch.checks) for batch in batches) <= CHECKS_INLINE_MAX
        self._questions.extend(question for question, _ in gathered)
        if few and not any(worker.under_way for worker in self._workers):
            for batch in batches:
                batch.check_here()
        else:
            self._batches.extend(batches)
            self._distribute()
        self._deliver()

    def close(self) -> None:
        """End the processes; questions that wait are never answered."""
        self._closed = True
        for worker in self._workers:
            worker.end()
        self._workers.clear()
        self._batches.clear()
        self._questions.clear()

    def _distribute(self) -> None:
        """Give batches to workers with room; without any worker that is ready, check here."""
        while self._batches:
            ready = [worker for worker in self._workers if worker.ready]
            least = min(ready, key=lambda worker: len(worker.under_way), default=None)
            if least is None or least.under_way:
                self._start_another()
            if least is None:
                self._batches.popleft().check_here()
            elif len(least.under_way) < BATCHES_PER_WORKER_MAX:
                least.give(self._batches.popleft())
            else:
                return

    def _start_another(self) -> None:
        """Start a process, unless there are enough, one is on its way, or the last one died just now."""
        now = self._loop.time()
        starting = any(not worker.ready for worker in self._workers)
        if self._closed or starting or len(self._workers) >= self._workers_max or now < self._restart_at:
            return
        self._restart_at = now + RESTART_S
        try:
            self._workers.append(_Worker(self._loop, self._command, self._on_progress, self._on_death))
        except OSError as error:
            _log.error("verify.worker_failed", error=str(error))

    def _on_progress(self) -> None:
        self._distribute()
        self._deliver()

    def _on_death(self, worker: "_Worker") -> None:
        """Check here what a dead worker had; others wait for nothing."""
        if not self._reported_death:
            self._reported_death = True
            _log.error("verify.worker_died", pid=worker.pid, checks=sum(len(each.checks) for each in worker.under_way))
        worker.end()
        self._workers.remove(worker)
        for batch in worker.under_way:
            batch.check_here()
        self._distribute()
        self._deliver()

    def _deliver(self) -> None:
        """Deliver answers as far as there is no gap; questions that they cause are answered after them."""
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._questions and not self._questions[0].missing:
                question = self._questions.popleft()
                question.then(question.answers)
        finally:
            self._delivering = False


class _Worker:
    """One process and what it has to do."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        command: Sequence[str],
        on_progress: Callable[[], None],
        on_death: Callable[["_Worker"], None],
    ) -> None:
        self._loop = loop
        self._on_progress = on_progress
        self._on_death = on_death
        self.ready = False
        self.under_way: deque[_Batch] = deque()
        self._unsent = memoryview(b"")
        self._received = bytearray()
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                # A session of its own: Ctrl-C on the node's terminal is the node's business.
                self._process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                    command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, start_new_session=True
                )
            except OSError:
                self._socket.close()
                raise
        self._socket.setblocking(False)
        loop.add_reader(self._socket, self._on_readable)

    @property
    def pid(self) -> int:
        return self._process.pid

    def give(self, batch: _Batch) -> None:
        """Send a batch after those under way."""
        self.under_way.append(batch)
        waits = bool(self._unsent)
        self._unsent = memoryview(bytes(self._unsent) + encode_batch(batch.checks))
        if not waits:
            self._send()

    def end(self) -> None:
        """End the process; safe to call twice."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._process.kill()
            self._process.wait()

    def _send(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._unsent = memoryview(b"")  # it is dead; the reader sees that after its last answers
            sent = 0
        self._unsent = self._unsent[sent:]
        if self._unsent:
            self._loop.add_writer(self._socket, self._send)
        else:
            self._loop.remove_writer(self._socket)

    def _on_readable(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._on_death(self)
            return
        if not self.ready:
            self.ready = True
            data = data.removeprefix(READY)
        self._received += data
        while self.under_way and len(self._received) >= (count := len(self.under_way[0].checks)):
            answers = [-1 if answer > _KEYS_MAX else answer for answer in self._received[:count]]
            del self._received[:count]
            self.under_way.popleft().resolve(answers)
        self._on_progress()


def _packed(gathered: Sequence[tuple[_Question, Sequence[SignatureCheck]]]) -> list[_Batch]:
    """Return batches of all checks in their order; a check that no worker could read is answered as unsigned."""
    batches: list[_Batch] = []
    for question, checks in gathered:
        first = 0
        while first < len(checks):
            if not _well_formed(checks[first]):
                question.answer(first, (-1,))
                first += 1
                continue
            if not batches or batches[-1].full:
                batches.append(_Batch())
            first += batches[-1].add(checks, question, first)
    return batches


def _well_formed(check: SignatureCheck) -> bool:
    keys, _, signature = check
    if len(signature) != SIGNATURE_BYTES or len(keys) > _KEYS_MAX:
        return False
    for key in keys:  # noqa: SIM110 - all() makes a generator for what is mostly one key
        if len(key) != KEY_BYTES:
            return False
    return True


def _cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
