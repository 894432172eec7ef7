"""Laws of server.verifier: right answers in the order of asking, whoever gives them, and whoever dies meanwhile."""

import asyncio
import os
import random
import signal
import sys

import pytest
from structlog.testing import capture_logs

from tests.server.build import eventually
from waystation.core.effects import SignatureCheck
from waystation.crypto.signing import KeyPair, sign, verify_any
from waystation.server import verifier
from waystation.server.verifier import Verifier

PAIRS = [KeyPair.from_seed(bytes([number]) * 32) for number in range(3)]
KEYS = tuple(pair.public for pair in PAIRS)


def make_checks(count, seed=0):
    """Return checks of every kind: right for one of several keys, for none, and with a message of any length."""
    rng = random.Random(seed)
    checks = []
    for _ in range(count):
        message = rng.randbytes(rng.choice((0, 1, 300)))
        signature = sign(rng.choice(PAIRS), message)
        keys = KEYS[: rng.randrange(4)]
        checks.append(SignatureCheck(keys, message + rng.choice((b"", b"", b"x")), signature))
    return checks


def answers_to(checks):
    """Return what is right."""
    return [verify_any(*check) for check in checks]


class Told:
    """Answers in the order in which they came."""

    def __init__(self, **options):
        self.answers = []
        self.verifier = Verifier(**options)

    def ask(self, name, checks):
        self.verifier.ask(checks, lambda answers: self.answers.append((name, list(answers))))

    async def started(self):
        """Ask for enough to start a worker, and wait until it stands."""
        self.ask("first", make_checks(8))
        self.verifier.flush()
        await eventually(lambda: self.verifier.workers_count)
        self.answers.clear()


def run(story, **options):
    """Run a story with a verifier that is closed in the end."""

    async def main():
        told = Told(**options)
        try:
            return await story(told)
        finally:
            told.verifier.close()

    return asyncio.run(main())


def test_few_are_checked_at_once():
    """Up to seven checks of one turn are answered when it ends, without any process."""
    checks = make_checks(7)

    async def story(told):
        told.ask("a", checks[:3])
        told.ask("b", [])
        told.ask("c", checks[3:])
        before = list(told.answers)
        told.verifier.flush()
        told.verifier.flush()
        return before, told.answers, told.verifier._workers

    assert run(story) == ([], [("a", answers_to(checks[:3])), ("b", []), ("c", answers_to(checks[3:]))], [])


def test_first_batch_is_not_kept_waiting():
    """While the first worker starts, what it is started for is checked here."""
    checks = make_checks(200)

    async def story(told):
        told.ask("a", checks)
        told.verifier.flush()
        at_once = list(told.answers)
        await eventually(lambda: told.verifier.workers_count == 1)
        return at_once

    assert run(story, workers_max=1) == [("a", answers_to(checks))]


def test_no_worker_where_none_is_wanted():
    """With no workers everything is checked here."""
    checks = make_checks(20)

    async def story(told):
        told.ask("a", checks)
        told.verifier.flush()
        return told.answers, told.verifier._workers

    assert run(story, workers_max=0) == ([("a", answers_to(checks))], [])


@pytest.mark.parametrize("workers_max", [1, 2])
def test_answers_come_in_the_order_of_asking(workers_max):
    """Whatever the sizes and however many processes, each question gets its right answers, in order."""
    rng = random.Random(7)
    questions = [make_checks(rng.choice((0, 1, 3, 8, 40)), seed) for seed in range(60)]

    async def story(told):
        await told.started()
        for number, checks in enumerate(questions):
            told.ask(number, checks)
            if rng.random() < 0.4:
                told.verifier.flush()
                await asyncio.sleep(0)
        told.verifier.flush()
        assert told.verifier.waiting_count
        await eventually(lambda: len(told.answers) == len(questions))
        return told.answers, told.verifier.waiting_count

    answers, waiting = run(story, workers_max=workers_max)

    assert answers == [(number, answers_to(checks)) for number, checks in enumerate(questions)]
    assert waiting == 0


def test_few_wait_behind_a_batch():
    """While a batch is under way, one check does not overtake it, and does not hold the loop either."""
    checks = make_checks(41)

    async def story(told):
        await told.started()
        told.ask("many", checks[:40])
        told.verifier.flush()
        told.ask("one", checks[40:])
        told.verifier.flush()
        at_once = list(told.answers)
        await eventually(lambda: len(told.answers) == 2)
        return at_once, told.answers

    at_once, answers = run(story, workers_max=1)

    assert at_once == []
    assert answers == [("many", answers_to(checks[:40])), ("one", answers_to(checks[40:]))]


def test_batches_and_their_number_are_bounded():
    """A worker has at most two batches of 128; the others wait here, and large messages make smaller batches."""

    async def story(told):
        await told.started()
        worker = told.verifier._workers[0]
        worker._process.send_signal(signal.SIGSTOP)
        told.ask("many", make_checks(1_000))
        told.verifier.flush()
        sizes = [len(batch.checks) for batch in (*worker.under_way, *told.verifier._batches)]
        under_way = len(worker.under_way)
        worker._process.send_signal(signal.SIGCONT)
        await eventually(lambda: told.answers)
        large = SignatureCheck(KEYS[:1], bytes(verifier.BATCH_BYTES_MAX), bytes(64))
        told.ask("large", [large] * 8)
        told.verifier.flush()
        large_sizes = [len(batch.checks) for batch in (*worker.under_way, *told.verifier._batches)]
        await eventually(lambda: len(told.answers) == 2)
        return under_way, sizes, large_sizes, told.answers[1][1]

    assert run(story, workers_max=1) == (2, [128] * 7 + [104], [1] * 8, [-1] * 8)


def test_killed_worker_costs_no_answer():
    """``kill -9`` in the middle of its batches: all are answered in order, it is said once, and another starts."""
    questions = [make_checks(100, seed) for seed in range(8)]

    async def story(told):
        await told.started()
        worker = told.verifier._workers[0]
        worker._process.send_signal(signal.SIGSTOP)
        for number, checks in enumerate(questions):
            told.ask(number, checks)
            told.verifier.flush()
        before = list(told.answers)
        os.kill(worker.pid, signal.SIGKILL)
        await eventually(lambda: len(told.answers) == len(questions))
        answers = list(told.answers)
        told.verifier._restart_at = 0.0
        await told.started()
        return before, answers, told.verifier._workers[0].pid != worker.pid

    with capture_logs() as logs:
        before, answers, is_other = run(story, workers_max=1)

    assert before == []
    assert answers == [(number, answers_to(checks)) for number, checks in enumerate(questions)]
    assert is_other
    assert [entry["event"] for entry in logs] == ["verify.worker_died"]


@pytest.mark.parametrize("command", [(sys.executable, "-c", "pass"), ("does-not-exist",)])
def test_worker_that_cannot_live_is_done_without(command):
    """When no process can be had everything is answered here, and one is not tried for more than once a second."""
    checks = make_checks(30)

    async def story(told):
        for number in range(5):
            told.ask(number, checks)
            told.verifier.flush()
            await eventually(lambda: not told.verifier._workers)
        return told.answers

    with capture_logs() as logs:
        answers = run(story, workers_max=1, command=command)

    assert answers == [(number, answers_to(checks)) for number in range(5)]
    assert len(logs) == 1


def test_malformed_check_is_refused_here():
    """A signature or key of a wrong length, or too many keys, is nobody's signature, and confuses no batch."""
    good = make_checks(8, seed=3)
    pair = PAIRS[0]
    bad = [
        SignatureCheck((pair.public,), b"m", sign(pair, b"m")[:-1]),
        SignatureCheck((pair.public[:-1],), b"m", sign(pair, b"m")),
        SignatureCheck((pair.public,) * 17, b"m", sign(pair, b"m")),
    ]

    async def story(told):
        await told.started()
        told.ask("a", [*bad, *good])
        told.ask("b", bad)
        told.verifier.flush()
        await eventually(lambda: len(told.answers) == 2)
        return told.answers

    assert run(story, workers_max=1) == [("a", [-1, -1, -1, *answers_to(good)]), ("b", [-1, -1, -1])]


def test_asking_from_an_answer_is_fine():
    """What an answer causes may ask again; it is answered behind what was asked before."""
    checks = make_checks(3)

    async def story(told):
        def again(answers):
            told.answers.append(("outer", list(answers)))
            told.ask("inner", checks[1:2])
            told.verifier.flush()

        told.verifier.ask(checks[:1], again)
        told.ask("second", checks[2:])
        told.verifier.flush()
        return [name for name, _ in told.answers]

    assert run(story) == ["outer", "second", "inner"]


def test_close_ends_the_processes():
    """After ``close`` no process is left, and what waited stays unanswered."""

    async def story(told):
        await told.started()
        worker = told.verifier._workers[0]
        told.ask("a", make_checks(20))
        told.verifier.flush()
        told.verifier.close()
        return worker._process.returncode, told.answers, told.verifier.workers_count

    assert run(story, workers_max=1) == (-signal.SIGKILL, [], 0)
