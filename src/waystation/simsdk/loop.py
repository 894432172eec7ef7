"""An asyncio event loop on a virtual clock: while nothing can run, time jumps to the next timer.

Its streams are those of ``streams``; it has no sockets but the one asyncio wakes itself with. What the SDK awaits runs
on it unchanged. Two runs are equal as long as nothing asks the machine: a thread, a socket, ``time`` or ``secrets``.
"""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any, Final, TypeVar

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.sim.schedule import LivelockError
from waystation.simsdk.streams import Streams

__all__ = ["StandstillError", "VirtualLoop"]

TURNS_PER_INSTANT_MAX: Final = 100_000  # as many events as ``sim.schedule`` takes for one instant
LATE_S: Final = 1e-7
"""How much later than its timers the clock is, as every real one is: machines count whole microseconds, and a number
that was rounded down would be before its deadline for ever."""

_Protocol = TypeVar("_Protocol", bound=asyncio.BaseProtocol)


class StandstillError(RuntimeError):
    """Everything waits, and no timer is set: it would wait for ever."""


class _Clock(selectors.SelectSelector):
    """Gives the time, and lets it pass in place of waiting for sockets."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let ``timeout`` seconds pass; no socket is ever ready."""
        if timeout is None:
            raise StandstillError("everything waits, and no timer is set")
        self._turns = 0 if timeout > 0 else self._turns + 1
        if self._turns > TURNS_PER_INSTANT_MAX:
            self._turns = 0  # what is left is cancelled on this loop
            raise LivelockError(Instant(int(self.now_s * MICROSECONDS_PER_SECOND)))
        if timeout > 0:
            self.now_s += timeout + LATE_S
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; ``asyncio.Runner(loop_factory=...)`` runs it."""

    def __init__(self, delay_s: Callable[[], float]) -> None:
        """Begin at second 0; ``delay_s`` gives how long a new stream takes one way."""
        self._clock = _Clock()
        super().__init__(self._clock)
        self.streams = Streams(self, delay_s)

    def time(self) -> float:
        """Return the virtual seconds since the beginning."""
        return self._clock.now_s

    async def connect_stream(self, make: Callable[[], _Protocol], host: str, port: int) -> tuple[Any, _Protocol]:
        """Connect in memory; see ``transport.connect.HasStreams``."""
        return await self.streams.connect(make, host, port)

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[tuple[Any, ...]]:
        """Return the address itself; there are no names here."""
        return [(0, 0, 0, "", (host, port))]
