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
    ready, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    urls: list[str] = []

    async def serve() -> None:
        async with server as running:
            urls.append(running.url)
            ready.set()
            await stop.wait()

    def work() -> None:
        loop.run_until_complete(serve())
        loop.run_until_complete(asyncio.sleep(0))  # what the end of a connection still has to do
        loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait(5)
    yield urls[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(5)
