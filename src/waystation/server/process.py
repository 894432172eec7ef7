"""Sets up the node's process: the limit of open files, and the event loop.

``NodeServer``'s ``run`` calls it before anything listens.
"""

import asyncio
import resource
from collections.abc import Callable

import structlog

__all__ = ["loop_factory", "raise_file_limit"]

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
