"""Ends a waiting command on SIGINT or SIGTERM: it closes its connections and exits within two seconds.

Commands that wait for messages pass their coroutine.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import typer

from waystation.cli.output import EXIT_INTERRUPTED

__all__ = ["stopped_by_signal", "until_signal"]

_HARD_END_S: Final = 1.9  # a signal ends the program within two seconds, closing handshakes included
_Result = TypeVar("_Result")


async def until_signal(work: Awaitable[_Result], *, ended_exit_code: int = 0) -> _Result:
    """Do the work until it ends or a signal comes, which cancels it; return what it returns.

    A signal also ends the whole process soon after, whatever it is doing: call this for a command's only work.

    Args:
        work: What to do; it is awaited here, in the main thread's loop.
        ended_exit_code: What the program exits with after SIGTERM.

    Raises:
        KeyboardInterrupt: SIGINT came.
        typer.Exit: SIGTERM came.
    """
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    came: list[int] = []

    def stop(number: int) -> None:
        came.append(number)
        task.cancel()
        # A name lookup runs in a thread that cannot be cancelled, and the loop would wait for it.
        exit_code = EXIT_INTERRUPTED if number == signal.SIGINT else ended_exit_code
        hard_end = threading.Timer(_HARD_END_S, os._exit, (exit_code,))
        hard_end.daemon = True
        hard_end.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    await asyncio.wait([task])
    if signal.SIGINT in came:
        raise KeyboardInterrupt
    if came and task.cancelled():
        raise typer.Exit(ended_exit_code)
    return task.result()


def stopped_by_signal() -> Callable[[], bool]:
    """Return what says whether SIGINT or SIGTERM came since; for a command that has no loop and asks now and then."""
    came = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: came.set())
    return came.is_set
