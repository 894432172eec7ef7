"""A simulated TCP-like connection between a client and a node; it carries bytes, or whole messages when ``framed``.

Clients, hostile actors and dialling nodes of all protocols with connections use it. Data arrives in order and without
gaps. The connection can be slow, deliver in pieces, fill up (``congested``, later ``drained``), or stall. It can also
be cut without notice to either side. A ``Port`` is one side's handle and has the shape of ``transport.pipe.Pipe``
without an event loop.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.sim.schedule import Schedule

__all__ = ["End", "LinkSettings", "Port", "Stream"]

PIECES_MAX: Final = 4

Arrived = Callable[[], None]


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """What one connection is like while nothing goes wrong."""

    latency_us: int = 20_000
    """Microseconds one way."""
    jitter_us: int = 5_000
    """Up to this many microseconds are added to each chunk's latency."""
    bytes_per_second: int = 0
    """Throughput of each direction; 0 is without limit."""
    window_bytes: int = 65_536
    """Bytes that may be under way or unread before more of them wait at the writer; at least 1."""
    pieces: float = 0.1
    """Chance, 0 to 1, that a chunk arrives in two to four pieces."""
    framed: bool = False
    """Whether every write is a message that arrives whole, as WebSocket gives them; ``pieces`` says nothing then, and
    the window may be passed by one message."""


class End:
    """What a port reports to; a subclass defines what it does not ignore."""

    __slots__ = ()

    def received(self, data: bytes) -> None:
        """Bytes arrived."""

    def congested(self) -> None:
        """Bytes have begun to wait on this side."""

    def drained(self) -> None:
        """No byte waits on this side any more."""

    def ended(self) -> None:
        """The other side closed; last call for this end."""


class Port:
    """One side of a stream."""

    __slots__ = ("_from", "_to", "end", "is_open", "stream")

    def __init__(self, stream: "Stream", end: End) -> None:
        self.stream = stream
        self.end = end
        self.is_open = True
        """False once this side closed or was notified that the other did."""
        self._to: _Lane
        self._from: _Lane

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait on this side."""
        return self._to.unsent_bytes

    @property
    def waits(self) -> bool:
        """Whether bytes wait on this side: true between ``congested`` and ``drained``."""
        return self._to.waits

    def join(self, to: "_Lane", from_: "_Lane") -> None:
        """Take the two lanes of the stream; called once, by it."""
        self._to = to
        self._from = from_

    def write(self, data: bytes, then: Arrived | None = None) -> None:
        """Send bytes; a closed port swallows them.

        Args:
            data: At least one byte.
            then: Called when the last of them was read on the other side; never, when that does not happen.
        """
        if self.is_open:
            self._to.write(data, then)

    def pause(self) -> None:
        """Stop reading."""
        self._from.paused = True

    def resume(self) -> None:
        """Go on reading; what has arrived in between comes before anything else, as its own event."""
        if self._from.paused:
            self._from.paused = False
            self._from.schedule.after(0, self._from.hand_over)

    def close(self) -> None:
        """Close after what was written has left."""
        if self.is_open:
            self.is_open = False
            self._from.discard()
            self._to.finish()

    def abort(self) -> None:
        """Close at once: nothing of what waits or is under way arrives."""
        self.is_open = False
        self._from.discard()
        self._to.reset()

    def report_ended(self) -> None:
        """Pass the end of the stream on, once."""
        if self.is_open:
            self.is_open = False
            self._from.discard()
            self._to.discard()
            self.end.ended()


class Stream:
    """Both lanes between ``client`` and ``node``, and what can go wrong with them."""

    def __init__(self, schedule: Schedule, rng: random.Random, settings: LinkSettings, client: End, node: End) -> None:
        """Join two ends; both may write at once."""
        self._schedule = schedule
        self.client = Port(self, client)
        self.node = Port(self, node)
        self._up = _Lane(schedule, rng, settings, self.client, self.node)
        self._down = _Lane(schedule, rng, settings, self.node, self.client)
        self.client.join(self._up, self._down)
        self.node.join(self._down, self._up)
        self.framed = settings.framed
        self.faulted = False
        """True once anything went wrong with this connection."""
        self.is_cut = False
        """True once nothing arrives any more."""

    @property
    def is_over(self) -> bool:
        """Whether neither side holds it open any more."""
        return not self.client.is_open and not self.node.is_open

    def stall(self, duration_us: int) -> None:
        """Let nothing arrive for a while, in either direction; what is under way comes afterwards, in order."""
        self.faulted = True
        until = Instant(self._schedule.now + duration_us)
        self._up.stall(until)
        self._down.stall(until)

    def cut(self) -> None:
        """Let nothing arrive any more without notifying either side: a half-open connection on both sides."""
        self.faulted = True
        self.is_cut = True
        self._up.is_cut = True
        self._down.is_cut = True

    def give_up(self) -> None:
        """Let the client notice that nothing comes any more; the node is not notified and has its own timers."""
        self.faulted = True
        self.client.report_ended()

    def break_off(self) -> None:
        """Reset the connection for both sides at once."""
        self.faulted = True
        self.node.report_ended()
        self.client.report_ended()


class _Lane:
    """One direction of a stream.

    Bytes wait at the writer (unsent), are under way, have arrived unread, or were read; the window bounds the second
    and the third together. None is the end of the stream. What is under way arrives in the order in which it set out,
    whatever the instants drawn for it say.
    """

    def __init__(
        self, schedule: Schedule, rng: random.Random, settings: LinkSettings, writer: Port, reader: Port
    ) -> None:
        self.schedule = schedule
        self._rng = rng
        self._settings = settings
        self._writer = writer
        self._reader = reader
        self._unsent: deque[bytes] = deque()
        self._transit: deque[bytes | None] = deque()
        self._arrived: deque[bytes | None] = deque()
        self._marks: deque[tuple[int, Arrived]] = deque()
        self._last_at = Instant(0)
        self._stalled_until = Instant(0)
        self._underway_bytes = 0
        self._written_bytes = 0
        self._read_bytes = 0
        self._finishing = False
        self._dead = False
        self.unsent_bytes = 0
        self.waits = False
        self.paused = False
        self.is_cut = False

    def write(self, data: bytes, then: Arrived | None) -> None:
        if self._dead:
            return
        self._written_bytes += len(data)
        if then is not None:
            self._marks.append((self._written_bytes, then))
        self._unsent.append(data)
        self.unsent_bytes += len(data)
        self._pump()
        if self.unsent_bytes and not self.waits:
            self.waits = True
            self._writer.end.congested()

    def finish(self) -> None:
        """Send the end of the stream behind what was written."""
        self._finishing = True
        self._pump()

    def reset(self) -> None:
        """Forget what has not been read and notify the reader, one latency later."""
        self.discard()
        if not self.is_cut:
            self.schedule.after(self._settings.latency_us, self._reader.report_ended)

    def discard(self) -> None:
        """Let nothing move on this lane any more."""
        self._dead = True
        self._unsent.clear()
        self._transit.clear()
        self._arrived.clear()
        self._marks.clear()
        self.unsent_bytes = 0
        self.waits = False

    def stall(self, until: Instant) -> None:
        self._stalled_until = max(self._stalled_until, until)

    def hand_over(self) -> None:
        """Give the reader what has arrived, as far as it reads."""
        while self._arrived and not self.paused and not self._dead:
            data = self._arrived.popleft()
            if data is None:
                self._reader.report_ended()
                return
            self._underway_bytes -= len(data)
            self._read_bytes += len(data)
            self._reader.end.received(data)
            self._report_marks()
        if self._unsent:
            self._pump()
        if self.waits and not self._unsent:
            self.waits = False
            if self._writer.is_open:
                self._writer.end.drained()

    def _report_marks(self) -> None:
        while self._marks and self._marks[0][0] <= self._read_bytes:
            self._marks.popleft()[1]()

    def _pump(self) -> None:
        """Let bytes leave the writer as far as the window goes, then the end of the stream."""
        window = self._settings.window_bytes
        # As TCP does, wait until half the window is free, or a stream of small pieces would stay one for ever.
        while self._unsent and (room := window - self._underway_bytes) >= min(self.unsent_bytes, (window + 1) // 2):
            data = self._unsent.popleft()
            if len(data) > room and not self._settings.framed:
                self._unsent.appendleft(data[room:])
                data = data[:room]
            self.unsent_bytes -= len(data)
            self._underway_bytes += len(data)
            self._set_out(data)
        if self._finishing and not self._unsent and not self._dead:
            self._finishing = False
            self._plan(None)

    def _set_out(self, data: bytes) -> None:
        settings = self._settings
        if not settings.framed and len(data) > 1 and settings.pieces and self._rng.random() < settings.pieces:
            cuts = sorted(self._rng.randrange(1, len(data)) for _ in range(self._rng.randrange(1, PIECES_MAX)))
            for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                if end > start:
                    self._plan(data[start:end])
        else:
            self._plan(data)

    def _plan(self, data: bytes | None) -> None:
        settings = self._settings
        at = self.schedule.now + settings.latency_us
        if settings.jitter_us:
            at += int(self._rng.random() * settings.jitter_us)
        at = max(at, self._last_at)
        if settings.bytes_per_second and data is not None:
            at += len(data) * MICROSECONDS_PER_SECOND // settings.bytes_per_second
        self._last_at = Instant(at)
        self._transit.append(data)
        self.schedule.at(self._last_at, self._arrive)

    def _arrive(self) -> None:
        if not self._transit:
            return
        if self._stalled_until > self.schedule.now:
            self._last_at = max(self._last_at, self._stalled_until)
            self.schedule.at(self._stalled_until, self._arrive)
            return
        data = self._transit.popleft()
        if not self.is_cut:
            self._arrived.append(data)
            self.hand_over()
