"""Sets up the node's process: the limit of open files, the event loop, and the log of failures that no task awaits."""

import asyncio
import resource
from collections.abc import Callable
from typing import Any, Final

import structlog

__all__ = ["loop_factory", "on_loop_exception", "raise_file_limit"]

_HANDSHAKE_FAILED: Final = "SSL handshake failed"  # how aiofastnet and asyncio name it to the loop

_log = structlog.get_logger("waystation.server")


def raise_file_limit() -> None:
    """Allow this process as many open files as the machine lets it: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        _log.debug("files.limit", soft=soft, hard=hard, error=str(error))
        return
    _log.debug("files.limit", soft=hard, was=soft)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory where it is installed; asyncio's own loop serves elsewhere."""
    try:
        import uvloop  # noqa: PLC0415 - optional by platform
    except ImportError:
        return None
    return uvloop.new_event_loop


def on_loop_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a failure that no task awaits, without the objects it names: their text holds peers' bytes and addresses."""
    message, error = str(context.get("message", "")), context.get("exception")
    if _HANDSHAKE_FAILED in message:
        _log.debug("handshake.failed", error=str(error))  # any scan of the port does this; it says nothing about us
        return
    _log.error("loop.failed", what=message, exc_info=error)
