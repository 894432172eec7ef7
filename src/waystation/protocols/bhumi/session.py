"""One connection at the relay.

A session is ANONYMOUS until a valid I_AM makes it IDENTIFIED, and CLOSED for ever after. Every frame type a client may
send is legal in both open states; what differs is what the relay makes of it. The table ``TRANSITIONS``
is the whole machine.

The session cuts bytes into frames, remembers the order in which results must leave, and answers three
questions for the relay: may I read on (``must_hold``), what is my next deadline, and which deadline has passed.
It does not know other sessions, commits of others, or the cache.

Spec: Bhumi v2 sections 3 to 5; BHUMI-8, BHUMI-9, BHUMI-24, BHUMI-L (timers), BHUMI-C6.
"""

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Final

from waystation.core.effects import Peer
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.core.limits import TokenBucket
from waystation.protocols.bhumi.cache import CacheEntry
from waystation.protocols.bhumi.exchanges import SentNumbers, Slot
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.negotiated import Negotiated
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.wire import FrameBuffer

__all__ = ["TRANSITIONS", "Session", "State"]


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

OUTSTANDING_MAX: Final = 16  # SENDs without a result on one connection, BHUMI-9
SENDS_PER_SECOND: Final = 200  # per connection, BHUMI-A11
SENDS_BURST: Final = 400
UNREAD_REPLIES_MAX: Final = 16  # replies to a peer that does not read, before we stop reading it
FRAME_TIMEOUT_MS: Final = 10_000
IDLE_IDENTIFIED_MS: Final = 120_000
IDLE_ANONYMOUS_MS: Final = 60_000
WRITE_TIMEOUT_MS: Final = 10_000  # BHUMI-A15

_NOTHING_SENT: Final = SentNumbers()  # of every connection without an identity; nobody notes anything in it


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
        "leases",
        "negotiated",
        "nonce",
        "outstanding",
        "peer",
        "pending_ids",
        "sent",
        "state",
        "strikes",
        "unread_replies",
        "unread_timeouts",
        "waiting_since",
        "with_preimage",
    )

    def __init__(
        self, peer: Peer, nonce: int, frame_limits: Mapping[int, int], now: Instant, *, rate_limits: bool = True
    ) -> None:
        """Open a session.

        Args:
            peer: The connection's number.
            nonce: u32 that its I_AM must sign.
            frame_limits: Largest payload per frame type.
            now: When the connection came.
            rate_limits: False lifts the allowance for SENDs and I_AMs.
        """
        self.peer = peer
        self.nonce = nonce
        self.frames = FrameBuffer(frame_limits)
        self.bucket = TokenBucket(SENDS_PER_SECOND, SENDS_BURST, now) if rate_limits else None
        self.state = State.ANONYMOUS
        self.identity: PublicKey | None = None
        self.always_preimage = False
        """Whether it came through a door where DELIVER shows the preimage to everybody."""
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

    def close(self) -> None:
        """Move to CLOSED, where nothing is legal any more.

        A SEND under way may keep this object until its exchange ends, so it lets go of everything large.
        """
        self.state = State.CLOSED
        self.leases.clear()
        self.commits.clear()
        self.frames = FrameBuffer({})

    def note_congested(self, now: Instant) -> None:
        """Bytes wait for this peer, or fewer wait than at the last call."""
        if self.waiting_since is None:
            self.unread_replies = 0
        self.waiting_since = now

    def must_hold(self) -> bool:
        """Return whether the relay must not take another frame of this connection now."""
        # A cached result counts until it has left: one entry could otherwise be asked for a whole burst of times.
        if len(self.outstanding) >= OUTSTANDING_MAX or len(self.leases) >= OUTSTANDING_MAX:
            return True
        if self.waiting_since is not None and self.unread_replies >= UNREAD_REPLIES_MAX:
            return True
        return self.bucket is not None and not self.bucket.ready()

    def watch_frame(self, now: Instant, *, progressed: bool) -> None:
        """Start, keep or stop the frame timer after bytes were handled.

        Args:
            now: The instant of the input.
            progressed: Whether a whole frame was taken, so that what waits belongs to the next one.
        """
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
        idle_ms = IDLE_IDENTIFIED_MS if self.state is State.IDENTIFIED else IDLE_ANONYMOUS_MS
        timers = [(after_ms(self.active_at, idle_ms), Refusal.IDLE_TIMEOUT)]
        if self.waiting_since is not None:
            timers.append((after_ms(self.waiting_since, WRITE_TIMEOUT_MS), Refusal.WRITE_TIMEOUT))
        if self.frame_since is not None:
            timers.append((after_ms(self.frame_since, FRAME_TIMEOUT_MS), Refusal.FRAME_TIMEOUT))
        if self.negotiated is not None and self.negotiated.proof_by is not None:
            timers.append((self.negotiated.proof_by, Refusal.BINDING_MISSING))
        return timers
