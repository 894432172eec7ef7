"""Runs a coroutine of a command in an event loop, and returns its result.

All commands that connect call it.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

__all__ = ["run"]

_HANDSHAKE_FAILED: Final = "SSL handshake failed"  # as asyncio and aiofastnet say it
_Result = TypeVar("_Result")


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Do a command's work in a loop of its own, and return what it returns.

    The loop does not report TLS handshakes that failed: the dialling code gets the reason as an error.
    """
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(_on_exception)
        return runner.run(work)


def _on_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if _HANDSHAKE_FAILED not in str(context.get("message", "")):
        loop.default_exception_handler(context)
