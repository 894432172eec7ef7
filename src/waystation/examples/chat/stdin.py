"""Reads lines from stdin on a running event loop: from a terminal, a pipe or a file, without non-blocking mode.

``talk`` gets the typed lines from it. A terminal's stdin, stdout and stderr share one open file, so non-blocking stdin
would make stdout non-blocking too. Therefore one read is made only when the event loop reports that data is available.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import Final

__all__ = ["LINE_BYTES_MAX", "lines_of"]

LINE_BYTES_MAX: Final = 65_536
_READ_BYTES: Final = 65_536


async def lines_of(descriptor: int) -> AsyncGenerator[str, None]:
    """Yield lines without their end, until there are no more; of an endless one what fits into 64 KiB.

    Args:
        descriptor: Of something that can be read.
    """
    waiting = b""
    while data := await _read(descriptor):
        *lines, waiting = (waiting + data).split(b"\n")
        for line in lines:
            yield _text(line)
        waiting = waiting[:LINE_BYTES_MAX]
    if waiting:
        yield _text(waiting)


async def _read(descriptor: int) -> bytes:
    """Return what there is to read once there is something; nothing at the end."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[bytes] = loop.create_future()

    def take() -> None:
        loop.remove_reader(descriptor)
        if not arrived.done():
            arrived.set_result(os.read(descriptor, _READ_BYTES))

    try:
        loop.add_reader(descriptor, take)
    except PermissionError:  # a file of the disk, or /dev/null, is always ready
        await asyncio.sleep(0)
        return os.read(descriptor, _READ_BYTES)
    try:
        return await arrived
    finally:
        loop.remove_reader(descriptor)


def _text(line: bytes) -> str:
    return line[:LINE_BYTES_MAX].decode(errors="replace").rstrip("\r")
