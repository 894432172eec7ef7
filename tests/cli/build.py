"""Commands as people call them, against a relay on a loopback port."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from waystation.cli import main


def caller(command: str, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return what calls ``waystation COMMAND WORDS...`` and gives exit code, stdout and stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([command, *words])
        assert isinstance(ended.value.code, int)
        return ended.value.code, *capfd.readouterr()

    return call


@contextlib.contextmanager
def in_a_thread(server: AbstractAsyncContextManager[Any]) -> Iterator[str]:
    """Run a relay in a thread of its own, and give its address."""
    ready, stop = threading.Event(), asyncio.Event()
    started: list[tuple[str, asyncio.AbstractEventLoop]] = []

    async def serve() -> None:
        async with server as running:
            started.append((running.url, asyncio.get_running_loop()))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))  # which ends whatever is under way
    thread.start()
    ready.wait(20)
    url, loop = started[0]
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
