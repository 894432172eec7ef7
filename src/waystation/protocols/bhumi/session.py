"""One client connection at the Bhumi relay: its state, timers, rate limits and the order of its results.

A session is ANONYMOUS until a valid I_AM makes it IDENTIFIED; CLOSED is final. A client may send every one of its frame
types in both open states. ``TRANSITIONS`` is the complete state machine.

The session cuts bytes into frames and keeps the slots of pending SENDs in order. The relay asks it three things:
whether to pause reading (``must_hold``), the next deadline, and which deadline has passed. A session has no access to
other sessions, their commits, or the cache.

Spec: Bhumi v2 sections 3 to 5; BHUMI-8, BHUMI-9, BHUMI-24, BHUMI-L (timers), BHUMI-C6.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from waystation.core.effects import Peer
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.core.limits import TokenBucket
from waystation.core.settings import InForce
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.carried import CacheEntry
from waystation.protocols.bhumi.relay.negotiated import Negotiated
from waystation.protocols.bhumi.wire import FrameBuffer

__all__ = ["TRANSITIONS", "SentNumbers", "Session", "Slot", "State"]


class State(Enum):
    """Where a connection stands."""

    ANONYMOUS = "anonymous"
    IDENTIFIED = "identified"
    CLOSED = "closed"


TRANSITIONS: Final[Mapping[tuple[State, FrameType], State]] = {
    (State.ANONYMOUS, FrameType.I_AM): State.IDENTIFIED,
    (State.ANONYMOUS, FrameType.SEND): State.ANONYMOUS,
    (State.ANONYMOUS, FrameType.ACK): State.ANONYMOUS,
    (State.ANONYMOUS, FrameType.KEEPALIVE): State.ANONYMOUS,
    (State.ANONYMOUS, FrameType.UPDATE_COMMITS): State.ANONYMOUS,
    (State.ANONYMOUS, FrameType.OPTIONS): State.ANONYMOUS,
    (State.IDENTIFIED, FrameType.I_AM): State.IDENTIFIED,
    (State.IDENTIFIED, FrameType.SEND): State.IDENTIFIED,
    (State.IDENTIFIED, FrameType.ACK): State.IDENTIFIED,
    (State.IDENTIFIED, FrameType.KEEPALIVE): State.IDENTIFIED,
    (State.IDENTIFIED, FrameType.UPDATE_COMMITS): State.IDENTIFIED,
    (State.IDENTIFIED, FrameType.OPTIONS): State.IDENTIFIED,
}

FRAME_TIMEOUT_MS: Final = 10_000  # BHUMI-L
IDLE_IDENTIFIED_MS: Final = 120_000  # BHUMI-L
IDLE_ANONYMOUS_MS: Final = 60_000  # BHUMI-L
IDLE_ORIGINAL_MS: Final = 1 << 40  # BHUMI-ORIGINAL: 34 years
WRITE_TIMEOUT_MS: Final = 10_000  # BHUMI-A15


class SentNumbers:
    """Message numbers that were sent to one recipient, as far as they are remembered (BHUMI-C5).

    An ACK for one of them is late or repeated at worst, never a guess.
    """

    __slots__ = ("_before", "_recent")

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._before: set[int] = self._recent

    def __contains__(self, message_id: object) -> bool:
        """Return whether this number was sent lately."""
        return message_id in self._recent or message_id in self._before

    def note(self, message_id: int, remembered_max: int) -> None:
        """Remember a number; the oldest are forgotten in bulk, so that twice ``remembered_max`` are known at most."""
        if len(self._recent) >= remembered_max:
            self._before = self._recent
            self._recent = set()
        self._recent.add(message_id)


_NOTHING_SENT: Final = SentNumbers()  # of every connection without an identity; nobody notes anything in it


@dataclass(slots=True, eq=False)
class Slot:
    """A SEND's place in the order of its connection's results."""

    session: "Session"
    frame: bytes | None = None
    """The whole SEND_RESULT frame once the outcome is known."""
    lease: CacheEntry | None = None
    """The cache entry the frame repeats; it is evicted once the frame has left."""


class Session:
    """State of one connection; the relay reads and moves it, nobody else does."""

    __slots__ = (
        "active_at",
        "always_preimage",
        "bucket",
        "commits",
        "frame_since",
        "frames",
        "held",
        "host",
        "identity",
        "is_original",
        "leases",
        "limited",
        "limits",
        "negotiated",
        "nonce",
        "outstanding",
        "peer",
        "pending_ids",
        "sent",
        "state",
        "strikes",
        "unanswered",
        "unread_replies",
        "unread_timeouts",
        "waiting_since",
        "with_preimage",
    )

    def __init__(
        self,
        peer: Peer,
        nonce: int,
        frame_limits: Mapping[int, int],
        limits: InForce[BhumiLimits],
        now: Instant,
        *,
        rate_limits: bool = True,
    ) -> None:
        """Open a session.

        Args:
            peer: The connection's number.
            nonce: u32 that its I_AM must sign.
            frame_limits: Largest payload per frame type.
            limits: What a connection may do.
            now: When the connection came.
            rate_limits: False lifts the allowance for SENDs and I_AMs.
        """
        self.peer = peer
        self.nonce = nonce
        self.frames = FrameBuffer(frame_limits)
        self.limited = rate_limits
        """Whether any rate or ceiling per address holds for it."""
        self.limits = limits
        rate, burst = limits.now.sends_per_second, limits.now.sends_burst
        self.bucket = TokenBucket(rate, burst, now) if rate_limits else None
        self.state = State.ANONYMOUS
        self.identity: PublicKey | None = None
        self.always_preimage = False
        """Whether it came by a listener on which every DELIVER shows the preimage."""
        self.is_original = False
        """Whether it came by the listener for nodes of the original, which never send KEEPALIVE."""
        self.host = ""
        """What its address is counted under; "" when nobody knows."""
        self.negotiated: Negotiated | None = None
        """What OPTIONS has agreed on; None for a connection that knows the seed's protocol only."""
        self.with_preimage = False
        """Whether DELIVER shows the preimage on this connection."""
        self.commits: set[bytes] = set()
        self.outstanding: deque[Slot] = deque()
        """SENDs of this connection, oldest first; results leave in this order."""
        self.pending_ids: dict[int, None] = {}
        """Numbers of deliveries this recipient has not answered, oldest first."""
        self.leases: list[tuple[int, CacheEntry]] = []
        """Cache entries whose bytes are on their way to this peer, and in which of the relay's turns they left."""
        self.unread_timeouts = 0
        """Deliveries that timed out while bytes waited for this peer: they may still fill its buffer."""
        self.sent = _NOTHING_SENT
        """Numbers of deliveries to this identity, on this connection and those before it."""
        self.unanswered: dict[bytes, None] = {}
        """Commits of deliveries on this connection without an ACK, oldest first: naming them again means nothing."""
        self.strikes = 0
        self.held = False
        self.unread_replies = 0
        self.active_at = now
        """When bytes came or a result left, whichever was later."""
        self.frame_since: Instant | None = None
        self.waiting_since: Instant | None = None

    def __repr__(self) -> str:
        """Show what matters in a trace."""
        return f"<Session {self.peer} {self.state.value}, {len(self.outstanding)} out, {len(self.pending_ids)} in>"

    def move(self, frame_type: FrameType) -> None:
        """Move the machine by a frame that was accepted."""
        self.state = TRANSITIONS[self.state, frame_type]

    def note_unanswered(self, commit: bytes, remembered_max: int) -> None:
        """Remember that a commit was used for a delivery here; beyond ``remembered_max`` the oldest is forgotten."""
        self.unanswered[commit] = None
        if len(self.unanswered) > remembered_max:
            del self.unanswered[next(iter(self.unanswered))]

    def note_answered(self, delivered_to: Peer, commit: bytes) -> None:
        """Note that a delivery to connection ``delivered_to`` has its answer."""
        if delivered_to == self.peer:
            self.unanswered.pop(commit, None)

    def use_limits(self) -> None:
        """Give the allowances of this connection their size anew: the limits have changed."""
        limits = self.limits.now
        if self.bucket is not None:
            self.bucket.change(limits.sends_per_second, limits.sends_burst)
        if self.negotiated is not None:
            self.negotiated.use_limits(limits)

    def close(self) -> None:
        """Move to CLOSED, where nothing is legal any more.

        A SEND under way may keep this object until its exchange ends, so it lets go of everything large.
        """
        self.state = State.CLOSED
        self.leases.clear()
        self.commits.clear()
        self.unanswered.clear()
        self.frames = FrameBuffer({})

    def note_congested(self, now: Instant) -> None:
        """Bytes wait for this peer, or fewer wait than at the last call."""
        if self.waiting_since is None:
            self.unread_replies = 0
        self.waiting_since = now

    def must_hold(self) -> bool:
        """Return whether the relay must not take another frame of this connection now."""
        limits = self.limits.now
        # A cached result counts until it has left: one entry could otherwise be asked for a whole burst of times.
        # BHUMI-9: the 17th SEND stops the reading.
        if max(len(self.outstanding), len(self.leases)) >= limits.outstanding_sends:
            return True
        # A peer that sends and never reads fills our buffers no further.
        if self.waiting_since is not None and self.unread_replies >= limits.unread_replies:
            return True
        return self.bucket is not None and not self.bucket.ready()

    def watch_frame(self, now: Instant, *, progressed: bool) -> None:
        """Start, keep or stop the frame timer after bytes were handled.

        Args:
            now: The instant of the input.
            progressed: Whether a whole frame was taken, so that what waits belongs to the next one.
        """
        # BHUMI-C6: the frame timer does not run while we are the ones who stopped reading.
        if self.held or not self.frames.waiting:
            self.frame_since = None
        elif progressed or self.frame_since is None:
            self.frame_since = now

    def deadline(self) -> Instant:
        """Return the earliest instant at which the relay must look at this session."""
        earliest = min(at for at, _ in self._timers())
        if self.held and self.bucket is not None and not self.bucket.ready():
            return min(earliest, self.bucket.ready_at())
        return earliest

    def overdue(self, now: Instant) -> Refusal | None:
        """Return which timer has run out, or None."""
        for at, refusal in self._timers():
            if at <= now:
                return refusal
        return None

    def _timers(self) -> list[tuple[Instant, Refusal]]:
        # BHUMI-L: an identified connection may be idle twice as long; its device waits for requests.
        idle_ms = IDLE_IDENTIFIED_MS if self.state is State.IDENTIFIED else IDLE_ANONYMOUS_MS
        # BHUMI-ORIGINAL: nodes of the original are quiet while nobody asks; TCP keepalive finds the dead ones.
        if self.is_original:
            idle_ms = IDLE_ORIGINAL_MS
        timers = [(after_ms(self.active_at, idle_ms), Refusal.IDLE_TIMEOUT)]
        if self.waiting_since is not None:
            timers.append((after_ms(self.waiting_since, WRITE_TIMEOUT_MS), Refusal.WRITE_TIMEOUT))
        if self.frame_since is not None:
            timers.append((after_ms(self.frame_since, FRAME_TIMEOUT_MS), Refusal.FRAME_TIMEOUT))
        # BHUMI-BINDING: an I_AM that waits must be proven within 10 s.
        if self.negotiated is not None and self.negotiated.proof_by is not None:
            timers.append((self.negotiated.proof_by, Refusal.BINDING_MISSING))
        return timers
