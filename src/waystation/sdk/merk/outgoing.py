"""Paces what a MERK client sends: below a relay's default rate, and so much under way at a time, in order of arrival.

``MerkRelays`` has one. A relay of ours takes 500 frames a second (1,000 at once) and 16 MiB a second (64 MiB at once)
of one client and refuses what is beyond; an original takes whatever comes and keeps it in its memory.

Spec: specs/merk.md 6, 8; MERK-PACE.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.core.limits import TokenBucket
from waystation.sdk.connection import now

__all__ = ["UNDER_WAY_BYTES_MAX", "Outgoing"]

UNDER_WAY_BYTES_MAX: Final = 67_108_864
"""Bytes of frames whose outcome is not known; one larger frame may be under way alone."""
_FRAMES_PER_S, _FRAMES_AT_ONCE = 450, 900  # a tenth is for what the client itself says: adverts, presences, questions
_BYTES_PER_S, _BYTES_AT_ONCE = 15_728_640, 58_720_256
_UNWEIGHED_BYTES: Final = 4_096  # MERK-FREE


class Outgoing:
    """The one gate through which frames leave."""

    def __init__(self, count_max: int) -> None:
        """Begin with nothing under way; ``count_max`` frames may be."""
        self._count_max = count_max
        self._count = 0
        self._bytes = 0
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()
        self._frames = TokenBucket(_FRAMES_PER_S, _FRAMES_AT_ONCE, now())
        self._weights = TokenBucket(_BYTES_PER_S, _BYTES_AT_ONCE, now())

    @asynccontextmanager
    async def room(self, size: int) -> AsyncIterator[None]:
        """Wait for room for a frame of ``size`` bytes, and hold it while the frame is under way."""
        async with self._turn:
            while self._count >= self._count_max or (self._count and self._bytes + size > UNDER_WAY_BYTES_MAX):
                self._freed.clear()
                await self._freed.wait()
            await self._pace(self._frames, 1)
            if size > _UNWEIGHED_BYTES:
                await self._pace(self._weights, min(size, _BYTES_AT_ONCE))
        self._count += 1
        self._bytes += size
        try:
            yield
        finally:
            self._count -= 1
            self._bytes -= size
            self._freed.set()

    @staticmethod
    async def _pace(bucket: TokenBucket, count: int) -> None:
        while not bucket.take(now(), count):  # noqa: ASYNC110 - time fills the bucket, and no event
            await asyncio.sleep(max(0.001, (bucket.ready_at(count) - now()) / MICROSECONDS_PER_SECOND))
