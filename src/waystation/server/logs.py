"""Configures logging to stderr: readable lines on a terminal, JSON lines otherwise.

``waystation serve`` calls ``configure_logs`` once. A line is a stable dotted event name with key=value pairs. Messages
of other libraries, sent to the standard library's logging, use the same renderer; those below a warning are dropped.
"""

import contextlib
import logging
import sys
from typing import Any, Final, TextIO, cast

import structlog

from waystation.core.ids import encode_id52

__all__ = ["configure_logs", "short_peer"]

_SHORT_CHARS: Final = 8  # 40 bits: enough to distinguish peers in a log, too few to be an address
_FIRST_KEYS: Final = ("ts", "level", "event")


def configure_logs(log_format: str, log_level: str, stream: TextIO | None = None) -> None:
    """Send all logs to ``stream``; a later call replaces the earlier one.

    Args:
        log_format: "console", "json", or "auto": console when the stream is a terminal.
        log_level: "debug", "info", "warning" or "error".
        stream: stderr when None.
    """
    target = cast("TextIO", _Unfailing(sys.stderr if stream is None else stream))
    level = logging.getLevelNamesMapping()[log_level.upper()]
    console = log_format == "console" or (log_format == "auto" and target.isatty())
    shared: list[Any] = [structlog.stdlib.add_log_level, structlog.processors.TimeStamper("iso", utc=True, key="ts")]
    rendering = _console(target) if console else _json()
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(target),
        cache_logger_on_first_use=False,  # so that a reload reaches loggers that exist
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.WARNING))  # below that other libraries speak of themselves, not of peers


def short_peer(public: bytes) -> str:
    """Return the first characters of a 32-byte key's id52, the one way logs name a peer."""
    return encode_id52(public)[:_SHORT_CHARS]


class _Unfailing:
    """A stream that drops what it cannot write (a full disk, a pipe whose reader is gone), and tries the next line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()


def _console(target: TextIO) -> list[Any]:
    return [
        structlog.dev.ConsoleRenderer(
            colors=target.isatty(),
            timestamp_key="ts",
            pad_event_to=24,
            # The default prints the locals of every frame: payloads, preimages and keys.
            exception_formatter=structlog.dev.plain_traceback,
        )
    ]


def _json() -> list[Any]:
    return [structlog.processors.format_exc_info, _in_order, structlog.processors.JSONRenderer(default=str)]


def _in_order(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    first = {key: event[key] for key in _FIRST_KEYS if key in event}
    return first | event
