"""Pings silent WebSockets and closes dead ones, with one timer for all connections.

Every WebSocket pipe joins it while it is open. Silence alone does not end a connection. A peer that still reads our
data is alive, because its pong follows all of that data. While we do not read from a peer, its silence is ignored.

A large message that is never completed occupies memory. All incomplete messages together may use ``UNREAD_BYTES_MAX``.
Beyond that, the connection whose message has made no progress for the longest time is cut.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from waystation.transport.silence import SILENCE_MS, SilencePolicy

__all__ = [
    "CLOSE_WITHIN_S",
    "LARGE_BYTES",
    "PETTY_FRAMES_MAX",
    "PING_AFTER_S",
    "PONG_WITHIN_S",
    "UNREAD_BYTES_MAX",
    "LivenessSweep",
    "LivenessTimeouts",
    "Watch",
    "Watched",
    "is_dead",
]

PING_AFTER_S: Final = SILENCE_MS / 3_000
PONG_WITHIN_S: Final = SILENCE_MS / 2_500  # with the looks between, all is over within SILENCE_MS
CLOSE_WITHIN_S: Final = 10.0  # as long as the hub lets a closed pipe linger
UNREAD_BYTES_MAX: Final = 268_435_456  # looked at in each round, so a fast line may go beyond it for seconds
LARGE_BYTES: Final = 65_536
"""What one connection may have of messages that are not whole without being counted."""
PETTY_FRAMES_MAX: Final = 2_000
"""Control frames and tiny fragments of one connection from one look to the next; they carry nothing and cost as much as
a message each."""

_LOOKS_PER_PERIOD: Final = 4


class LivenessTimeouts(NamedTuple):
    """How long we wait for one side of a WebSocket."""

    ping_after_s: float = PING_AFTER_S
    """Who has said nothing for so long is asked."""
    pong_within_s: float = PONG_WITHIN_S
    """Who was asked, says nothing and takes nothing for so long is cut."""
    close_within_s: float = CLOSE_WITHIN_S
    """Who does not answer a Close frame for so long is cut."""

    @classmethod
    def of(cls, silence: SilencePolicy) -> "LivenessTimeouts":
        """Return those with which a silent peer is cut within the policy's limit, also one whose host answers TCP."""
        limit_s = silence.limit_ms / 1_000
        return cls(limit_s / 3, limit_s / 2.5)


class Watch:
    """What the timer knows of one pipe; times are the loop's."""

    __slots__ = (
        "ending_since",
        "large_since",
        "petty_frames",
        "pinged_at",
        "quiet_since",
        "received",
        "timeouts",
        "unsent_bytes",
    )

    def __init__(self, timeouts: LivenessTimeouts) -> None:
        self.timeouts = timeouts
        self.received = True
        """Whether any byte arrived since the last look."""
        self.quiet_since = 0.0
        self.pinged_at: float | None = None
        self.ending_since: float | None = None
        self.unsent_bytes = 0
        self.large_since: float | None = None
        """When a look first found the large message that has not come to its end."""
        self.petty_frames = 0
        """Since the last look."""


class Watched(Protocol):
    """A pipe as the timer sees it."""

    @property
    def watch(self) -> Watch:
        """What the timer keeps about it."""

    @property
    def ending(self) -> bool:
        """Whether a Close frame was sent or received."""

    @property
    def held(self) -> bool:
        """Whether we have stopped reading."""

    @property
    def untaken_bytes(self) -> int:
        """Bytes that the other side's host has not taken."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of memory that a message takes which is not whole."""

    def ping(self) -> None:
        """Ask whether the other side is there."""

    def abort(self) -> None:
        """Close at once."""


class LivenessSweep:
    """Looks at every pipe a few times per period; the timer runs only while there are any."""

    def __init__(self, all_timeouts: Iterable[LivenessTimeouts], *, unread_bytes_max: int = UNREAD_BYTES_MAX) -> None:
        """Make rounds often enough for pipes with any of these.

        Args:
            all_timeouts: Of the pipes that may join; one with shorter ones makes the looks more frequent.
            unread_bytes_max: For the messages that are not whole, of all pipes.
        """
        self._unread_bytes_max = unread_bytes_max
        self._look_s = min(min(timeouts) for timeouts in all_timeouts) / _LOOKS_PER_PERIOD
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._looked_at = 0.0
        self._pipes: dict[Watched, None] = {}

    def __len__(self) -> int:
        return len(self._pipes)

    def joined(self, pipe: Watched) -> None:
        """Watch an established pipe."""
        self._pipes[pipe] = None
        self._look_s = min(self._look_s, min(pipe.watch.timeouts) / _LOOKS_PER_PERIOD)
        if self._timer is None:
            self._looked_at = self._loop.time()
            self._timer = self._loop.call_later(self._look_s, self._look)

    def left(self, pipe: Watched) -> None:
        """Forget a pipe."""
        self._pipes.pop(pipe, None)
        if not self._pipes and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now = self._loop.time()
        stood_s = now - self._looked_at - self._look_s
        self._looked_at = now
        self._timer = self._loop.call_later(self._look_s, self._look)
        for pipe in tuple(self._pipes):
            pipe.watch.petty_frames = 0
            # While this process stood still nobody was read: their answers may wait in the kernel (NODE-SILENCE).
            if stood_s > self._look_s and pipe.watch.pinged_at is not None:
                pipe.watch.pinged_at += stood_s
            if is_dead(pipe, now):
                pipe.abort()
        self._make_room(now)

    def _make_room(self, now: float) -> None:
        """Cut whose large messages have made no progress for longest, until the others have room."""
        large = [pipe for pipe in self._pipes if pipe.unread_bytes > LARGE_BYTES]
        for pipe in large:
            if pipe.watch.large_since is None:
                pipe.watch.large_since = now
        surplus_bytes = sum(pipe.unread_bytes for pipe in large) - self._unread_bytes_max
        for pipe in sorted(large, key=_standing):
            if surplus_bytes <= 0:
                break
            surplus_bytes -= pipe.unread_bytes
            pipe.abort()


def _standing(pipe: Watched) -> tuple[float, int]:
    return pipe.watch.large_since or 0.0, -pipe.unread_bytes


def is_dead(pipe: Watched, now: float) -> bool:
    """Ping a silent pipe; return whether nothing moves in it any more."""
    watch = pipe.watch
    ping_after_s, pong_within_s, close_within_s = watch.timeouts
    if pipe.ending:
        if watch.ending_since is None:
            watch.ending_since = now
        return now - watch.ending_since >= close_within_s
    if watch.received or pipe.held:  # what we do not read says nothing about the peer
        watch.received = False
        watch.quiet_since = now
        watch.pinged_at = None
    elif watch.pinged_at is None:
        if now - watch.quiet_since >= ping_after_s:
            pipe.ping()
            watch.pinged_at = now
            watch.unsent_bytes = pipe.untaken_bytes
    elif (untaken := pipe.untaken_bytes) != watch.unsent_bytes:
        if untaken < watch.unsent_bytes:
            watch.pinged_at = now
        watch.unsent_bytes = untaken  # what was written since must not hide what is taken from now on
    else:
        return now - watch.pinged_at >= pong_within_s
    return False
