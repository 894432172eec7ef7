"""Laws of server.failures.log: each failure has a line a minute with a count, shortages are one line each."""

import asyncio
import errno
import sys

from structlog.testing import capture_logs

from waystation.server.failures.log import FailureLog
from waystation.server.failures.repeats import REPEAT_S

SECOND = 1_000_000


class Clock:
    """A clock that a test sets."""

    now = 0

    def __call__(self):
        return self.now


def raised(make):
    """Return an error with a traceback, as ``except`` has it."""
    try:
        raise make()
    except BaseException as error:  # noqa: BLE001 - any kind
        return error


def other_line(make):
    """As ``raised``, from another line of code."""
    try:
        raise make()
    except BaseException as error:  # noqa: BLE001 - any kind
        return error


def test_same_failure_has_a_line_a_minute():
    """The first one at once, with its traceback; the next line counts those that came without one."""
    clock = Clock()
    log = FailureLog(clock)
    with capture_logs() as lines:
        for _ in range(1_000):
            log.failed("engine.failed", raised(ValueError), protocol="echo")
        clock.now = REPEAT_S * SECOND
        log.failed("engine.failed", raised(ValueError), protocol="echo")

    assert [line.get("unsaid") for line in lines] == [None, 999]
    assert all(isinstance(line["exc_info"], ValueError) for line in lines)


def test_other_failures_have_their_own_lines():
    """Another protocol, another type and another line of code hide nothing from each other."""
    log = FailureLog(Clock())
    with capture_logs() as lines:
        for error, protocol in [
            (raised(ValueError), "a"),
            (raised(ValueError), "b"),
            (raised(TypeError), "a"),
            (other_line(ValueError), "a"),
        ]:
            log.failed("engine.failed", error, protocol=protocol)

    assert len(lines) == 4


def test_shortage_is_one_line_wherever_it_shows():
    """Out of files or memory every task fails somewhere else: one line each, without a traceback."""
    log = FailureLog(Clock())
    with capture_logs() as lines:
        for make in (raised, other_line):
            log.failed("engine.failed", make(MemoryError))
            log.on_ignored(SystemError, SystemError("deallocated bytearray object has exported buffers"), None)
            log.failed("loop.failed", make(lambda: OSError(errno.EMFILE, "too many")), what="accept")
            log.failed("loop.failed", make(lambda: OSError(errno.ENFILE, "too many")), what="accept")

    assert [(line["event"], "exc_info" in line) for line in lines] == [
        ("memory.exhausted", False),
        ("files.exhausted", False),
    ]


def test_shortage_behind_another_error_is_one():
    """What was raised because of it says what it was."""
    error = raised(lambda: RuntimeError("no thread"))
    error.__cause__ = MemoryError()
    with capture_logs() as lines:
        FailureLog(Clock()).failed("loop.failed", error)

    assert [line["event"] for line in lines] == ["memory.exhausted"]


def test_what_failed_unawaited_is_said_without_peers_bytes():
    """The message is logged, never the objects; a handshake that failed is no news."""
    loop, log = asyncio.new_event_loop(), FailureLog(Clock())
    with capture_logs() as lines:
        log.on_loop_exception(loop, {"message": "task was never awaited", "future": "secret"})
        log.on_loop_exception(loop, {"message": "SSL handshake failed on x", "exception": ValueError("no")})
        log.on_loop_exception(loop, {})
    loop.close()

    said = [(line["event"], line["what"]) for line in lines if line["log_level"] == "error"]
    assert said == [("loop.failed", "task was never awaited"), ("loop.failed", "")]
    assert "secret" not in str(lines)


def test_what_python_cannot_raise_is_bounded_too():
    """A destructor that fails is a line of the log, as long as the hooks are there; then Python prints as before."""

    class Failing:
        def __del__(self):
            raise ValueError("too late")

    log, hooks = FailureLog(Clock()), (sys.excepthook, sys.unraisablehook)
    with capture_logs() as lines, log.hooked():
        for _ in range(100):
            Failing()
        sys.excepthook(SystemError, SystemError("a null argument"), None)

    assert [(line["event"], type(line["exc_info"])) for line in lines] == [
        ("loop.failed", ValueError),
        ("loop.failed", SystemError),
    ]
    assert (sys.excepthook, sys.unraisablehook) == hooks


def test_task_that_fails_begins_anew(monkeypatch):
    """What looks after the store, the clock or the mark goes on after any failure, and one that lasts is one line."""
    monkeypatch.setattr("waystation.server.failures.log.AGAIN_S", 0.0)
    calls = []

    async def watch():
        calls.append(len(calls))
        if len(calls) < 4:
            raise MemoryError

    with capture_logs() as lines:
        asyncio.run(FailureLog(Clock()).watched(watch))

    assert calls == [0, 1, 2, 3]
    assert [line["event"] for line in lines] == ["memory.exhausted"]
