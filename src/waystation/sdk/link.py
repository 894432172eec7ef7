"""One client machine on one connection: bytes in, effects out, one timer, events to the owner.

A link lives as long as its connection. Whoever gives the machine a command calls ``flush`` behind it, once for any
number of commands: everything that the machine wants sent leaves in one write.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol

from waystation.core.effects import Close, Peer, Send
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.machine import Machine
from waystation.transport.dial import RelayUrl, dial
from waystation.transport.pipe import Pipe

__all__ = ["ClientMachine", "Link", "no_greeting", "now"]

_PEER: Final = Peer(0)  # a client machine has exactly one
_LINGER_S: Final = 1.0  # for the relay's half of the TLS goodbye


class ClientMachine(Machine, Protocol):
    """A machine of one connection that also tells what happened."""

    def take_events(self) -> list[Any]:
        """Return and forget the events since the last call."""


def now() -> Instant:
    """Return the running loop's time."""
    return Instant(int(asyncio.get_running_loop().time() * MICROSECONDS_PER_SECOND))


def no_greeting(url: RelayUrl, reason: str) -> str:
    """Return the sentence for a connection that ended, for ``reason``, before the relay said HELLO."""
    hint = f"; is this a TLS port? try {RelayUrl('tls', url.host, url.port)}" if url.scheme == "tcp" else ""
    return f"{url} did not greet us: {reason}{hint}"


class Link:
    """Drives ``machine`` over one connection; a ``Sink``."""

    def __init__(self, machine: ClientMachine, on_event: Callable[[Any], None]) -> None:
        """Describe a link; ``open`` connects it.

        Args:
            machine: Fresh, and used for nothing else.
            on_event: Gets every event of the machine, on the loop's thread, in order.
        """
        self._machine = machine
        self._on_event = on_event
        self._pipe: Pipe | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._gone = asyncio.Event()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done when the connection is over; the result says why."""

    async def open(
        self, url: RelayUrl, context: ssl.SSLContext | None, timeout_s: float, *, only_public: bool = False
    ) -> None:
        """Connect; raises HostError, see ``dial``."""
        await dial(url, self, context, timeout_s, only_public=only_public)

    def flush(self) -> None:
        """Carry out what the machine asks for, then hand its events on."""
        chunks: list[bytes] = []
        closing = ""
        for effect in self._machine.take():
            if isinstance(effect, Send):
                chunks.append(effect.data)
            elif isinstance(effect, Close):
                closing = str(effect.reason.value)
        if chunks and self._pipe is not None and not self.ended.done():
            self._pipe.write(chunks)
        if closing:
            self._end(f"we closed the connection: {closing}")
        self._set_timer()
        for event in self._machine.take_events():
            self._on_event(event)

    def close(self) -> None:
        """End the connection once everything written has left."""
        self._machine.disconnect(_PEER, now())
        self._end("closed")
        self.flush()

    async def wait_closed(self) -> None:
        """Return once nothing of an ended connection is left; one that lingers is cut."""
        if self._pipe is None:
            return
        try:
            await asyncio.wait_for(self._gone.wait(), _LINGER_S)
        except TimeoutError:
            self._pipe.abort()
            await self._gone.wait()

    def connected(self, pipe: Pipe) -> None:
        """Take the pipe over."""
        self._pipe = pipe
        self._machine.connect(_PEER, now())
        self.flush()

    def received(self, pipe: Pipe, data: bytes) -> None:  # noqa: ARG002 - a link has one pipe
        """Pass bytes to the machine."""
        self._machine.receive(_PEER, data, now())
        self.flush()

    def congested(self, pipe: Pipe) -> None:  # noqa: ARG002
        """Pass the sign on."""
        self._machine.congested(_PEER, now())

    def drained(self, pipe: Pipe) -> None:  # noqa: ARG002
        """Pass the sign on."""
        self._machine.drained(_PEER, now())
        self.flush()

    def lost(self, pipe: Pipe, error: Exception | None) -> None:  # noqa: ARG002
        """Note the end of the connection."""
        self._gone.set()
        self._machine.disconnect(_PEER, now())
        self._end(f"the connection broke: {error}" if error else "the relay closed the connection")
        self.flush()

    def _end(self, reason: str) -> None:
        if self.ended.done():
            return
        self.ended.set_result(reason)
        if self._pipe is not None:
            self._pipe.close()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._machine.deadline()
        if due is not None and not self.ended.done():
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(due / MICROSECONDS_PER_SECOND, self._wake)

    def _wake(self) -> None:
        self._machine.wake(now())
        self.flush()
