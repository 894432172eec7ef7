"""Connects the engine to the sockets: passes inputs to it at once, and carries out its effects once per loop iteration.

Every pipe reports to it, through ``server.sinks``; ``NodeServer`` makes one. All input of one event-loop iteration is
given to the engine first. Then ``_turn`` takes the effects and sets the one timer. All bytes to one peer become one
write, and all datagrams of a protocol one list. ``Commit``, ``Verify`` and ``Dial`` delay nothing; their results are
inputs of a later iteration. The hub makes no protocol decision.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import structlog

from waystation.core.effects import (
    Close,
    Commit,
    Datagram,
    Dial,
    Effect,
    Hold,
    Peer,
    Send,
    SendMany,
    SendTo,
    Verify,
)
from waystation.core.instant import MICROSECONDS_PER_MS, MICROSECONDS_PER_SECOND, Instant, after_ms
from waystation.engine.node import Node
from waystation.server.commit import GroupCommit
from waystation.server.failures.log import FailureLog
from waystation.server.verifier import Verifier
from waystation.transport.pipe import Pipe

__all__ = ["Dials", "Hub", "monotonic_now"]

LINGER_MS: Final = 10_000  # what was sent to a closed peer may take this long to leave, as one write (BHUMI-A15)
LINGERING_MAX: Final = 256  # closed pipes whose last bytes have not left; the oldest is cut for the next one
LOOK_MS: Final = 5  # deadlines are asked for at most this often, and so met at most this late
PROGRESS_MS: Final = 1_000  # how often we look whether a waiting peer takes anything

_LOOK_US: Final = LOOK_MS * MICROSECONDS_PER_MS
_DOUBLE_LINK: Final = "double_link"

_log = structlog.get_logger("waystation.server")


def monotonic_now() -> Instant:
    """Return the monotonic clock as the engine counts it."""
    return Instant(time.monotonic_ns() // 1_000)


class Dials(Protocol):
    """Carries out ``Dial`` effects."""

    def dial(self, hub: "Hub", protocol: str, effect: Dial) -> None:
        """Begin; in a later turn ``hub`` gets the connected pipe, or the report that there is none."""


class Hub:
    """Drives one engine from one event loop."""

    def __init__(
        self,
        node: Node,
        commits: GroupCommit,
        clock: Callable[[], Instant] = monotonic_now,
        verifier: Verifier | None = None,
        dialler: Dials | None = None,
        failures: FailureLog | None = None,
        wall_us: Callable[[Instant], int] = lambda _now: time.time_ns() // 1_000,
    ) -> None:
        """Bind an engine to the running loop's pipes.

        Args:
            node: The engine.
            commits: Where ``Commit`` effects go.
            clock: Monotonic microseconds.
            verifier: Where ``Verify`` effects go; without one they are checked in this process. The caller closes it.
            dialler: Where ``Dial`` effects go; without one every dial fails.
            failures: Logs bugs of ours; one of its own when left out.
            wall_us: Returns the time of day, microseconds UTC; gets the monotonic time of the turn.
        """
        self._node = node
        self._commits = commits
        self._clock, self._wall_us = clock, wall_us
        self._loop = asyncio.get_running_loop()
        self._failures = failures if failures is not None else FailureLog(clock)
        node.report_failures(self._failures.relay_failed)
        self._pipes: dict[Peer, Pipe] = {}
        self._verifier = verifier if verifier is not None else Verifier(0)
        self._dialler = dialler
        self._outgoing: dict[Pipe, list[bytes]] = {}
        self._carriers: dict[str, Callable[[list[Datagram]], None]] = {}
        self._departing: dict[str, list[Datagram]] = {}
        self._receipts: list[Peer] = []
        self._closing: list[Close] = []
        self._waiting: dict[Peer, int] = {}
        self._unfinished: list[Callable[[str], bool]] = []
        self._lingering: OrderedDict[Pipe, Instant] = OrderedDict()
        self._progress_at: Instant | None = None
        self._turn_planned = False
        self._turn_began = clock()
        """What the clock said when the first input of this turn came; all of them count as of then."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Instant | None = None

    # What pipes report

    def admit(self, protocol: str, host: str, *, has_handshake: bool = True) -> bool:
        """Ask the engine whether ``host`` may connect, and close the unfinished connection that gives way to it."""
        now = self._clock()
        admitted = self._node.open(protocol, host, self._wall_us(now), now, has_handshake=has_handshake)
        for key in self._node.displaced():
            for close_oldest in self._unfinished:
                if close_oldest(key):
                    break
        self.plan_turn()
        return admitted

    def close_unfinished(self, close_oldest: Callable[[str], bool]) -> None:
        """Let a listener close its oldest unfinished connection of an address key; it returns whether it had one."""
        self._unfinished.append(close_oldest)

    def release(self, host: str, *, has_handshake: bool = True) -> None:
        """Release what ``admit`` counted for a connection that was never established."""
        self._node.release(host, has_handshake=has_handshake)

    def connected(self, protocol: str, pipe: Pipe, endpoint: str = "", *, has_handshake: bool = True) -> None:
        """Give a new pipe a number; ``endpoint`` and ``has_handshake`` as in ``Node.connect``."""
        peer = self._node.connect(protocol, pipe.address, self._clock(), endpoint, has_handshake=has_handshake)
        pipe.peer = peer
        self._pipes[peer] = pipe
        self.plan_turn()

    def connected_out(self, protocol: str, pipe: Pipe, name: str, certificate: bytes | None = None) -> None:
        """Give a pipe that we dialled a number; its relay knows the other side as ``name``.

        Args:
            protocol: As in ``Node.connect_out``.
            pipe: Established.
            name: As there.
            certificate: As there.
        """
        peer = self._node.connect_out(protocol, name, self._clock(), certificate)
        pipe.peer = peer
        self._pipes[peer] = pipe
        self.plan_turn()

    def dial_failed(self, protocol: str, name: str) -> None:
        """Report to the engine that a ``Dial`` failed."""
        try:
            self._node.dial_failed(protocol, name, self._clock())
        except Exception as error:  # noqa: BLE001 - as in received: a bug of ours costs one dial
            self._failures.failed("engine.failed", error, protocol=protocol, name=name)
        self.plan_turn()

    def received(self, pipe: Pipe, data: bytes) -> None:
        """Hand bytes to the engine."""
        if not self._turn_planned:
            self.plan_turn()
        try:
            self._node.receive(Peer(pipe.peer), data, self._turn_began)
        except Exception as error:  # noqa: BLE001 - the outermost loop: a bug of ours costs one peer, never the node
            self._failures.failed("engine.failed", error, peer=pipe.peer)
            self._drop(pipe)

    def received_many(self, pipe: Pipe, messages: list[bytes]) -> None:
        """Hand over the messages of one read."""
        if not self._turn_planned:
            self.plan_turn()
        try:
            self._node.receive_many(Peer(pipe.peer), messages, self._turn_began)
        except Exception as error:  # noqa: BLE001 - as in received
            self._failures.failed("engine.failed", error, peer=pipe.peer)
            self._drop(pipe)

    def half_closed(self, pipe: Pipe) -> bool:
        """Report to the engine that no more bytes come; return whether the pipe stays open for those that we write.

        A TLS pipe closes right after this call, so what can leave leaves now.
        """
        self.plan_turn()
        try:
            stays = self._node.half_closed(Peer(pipe.peer), self._turn_began)
        except Exception as error:  # noqa: BLE001 - as in received
            self._failures.failed("engine.failed", error, peer=pipe.peer)
            stays = False
        if stays and pipe.is_tls:
            self._turn()
        return stays

    def carry(self, protocol: str, send: Callable[[list[Datagram]], None]) -> None:
        """Let the datagrams of a protocol leave through ``send``; until then they are lost, as on any network."""
        self._carriers[protocol] = send

    def datagrams(self, protocol: str, datagrams: list[Datagram]) -> None:
        """Hand over the datagrams of one look at a socket."""
        if not self._turn_planned:
            self.plan_turn()
        try:
            self._node.receive_datagrams(protocol, datagrams, self._wall_us(self._turn_began), self._turn_began)
        except Exception as error:  # noqa: BLE001 - as in received: a bug of ours costs these datagrams, never the node
            self._failures.failed("engine.failed", error, protocol=protocol, datagrams=len(datagrams))

    def knows(self, pipe: Pipe) -> bool:
        """Return whether a pipe was introduced, and neither lost nor closed by a relay."""
        return Peer(pipe.peer) in self._pipes

    def congested(self, pipe: Pipe) -> None:
        """Report it to the engine, and watch whether the peer takes anything."""
        peer = Peer(pipe.peer)
        if peer not in self._pipes:
            return
        self._waiting[peer] = pipe.untaken_bytes
        self._node.congested(peer, self._clock())
        if self._progress_at is None:
            self._progress_at = after_ms(self._clock(), PROGRESS_MS)
        self.plan_turn()

    def drained(self, pipe: Pipe) -> None:
        """Report to the engine that nothing waits for the peer any more."""
        peer = Peer(pipe.peer)
        if self._waiting.pop(peer, None) is not None:
            self._node.drained(peer, self._clock())
            self.plan_turn()

    def lost(self, pipe: Pipe, _error: Exception | None) -> None:
        """Forget a pipe whose connection is gone."""
        self._lingering.pop(pipe, None)
        self._outgoing.pop(pipe, None)
        peer = Peer(pipe.peer)
        if self._pipes.pop(peer, None) is not None:
            self._waiting.pop(peer, None)
            self._node.disconnect(peer, self._clock())
            self.plan_turn()

    def waiting_bytes(self, peer: int) -> int:
        """Return the bytes that this peer's host has not taken yet, 0 for a peer that is gone."""
        pipe = self._pipes.get(Peer(peer))
        return pipe.untaken_bytes if pipe is not None else 0

    # Turns

    def plan_turn(self) -> None:
        """Make sure that effects are taken before the loop sleeps."""
        if not self._turn_planned:
            self._turn_planned = True
            self._turn_began = self._clock()
            self._loop.call_soon(self._turn)

    def idle(self) -> bool:
        """Return whether every pipe is closed and gone."""
        return not self._pipes and not self._lingering

    def close(self) -> None:
        """Stop the timer: what the relays read from is about to close."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._turn_planned = True

    def abort_all(self) -> None:
        """Cut every connection that is still there."""
        for pipe in (*self._pipes.values(), *self._lingering):
            pipe.abort()

    def _turn(self) -> None:
        self._turn_planned = False
        now = self._clock()
        for protocol, effects in self._node.take(now):
            try:
                self._carry_out(protocol, effects)
            except Exception as error:  # noqa: BLE001 - as in received; it costs one protocol the rest of its effects
                self._failures.failed("engine.failed", error, protocol=protocol, what="effects")
        self._commits.flush()
        self._write_out(now)
        self._verifier.flush()
        if self._timer_at is None or self._timer_at - now > _LOOK_US:
            # Asking every relay for its deadline costs as much as half an exchange, so a busy node asks every few ms.
            self._arm_timer(Instant(now + _LOOK_US), now)

    def _carry_out(self, protocol: str, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is Send:
                self._send(effect)
            elif type(effect) is SendTo:
                self._send_to(protocol, effect)
            elif isinstance(effect, Commit | Verify | Dial):
                self._ask(protocol, effect)
            else:
                self._perform(effect)

    def _ask(self, protocol: str, question: Commit | Verify | Dial) -> None:
        """Pass on what nothing waits for; the answer is an input of a later turn."""
        if isinstance(question, Commit):
            self._commit(protocol, question)
        elif isinstance(question, Verify):
            self._verifier.ask(question.checks, partial(self._verified, protocol, question.ticket))
        else:
            self._dial(protocol, question)

    def _perform(self, effect: Effect) -> None:
        if type(effect) is SendMany:
            self._send_many(effect)
        elif isinstance(effect, Close):
            self._closing.append(effect)
        elif isinstance(effect, Hold):
            pipe = self._pipes.get(effect.peer)
            if pipe is not None:
                (pipe.pause if effect.held else pipe.resume)()

    def _send(self, effect: Send) -> None:
        peer, data, receipt = effect
        pipe = self._pipes.get(peer)
        if pipe is None:
            return
        chunks = self._outgoing.get(pipe)
        if chunks is None:
            self._outgoing[pipe] = [data]
        else:
            chunks.append(data)
        if receipt:
            self._receipts.append(peer)

    def _send_to(self, protocol: str, effect: SendTo) -> None:
        departing = self._departing.get(protocol)
        if departing is None:
            self._departing[protocol] = [effect]
        else:
            departing.append(effect)

    def _send_many(self, effect: SendMany) -> None:
        pipe = self._pipes.get(effect.peer)
        if pipe is not None:
            self._outgoing.setdefault(pipe, []).extend(effect.messages)

    def _commit(self, protocol: str, effect: Commit) -> None:
        self._commits.ask(protocol, effect.changes, partial(self._committed, protocol, effect.ticket))

    def _committed(self, protocol: str, ticket: int, is_kept: bool) -> None:
        answer = self._node.committed if is_kept else self._node.not_committed
        try:
            answer(protocol, ticket, self._clock())
        except Exception as error:  # noqa: BLE001 - as in received; what is on disk stays, and a client asks again
            self._failures.failed("engine.failed", error, protocol=protocol, ticket=ticket)
        self.plan_turn()

    def _dial(self, protocol: str, effect: Dial) -> None:
        if self._dialler is None:
            self._loop.call_soon(self.dial_failed, protocol, effect.name)
        else:
            self._dialler.dial(self, protocol, effect)

    def _verified(self, protocol: str, ticket: int, answers: Sequence[int]) -> None:
        try:
            self._node.verified(protocol, ticket, answers, self._clock())
        except Exception as error:  # noqa: BLE001 - as in received: a bug of ours costs one answer, not those after it
            self._failures.failed("engine.failed", error, protocol=protocol, ticket=ticket)
        self.plan_turn()

    def _write_out(self, now: Instant) -> None:
        """Write once per peer and once per socket of datagrams, then confirm receipts, then close."""
        if self._departing:
            self._send_datagrams()
        outgoing, self._outgoing = self._outgoing, {}
        for pipe, chunks in outgoing.items():
            try:
                pipe.write(chunks)
            except Exception as error:  # noqa: BLE001 - as in received: it costs this peer, not those after it
                self._failures.failed("pipe.failed", error, peer=pipe.peer)
                self._drop(pipe)
        if self._receipts:
            receipts, self._receipts = self._receipts, []
            for peer in receipts:
                receiver = self._pipes.get(peer)
                if receiver is not None and not receiver.waits:
                    self._node.drained(peer, now)
                    self.plan_turn()
        if self._closing:
            closing, self._closing = self._closing, []
            for effect in closing:
                self._close(effect, now)

    def _send_datagrams(self) -> None:
        departing, self._departing = self._departing, {}
        for protocol, datagrams in departing.items():
            send = self._carriers.get(protocol)
            if send is not None:
                send(datagrams)

    def _close(self, effect: Close, now: Instant) -> None:
        pipe = self._pipes.pop(effect.peer, None)
        if pipe is None:
            return
        self._waiting.pop(effect.peer, None)
        say = _log.debug if effect.reason.value == _DOUBLE_LINK else _log.info  # the other of the two links stays
        say("peer.closed", peer=effect.peer, reason=effect.reason.value)
        if effect.abort:
            pipe.abort()
        else:
            if len(self._lingering) >= LINGERING_MAX:
                self._lingering.popitem(last=False)[0].abort()
            self._lingering[pipe] = after_ms(now, LINGER_MS)
            pipe.close(effect.status)

    def _drop(self, pipe: Pipe) -> None:
        """Cut one peer after a failure of our own; the others go on."""
        peer = Peer(pipe.peer)
        if self._pipes.pop(peer, None) is not None:
            self._waiting.pop(peer, None)
            self._node.disconnect(peer, self._clock())
        pipe.abort()

    # The one timer

    def _arm_timer(self, at: Instant, now: Instant) -> None:
        """Let the timer fire at ``at`` or earlier."""
        if self._timer_at is not None and self._timer_at <= at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_later(max(0, at - now) / MICROSECONDS_PER_SECOND, self._on_timer)

    def _on_timer(self) -> None:
        """Wake the engine when it is due, then arm for the next deadline exactly, whatever fails on the way."""
        self._timer = None
        self._timer_at = None
        now = self._clock()
        while self._lingering and next(iter(self._lingering.values())) <= now:
            self._lingering.popitem(last=False)[0].abort()
        try:
            deadline = self._node.deadline()
            if deadline is not None and deadline <= now:
                self._node.wake(now)
                self._turn()
                deadline = self._node.deadline()
            if self._progress_at is not None and self._progress_at <= now:
                self._look_for_progress(now)
        except Exception as error:  # noqa: BLE001 - as in received: a bug of ours costs this look, never the timer
            self._failures.failed("engine.failed", error, what="timer")
            deadline = self._progress_at = after_ms(now, PROGRESS_MS)
        linger_at = next(iter(self._lingering.values()), None)
        candidates = [at for at in (deadline, self._progress_at, linger_at) if at is not None]
        if candidates:
            self._arm_timer(min(candidates), now)

    def _look_for_progress(self, now: Instant) -> None:
        """Report to the engine the waiting peers that have taken something since the last look."""
        for peer, before in list(self._waiting.items()):
            unsent = self._pipes[peer].untaken_bytes
            self._waiting[peer] = unsent
            if unsent < before:
                self._node.congested(peer, now)
        self._progress_at = after_ms(now, PROGRESS_MS) if self._waiting else None
