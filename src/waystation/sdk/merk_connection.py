"""One MERK client machine over one WebSocket: messages in, messages out, one timer, events to the owner."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple

from waystation.core.effects import Close, Peer, Send
from waystation.core.errors import HostError
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.protocols.merk.client import MerkClient
from waystation.protocols.merk.client_events import Event
from waystation.sdk.link import now
from waystation.transport.websocket_dial import WebSocketLink

__all__ = ["Connected", "Connection", "Disconnected"]

_PEER: Final = Peer(0)  # a client machine has exactly one
_CLOSE_WAIT_S: Final = 1.0


class Connected(NamedTuple):
    """A relay has taken us."""

    relay: str
    """Address."""
    server: bytes
    """Key that it names, 32 bytes."""
    authenticated: bool
    """Whether it has proved that key."""
    handshake_ms: float
    """From dialling to this."""


class Disconnected(NamedTuple):
    """A relay could not be reached, or the connection to it has ended."""

    relay: str
    reason: str
    up_s: float | None
    """How long it stood; None when it never did."""
    retry_s: float
    """Until the next try, at this relay or another one."""


class Connection:
    """Drives a fresh ``machine`` over ``link``; whoever gives the machine a command calls ``flush`` behind it."""

    def __init__(self, machine: MerkClient, link: WebSocketLink, on_event: Callable[[Event], None]) -> None:
        """Describe it; ``run`` begins.

        Args:
            machine: Used for nothing else.
            link: Used by nobody else.
            on_event: Gets every event of the machine, in order.
        """
        self.machine = machine
        self._link = link
        self._on_event = on_event
        self._to_send: asyncio.Queue[Send | Close] = asyncio.Queue()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def status(self) -> int | None:
        """Status with which the connection was closed; None while it stands."""
        return self._link.status

    async def run(self) -> None:
        """Stay connected; return when the connection is over."""
        writing = asyncio.create_task(self._write())
        try:
            self.machine.connect(_PEER, now())
            self.flush()
            while (data := await self._link.receive()) is not None:
                self.machine.receive(_PEER, data, now())
                self.flush()
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            self.machine.disconnect(_PEER, now())
            self.flush()
            if self._timer is not None:
                self._timer.cancel()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_WAIT_S):
                    await self._link.close()

    def flush(self) -> None:
        """Carry out what the machine asks for and hand its events on, until there is nothing more; set its timer."""
        while True:
            effects, events = self.machine.take(), self.machine.take_events()
            if not effects and not events:
                break
            for effect in effects:
                if isinstance(effect, Send | Close):
                    self._to_send.put_nowait(effect)
            for event in events:
                self._on_event(event)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.machine.deadline()
        if due is not None:
            self._timer = asyncio.get_running_loop().call_at(due / MICROSECONDS_PER_SECOND, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.machine.wake(now())
        self.flush()

    async def _write(self) -> None:
        while True:
            effect = await self._to_send.get()
            if isinstance(effect, Close):
                await self._link.close(effect.status)
                return
            try:
                await self._link.send(effect.data)
            except HostError:
                return  # the reader ends, too, and knows why
            if effect.receipt and self._to_send.empty():
                self.machine.drained(_PEER, now())
                self.flush()
