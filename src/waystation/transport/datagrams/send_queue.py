"""Sends datagrams: directly to the kernel, or through a bounded queue while the kernel has no room.

The UDP port and the UDP pipe each have one. A datagram is dropped if the queue is full or the kernel rejects it (no
route, too long). UDP allows loss, so drops are counted and not reported.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

__all__ = ["WAITING_MAX", "SendQueue"]

WAITING_MAX: Final = 4_096  # two megabytes of LPRP's longest; half a second of a link that carries 32 Mbit/s

Item = TypeVar("Item")


class SendQueue(Generic[Item]):
    """The sending half of one socket of datagrams."""

    def __init__(
        self, carrier: socket.socket, emit: Callable[[Item], object], on_drained: Callable[[], None] | None = None
    ) -> None:
        """Send through a non-blocking socket of the running loop.

        Args:
            carrier: Watched while something waits.
            emit: Hands one datagram to the kernel; raises what the socket raises.
            on_drained: Called when nothing waits any more, after something did.
        """
        self._carrier = carrier
        self._emit = emit
        self._on_drained = on_drained
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Item] = deque()
        self.sent = 0
        """Datagrams that the kernel took."""
        self.dropped = 0
        """Datagrams that found the queue full, or were in it at the end."""
        self.failed = 0
        """Datagrams that the kernel refused."""

    @property
    def waiting(self) -> Sequence[Item]:
        """What waits for room in the kernel, oldest first; at most ``WAITING_MAX``."""
        return self._waiting

    def send(self, items: Sequence[Item]) -> None:
        """Send all in their order, or as many as there is room for; never raises for what a datagram meets."""
        if self._waiting:
            self._keep(items)
            return
        emit = self._emit
        for index, item in enumerate(items):
            try:
                emit(item)
            except BlockingIOError:
                self._keep(items[index:])
                self._loop.add_writer(self._carrier, self._go_on)
                self.sent -= len(items) - index
                break
            except OSError:
                self.failed += 1
                self.sent -= 1
        self.sent += len(items)

    def use(self, carrier: socket.socket, emit: Callable[[Item], object]) -> None:
        """Send through another socket from now on; nothing may wait for the old one."""
        assert not self._waiting
        self._carrier, self._emit = carrier, emit

    def close(self) -> None:
        """Drop what waits and look at the socket no more; the caller closes it."""
        if self._waiting:
            self._loop.remove_writer(self._carrier)
            self.dropped += len(self._waiting)
            self._waiting.clear()

    def _keep(self, items: Sequence[Item]) -> None:
        room = WAITING_MAX - len(self._waiting)
        self._waiting.extend(items[:room])
        self.dropped += max(0, len(items) - room)

    def _go_on(self) -> None:
        waiting = self._waiting
        while waiting:
            try:
                self._emit(waiting[0])
            except BlockingIOError:
                return
            except OSError:
                self.failed += 1
            else:
                self.sent += 1
            waiting.popleft()
        self._loop.remove_writer(self._carrier)
        if self._on_drained is not None:
            self._on_drained()
