"""Logs what goes wrong in this process: one line per minute for each failure, with a count of the others (NODE-GUARD).

The hub, the store's writer and the event loop report exceptions to it. The same failure is the same event and the same
line of code. When the process is out of file descriptors or of memory, every task fails somewhere else; all of that is
one failure, and its line has no traceback.
"""

import asyncio
import contextlib
import errno
import sys
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Final

import structlog

from waystation.core.instant import Instant
from waystation.server.failures.repeats import Repeats

__all__ = ["FailureLog"]

AGAIN_S: Final = 1.0
_HANDSHAKE_FAILED: Final = "SSL handshake failed"  # how aiofastnet and asyncio name it to the loop
_NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
_NO_MEMORY: Final = frozenset({errno.ENOMEM, errno.ENOBUFS})

_log = structlog.get_logger("waystation.server")


class FailureLog:
    """The failures of one process."""

    def __init__(self, clock: Callable[[], Instant]) -> None:
        """Begin without any; ``clock`` is monotonic."""
        self._clock = clock
        self._repeats = Repeats()

    def failed(self, event: str, error: BaseException | None, **details: object) -> None:
        """Log a failure, unless it had its line less than a minute ago.

        Args:
            event: Name of the line.
            error: What was raised, if anything was.
            details: Shown as they are: nothing that a peer sent.
        """
        shortage = _shortage(error)
        if shortage:
            self._say(shortage, shortage, error=type(error).__name__, what=details.get("what") or event)
        else:
            about = details.get("protocol"), details.get("what") if error is None else _place(error)
            self._say((event, *about), event, **details, exc_info=error)

    def relay_failed(self, protocol: str, call: str, error: Exception) -> None:
        """Log that a call of a relay raised; an ``engine.guarded.OnFailure``."""
        self.failed("engine.failed", error, protocol=protocol, what=call)

    def on_loop_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log a failure that no task awaits, without the objects it names: their text holds bytes of peers."""
        message, error = str(context.get("message", "")), context.get("exception")
        if isinstance(error, type):  # aiofastnet names the kind alone
            error = error()
        if _HANDSHAKE_FAILED in message and not _shortage(error):
            _log.debug(
                "handshake.failed", error=str(error) or type(error).__name__
            )  # any scan of the port does this; it says nothing about us
            return
        self.failed("loop.failed", error, what=message)

    def on_ignored(self, _kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
        """Log what a C library could not raise, such as a failure in a destructor; a ``sys.excepthook``."""
        self.failed("loop.failed", error, what="an exception could not be raised")

    def on_unraisable(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Log as ``on_ignored``; a ``sys.unraisablehook``."""
        if unraisable.exc_value is not None:
            self.on_ignored(unraisable.exc_type, unraisable.exc_value, None)

    async def watched(self, watch: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run what is to run until it is cancelled; when it fails, log that and begin it anew a second later.

        Args:
            watch: What may also return, which is its end.
        """
        while True:
            try:
                return await watch()
            except Exception as error:  # noqa: BLE001 - nobody waits for the task: it would be over without a word
                self.failed("loop.failed", error, what="a task of the node")
            await asyncio.sleep(AGAIN_S)

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Log what Python would print for each exception that it cannot raise, while this is open."""
        hooks = sys.excepthook, sys.unraisablehook
        sys.excepthook, sys.unraisablehook = self.on_ignored, self.on_unraisable
        try:
            yield
        finally:
            sys.excepthook, sys.unraisablehook = hooks

    def _say(self, key: object, event: str, **details: object) -> None:
        unsaid = self._repeats.take(key, self._clock())
        if unsaid is not None:
            _log.error(event, **details, **({"unsaid": unsaid} if unsaid else {}))


def _shortage(error: BaseException | None) -> str:
    """Return the event for an error that says what the process has run out of, "" for any other."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if (
            isinstance(error, MemoryError)
            or _is_left_of_one(error)
            or (isinstance(error, OSError) and error.errno in _NO_MEMORY)
        ):
            return "memory.exhausted"
        if isinstance(error, OSError) and error.errno in _NO_FILES:
            return "files.exhausted"
        error = error.__cause__ or error.__context__
    return ""


def _is_left_of_one(error: BaseException) -> bool:
    """Return whether an error is how Python reports a TLS buffer of aiofastnet that a MemoryError left behind."""
    return isinstance(error, SystemError) and "exported buffers" in str(error)


def _place(error: BaseException) -> tuple[str, str, int]:
    """Return what distinguishes failures: the type, and the line that raised it."""
    trace: TracebackType | None = error.__traceback__
    if trace is None:
        return type(error).__name__, "", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return type(error).__name__, trace.tb_frame.f_code.co_filename, trace.tb_lineno
