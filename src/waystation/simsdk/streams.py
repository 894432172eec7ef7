"""Streams in memory: what one side writes reaches the other one a delay later, in order, or not at all.

They take the place of TCP below the pipes of ``transport``. A stream that is closed ends behind what was written; one
that is aborted loses what is under way.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

__all__ = ["Streams"]

_Protocol = TypeVar("_Protocol", bound=asyncio.BaseProtocol)

_END: Final = ConnectionAbortedError("closed")  # never raised: it stands for an end in order


class Streams:
    """Who listens where."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delay_s: Callable[[], float]) -> None:
        """Begin without listeners; ``delay_s`` gives how long a new stream takes one way."""
        self._loop = loop
        self._delay_s = delay_s
        self._listeners: dict[int, Callable[[], asyncio.Protocol]] = {}

    def listen(self, port: int, make: Callable[[], asyncio.Protocol]) -> None:
        """Accept streams at a port, each with a protocol that ``make`` makes."""
        self._listeners[port] = make

    async def connect(self, make: Callable[[], _Protocol], host: str, port: int) -> tuple["Half", _Protocol]:
        """Return one half of a new stream, and its protocol.

        Raises:
            ConnectionRefusedError: Nobody listens there.
        """
        delay_s = self._delay_s()
        await asyncio.sleep(delay_s)
        accept = self._listeners.get(port)
        if accept is None:
            raise ConnectionRefusedError(f"nobody listens on {host}:{port}")
        protocol = make()
        ours, theirs = Half(self._loop, protocol, delay_s), Half(self._loop, accept(), delay_s)
        ours.other, theirs.other = theirs, ours
        theirs.begin()
        ours.begin()
        return ours, protocol


class Half(asyncio.Transport):
    """One side of a stream: an asyncio transport without a socket."""

    other: "Half"

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.BaseProtocol, delay_s: float) -> None:
        """Describe a side; ``begin`` connects it."""
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._delay_s = delay_s
        self._arriving: deque[tuple[float, bytes | OSError]] = deque()
        """When what the other side wrote is here, and what it is; an error for its end."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_paused = False
        self._is_closing = False

    def begin(self) -> None:
        """Hand the side to its protocol."""
        self._protocol.connection_made(self)

    # What protocols use

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes."""
        if data and not self._is_closing:
            self.other.arrive(self._loop.time() + self._delay_s, bytes(data))

    def close(self) -> None:
        """End the stream behind what was written."""
        self._end(_END)

    def abort(self) -> None:
        """End the stream at once; what is under way is lost."""
        if not self._is_closing:
            self.other.lose()
        self._end(ConnectionResetError("reset by the other side"))

    def is_closing(self) -> bool:
        """Return whether this side has ended."""
        return self._is_closing

    def pause_reading(self) -> None:
        """Hand nothing on for now."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Hand on what has come."""
        self._is_paused = False
        self._arm()

    def get_write_buffer_size(self) -> int:
        """Return 0: what is written is under way at once."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: no byte waits here."""

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        """Return the default: there is no socket, and no TLS."""
        return default

    # Between the sides

    def arrive(self, at_s: float, data: bytes | OSError) -> None:
        """Take what the other side has written, to be handed on at an instant; an error for its end."""
        self._arriving.append((at_s, data))
        self._arm()

    def lose(self) -> None:
        """Forget what is under way to this side."""
        self._arriving.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._arriving and self._timer is None and not self._is_paused and not self._is_closing:
            self._timer = self._loop.call_at(self._arriving[0][0], self._hand_on)

    def _hand_on(self) -> None:
        self._timer = None
        if self._is_closing or self._is_paused or not self._arriving:
            return
        _, data = self._arriving.popleft()
        assert isinstance(self._protocol, asyncio.Protocol)
        if isinstance(data, bytes):
            self._protocol.data_received(data)
        elif data is not _END:
            self._end(_END, data)
        elif not self._protocol.eof_received():
            self.close()
        self._arm()

    def _end(self, for_other: OSError, error: Exception | None = None) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        self.other.arrive(self._loop.time() + self._delay_s, for_other)
        self._loop.call_soon(self._protocol.connection_lost, error)
