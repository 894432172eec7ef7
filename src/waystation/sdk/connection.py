"""Drives a client's protocol machine on the event loop: passes bytes in, carries out effects, sets its one timer.

The clients of Bhumi and LPRP, the BSP device and Strata's and MERK's connections use one. A ``Driver`` connects one
machine to any number of pipes: streams, WebSockets or datagrams. All input of one event-loop iteration is answered in
one write per pipe. The owner calls ``flush`` after any number of commands. A ``Connection`` is a driver whose machine
has one pipe at a time.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, NamedTuple

from waystation.core.effects import Close, Effect, Hold, Peer, Send, SendMany
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.machine import ClientMachine, Clocked
from waystation.transport.pipe import Pipe

__all__ = ["Connection", "Driver", "Ended", "now"]

LINGER_S: Final = 1.0  # for what was written, and for the other side's half of a goodbye
WALL_S: Final = 1.0  # how often a machine gets the time of day: clocks are set, and computers sleep
NOT_ADMITTED: Final = "does not admit you (not on its list, or banned)"
"""What a relay does that refuses an identity; the subject is its address."""
_LOST: Final = 1006  # RFC 6455 7.4.1: there was no Close frame


class Ended(NamedTuple):
    """Why a connection is over."""

    reason: str
    """For people."""
    status: int | None
    """Status of the WebSocket's closing handshake, 1006 without one."""
    refusal: Enum | None
    """The machine's reason when the machine closed the connection."""
    is_by_relay: bool = False
    """Whether the other side closed it, in order."""


def now() -> Instant:
    """Return the running loop's time."""
    return Instant(int(asyncio.get_running_loop().time() * MICROSECONDS_PER_SECOND))


class Driver:
    """Drives ``machine`` inside a running loop; a ``Sink``."""

    def __init__(
        self, machine: ClientMachine, on_event: Callable[[Any], None], *, clock: Callable[[], float] = time.time
    ) -> None:
        """Begin without a pipe.

        Args:
            machine: Driven here alone.
            on_event: Gets every event of the machine, in order. Commands that it gives need no ``flush``.
            clock: Unix seconds, for a machine that is ``Clocked``.
        """
        self._machine = machine
        self._on_event = on_event
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._pipes: dict[Peer, Pipe] = {}
        self._lingering: set[Pipe] = set()
        self._one_gone = asyncio.Event()
        self._next_peer = 1
        self._timer: asyncio.TimerHandle | None = None
        self._wall_timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Handle | None = None
        self._flushing = False
        self.closed = False
        """Whether the machine is driven no more."""
        self._set_wall()

    # The owner's side

    def flush(self) -> None:
        """Hand on events and carry out effects until there are none, then set the timer."""
        if self._flushing or self.closed:
            return
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self._flushing = True
        try:
            self._settle()
        finally:
            self._flushing = False
        self._set_timer()

    def plan_turn(self) -> None:
        """Flush before the loop sleeps."""
        if self._turn is None and not self.closed:
            self._turn = self._loop.call_soon(self.flush)

    def stop(self) -> None:
        """Drive the machine no more, and close every pipe after what was written to it."""
        self.closed = True
        for handle in (self._timer, self._wall_timer, self._turn):
            if handle is not None:
                handle.cancel()
        pipes, self._pipes = self._pipes, {}
        for pipe in pipes.values():
            self._linger(pipe)

    async def wait_closed(self) -> None:
        """Return once nothing is left of closed pipes; those that linger are cut."""
        while self._lingering:
            self._one_gone.clear()
            await self._one_gone.wait()

    # A sink

    def connected(self, pipe: Pipe) -> None:
        """Take a pipe over."""
        self._machine.connect(self.enter(pipe), now(), pipe.address)
        self.flush()

    def received(self, pipe: Pipe, data: bytes) -> None:
        """Pass bytes to the machine."""
        if Peer(pipe.peer) in self._pipes:
            self._machine.receive(Peer(pipe.peer), data, now())
            self.plan_turn()

    def congested(self, pipe: Pipe) -> None:
        """Pass on that bytes wait here."""
        if Peer(pipe.peer) in self._pipes:
            self._machine.congested(Peer(pipe.peer), now())
            self.plan_turn()

    def drained(self, pipe: Pipe) -> None:
        """Pass on that no byte waits any more."""
        if Peer(pipe.peer) in self._pipes:
            self._machine.drained(Peer(pipe.peer), now())
            self.plan_turn()

    def lost(self, pipe: Pipe, error: Exception | None) -> None:  # noqa: ARG002 - a machine wants no reason
        """Note the end of a pipe."""
        self._lingering.discard(pipe)
        self._one_gone.set()
        if self._pipes.pop(Peer(pipe.peer), None) is not None:
            self._machine.disconnect(Peer(pipe.peer), now())
            self.flush()

    def enter(self, pipe: Pipe) -> Peer:
        """Number a pipe that the machine will know as this peer."""
        peer = Peer(self._next_peer)
        self._next_peer += 1
        pipe.peer = peer
        self._pipes[peer] = pipe
        return peer

    # Effects

    def _settle(self) -> None:
        while True:
            events = self._machine.take_events()  # before effects: what an event changes is in the same commit
            for event in events:
                self._on_event(event)
            effects = self._machine.take()
            self._carry_out(effects)
            if not effects and not events:
                return

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        outgoing: dict[Peer, list[bytes]] = {}
        receipts: list[Peer] = []
        closes: list[Close] = []
        for effect in effects:
            if isinstance(effect, Send | SendMany):
                messages = (effect.data,) if isinstance(effect, Send) else effect.messages
                outgoing.setdefault(effect.peer, []).extend(messages)
                if isinstance(effect, Send) and effect.receipt:
                    receipts.append(effect.peer)
            elif isinstance(effect, Close):
                closes.append(effect)
            else:
                self._on_effect(effect)
        self._write(outgoing, receipts)
        for close in closes:
            self._close(close)

    def _write(self, outgoing: dict[Peer, list[bytes]], receipts: Iterable[Peer]) -> None:
        for peer, chunks in outgoing.items():
            if peer in self._pipes:
                self._pipes[peer].write(chunks)
        for peer in receipts:
            if peer in self._pipes and not self._pipes[peer].waits:
                self._machine.drained(peer, now())

    def _on_effect(self, effect: Effect) -> None:
        """Carry out an effect that writes and closes nothing; facts are for the journal, which a client has not."""
        if isinstance(effect, Hold) and effect.peer in self._pipes:
            pipe = self._pipes[effect.peer]
            (pipe.pause if effect.held else pipe.resume)()

    def _close(self, close: Close) -> None:
        pipe = self._pipes.pop(close.peer, None)
        if pipe is not None:
            self._linger(pipe, close.status, abort=close.abort)

    def _linger(self, pipe: Pipe, status: int = 0, *, abort: bool = False) -> None:
        self._lingering.add(pipe)
        if abort:
            pipe.abort()
        else:
            pipe.close(status)
            self._loop.call_later(LINGER_S, self._cut, pipe)

    def _cut(self, pipe: Pipe) -> None:
        if pipe in self._lingering:
            pipe.abort()

    # Time

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._machine.deadline()
        if due is not None and not self.closed:
            self._timer = self._loop.call_at(due / MICROSECONDS_PER_SECOND, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._machine.wake(now())
        self.flush()

    def _set_wall(self) -> None:
        if isinstance(self._machine, Clocked):
            self._machine.set_wall(now(), round(self._clock() * MICROSECONDS_PER_SECOND))
            self._wall_timer = self._loop.call_later(WALL_S, self._set_wall)


class Connection(Driver):
    """Drives a machine over one pipe at a time; a new pipe takes over from the old one."""

    def __init__(
        self, machine: ClientMachine, on_event: Callable[[Any], None], *, clock: Callable[[], float] = time.time
    ) -> None:
        """Begin without a pipe; dial with this as the ``Sink``. See ``Driver``."""
        super().__init__(machine, on_event, clock=clock)
        self.pipe: Pipe | None = None
        """The newest pipe, None before the first."""
        self.ended: asyncio.Future[Ended] = self._loop.create_future()
        """Done when the connection is over."""

    def close(self) -> None:
        """End the connection once everything written has left; safe to call twice."""
        for peer in self._pipes:
            self._machine.disconnect(peer, now())
        self.flush()
        self._end(Ended("closed", None, None))

    def connected(self, pipe: Pipe) -> None:
        """Take over a pipe from the old one."""
        if self.closed:
            pipe.close()
            return
        for peer in tuple(self._pipes):
            self._linger(self._pipes.pop(peer))
            self._machine.disconnect(peer, now())
        self.pipe = pipe
        super().connected(pipe)

    def lost(self, pipe: Pipe, error: Exception | None) -> None:
        """Note the end of a pipe."""
        is_current = Peer(pipe.peer) in self._pipes
        super().lost(pipe, error)
        if is_current:
            reason = f"the connection broke: {error}" if error else "the relay closed the connection"
            self._end(Ended(reason, pipe.close_status or _LOST, None, is_by_relay=error is None))

    def _close(self, close: Close) -> None:
        super()._close(close)
        reason = f"we closed the connection: {close.reason.value}"
        self._end(Ended(reason, close.status or None, close.reason))

    def _end(self, ended: Ended) -> None:
        if not self.ended.done():
            self.ended.set_result(ended)
        self.stop()
