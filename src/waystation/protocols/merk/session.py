"""One connection at the MERK relay: its handshake state, proven key, rate limits and waiting frames.

The relay's ``Sessions`` keeps it; ``handshake`` moves it. A connection that we accept answers our challenge and becomes
a client. A node then proves its key in both directions and becomes a peer. A reference relay is one of the original
implementation, without such proofs: one that we dialled and that stays silent becomes ``UPSTREAM``, one that connects
to the listener for them ``DOWNSTREAM``. ``TRANSITIONS`` is the complete state machine.

Spec: specs/merk.md 2, 5, 7, 10.
"""

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from waystation.core.effects import Peer
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.limits import TokenBucket
from waystation.core.networks import network_of
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.messages import FRAME_BYTES_USUAL, Hello, Presence

__all__ = [
    "FREE_BYTES",
    "NODES",
    "ORIGINALS",
    "TRANSITIONS",
    "Contact",
    "Flight",
    "Move",
    "Sending",
    "Session",
    "State",
]


class State(Enum):
    """Where a connection stands."""

    CHALLENGED = "challenged"
    """We sent a challenge and wait for the answer."""
    CLIENT = "client"
    PEER = "peer"
    """A node, proved both ways."""
    DIALLED = "dialled"
    """We wait for the challenge of a node that we dialled."""
    ANSWERED = "answered"
    """We wait for its confirmation."""
    AWAITING_HELLO = "awaiting_hello"
    """We wait for its HELLO and its proof."""
    UPSTREAM = "upstream"
    """An original relay that we dialled; to it we are a client."""
    AWAITING_CHALLENGE = "awaiting_challenge"
    """We wait for the challenge of an original relay that dialled us."""
    CHALLENGE_ANSWERED = "challenge_answered"
    """We wait for its confirmation."""
    DOWNSTREAM = "downstream"
    """An original relay that dialled us; its key is a claim."""
    CLOSED = "closed"


class Move(Enum):
    """What moves a connection on."""

    ANSWER = "answer"
    CHALLENGE = "challenge"
    CONFIRM = "confirm"
    PROOF = "proof"
    SILENCE = "silence"


TRANSITIONS: Final[Mapping[tuple[State, Move], State]] = {
    (State.CHALLENGED, Move.ANSWER): State.CLIENT,
    (State.CLIENT, Move.PROOF): State.PEER,
    (State.DIALLED, Move.CHALLENGE): State.ANSWERED,
    (State.ANSWERED, Move.CONFIRM): State.AWAITING_HELLO,
    (State.AWAITING_HELLO, Move.PROOF): State.PEER,
    (State.AWAITING_HELLO, Move.SILENCE): State.UPSTREAM,
    (State.UPSTREAM, Move.PROOF): State.PEER,
    (State.AWAITING_CHALLENGE, Move.CHALLENGE): State.CHALLENGE_ANSWERED,
    (State.CHALLENGE_ANSWERED, Move.CONFIRM): State.DOWNSTREAM,
}

ORIGINALS: Final = frozenset({State.UPSTREAM, State.DOWNSTREAM})
NODES: Final = ORIGINALS | {State.PEER}

AUTH_DEADLINE_MS: Final = 5_000  # specs/merk.md 2
CHALLENGE_DEADLINE_MS: Final = 2_000  # specs/merk.md 5
HELLO_ANSWER_MS: Final = 2_000  # a node of ours answers HELLO at once; an original never does
PEER_PROOF_MS: Final = 5_000  # spec 5: HELLO and AUTH take a round trip
FREE_BYTES: Final = 4_096  # frames up to this size are counted, not weighed: 500 of them are 2 MiB


class Contact(NamedTuple):
    """Whom we dialled."""

    url: str
    expected_key: bytes | None
    """Key that the address was named with, None when it came alone."""


class Sending:
    """A frame on its way, and who wants to know what becomes of it."""

    __slots__ = ("denials", "frame", "frame_hash", "message_id", "session", "target", "until")

    def __init__(
        self, session: "Session | None", target: bytes, frame: bytes, frame_hash: bytes, message_id: bytes = b""
    ) -> None:
        """Note a frame.

        Args:
            session: The connection that it came from and that gets its outcome; None when it asked for none.
            target: The recipient's key.
            frame: All of it.
            frame_hash: As in DELIVERY; empty when nobody asked to know, or when it is not worked out yet.
            message_id: Names the frame to a node that gets DELIVERIES, 16 bytes; empty for anybody else.
        """
        self.session = session
        self.target = target
        self.frame = frame
        self.frame_hash = frame_hash
        self.message_id = message_id
        self.denials = 0
        """How many nodes have said that the recipient is not with them any more."""
        self.until = Instant(0)
        """Until when it may wait for a slow link."""


Flight = tuple[Instant, "Session | None", bytes, bytes, int]
"""A frame that left for a node and is not answered: until when it may be, who gets the outcome, target, frame, denials.

A bare tuple, because each frame that crosses a link needs one.
"""


class Session:
    """State of one connection; the relay and its parts read and move it, nobody else does."""

    __slots__ = (
        "address",
        "ahead_bytes",
        "asked",
        "asked_by",
        "bytes_allowance",
        "challenge",
        "congested",
        "contact",
        "deadline",
        "delivered_bytes",
        "delivered_count",
        "distrusted",
        "flights",
        "frame_bytes_max",
        "frames_allowance",
        "gathers_notices",
        "held",
        "hello",
        "identified",
        "identity",
        "is_proved",
        "is_unnamed",
        "key_questions",
        "link",
        "network",
        "nonce",
        "peer",
        "presence",
        "progress_at",
        "proved_by",
        "replies_bytes",
        "searches",
        "state",
        "strikes",
        "turn",
        "twins",
        "waiting",
        "waiting_bytes",
        "waiting_of",
        "wants_notices",
    )

    def __init__(
        self, peer: Peer, state: State, now: Instant, *, address: str = "", contact: Contact | None = None
    ) -> None:
        """Open a session.

        Args:
            peer: The connection's number.
            state: CHALLENGED, DIALLED or AWAITING_CHALLENGE.
            now: When the connection came.
            address: What its host is counted under.
            contact: Whom we dialled; None for who came to us.
        """
        self.peer = peer
        self.state = state
        self.address, self.network = address, network_of(address)  # of an address that is none the network is ""
        self.contact = contact
        self.identity: PublicKey | None = None
        """The key it proved, or claims as an original relay; None before."""
        self.identified = False
        """Whether it has proved that key."""
        self.challenge = b""
        self.deadline: Instant | None = None
        """When the present state must have been left; None for those that may last."""
        self.hello: Hello | None = None
        self.nonce = b""
        """Nonce of our own HELLO, empty before it was sent."""
        self.proved_by: Instant | None = None
        """Until when a node that greeted us, or a client whose key needs it, must have proved itself by AUTH."""
        # A client that proved by AUTH that it speaks with this very node; a node that the operator has not named.
        self.is_proved = self.is_unnamed = False
        self.presence: Presence | None = None  # the newest that a client has signed about its being here
        # Whether it gets the outcome of its frames, as every peer does; and whether that is by DELIVERIES.
        self.wants_notices = self.gathers_notices = False
        self.frames_allowance: TokenBucket | None = None  # None: nothing is counted
        self.bytes_allowance: TokenBucket | None = None
        self.strikes = 0
        self.searches = self.key_questions = 0
        """Clients that are looked for on its account, and keys that it waits for."""
        # What waits for it
        self.congested = False
        self.progress_at = now
        self.turn = self.ahead_bytes = 0
        """Bytes handed over in ``turn``; while congested, the most that can wait behind us."""
        self.waiting: deque[Sending] = deque()  # until it reads
        self.waiting_bytes = 0
        self.waiting_of: dict[bytes, int] = {}  # by sender, of those that wait for a client
        self.held = False
        """Whether we have stopped reading it."""
        self.replies_bytes = 0
        """Bytes of our own answers since it began not to read."""
        # What is reported of it
        self.delivered_count = self.delivered_bytes = 0
        self.frame_bytes_max = FRAME_BYTES_USUAL
        """Largest frame that a node takes, as it says."""
        self.link: Traffic | None = None  # of a node's connection
        # What was asked, both ways
        self.asked: dict[bytes, Instant] = {}
        """Clients that we asked this node about, and until when it may answer."""
        self.flights: dict[bytes, Flight] = {}
        """Frames that left for this node and are not answered, by what it names them by: the id of the FORWARD where
        it gathers notices, else the hash of the frame, of which the oldest is here."""
        self.twins: dict[bytes, deque[Flight]] = {}
        """Younger ones of equal frames, oldest first."""
        self.asked_by: dict[Session, None] = {}
        """Nodes that learnt from us that this client is here."""
        self.distrusted: dict[bytes, Instant] = {}
        """Clients that this node was wrong about, and until when its word about them counts for less."""

    def __repr__(self) -> str:
        """Show what matters in a trace."""
        return f"<Session {self.peer} {self.state.value} {(self.identity or b'').hex()[:8]}>"

    def move(self, move: Move) -> None:
        """Move the machine; a move that the table does not have is a bug of ours."""
        self.state = TRANSITIONS[self.state, move]
        self.deadline = None

    def give_allowances(self, limits: MerkLimits, now: Instant) -> None:
        """Begin to count what it sends; a node of the operator's speaks for many clients, others get less."""
        factor = self._factor(limits)
        self.frames_allowance = TokenBucket(limits.frames_per_second * factor, limits.frames_burst * factor, now)
        self.bytes_allowance = TokenBucket(limits.bytes_per_second * factor, limits.bytes_burst * factor, now)

    def use_limits(self, limits: MerkLimits) -> None:
        """Give the allowances, if it has any, their new size; what is left in them stays."""
        factor = self._factor(limits)
        if self.frames_allowance is not None:
            self.frames_allowance.change(limits.frames_per_second * factor, limits.frames_burst * factor)
        if self.bytes_allowance is not None:
            self.bytes_allowance.change(limits.bytes_per_second * factor, limits.bytes_burst * factor)

    def _factor(self, limits: MerkLimits) -> int:
        """Return how many times the rates of a client it has."""
        if self.state in ORIGINALS:
            return limits.original_factor
        return limits.node_factor if self.state is State.PEER and not self.is_unnamed else 1

    def affords(self, size: int, now: Instant) -> bool:
        """Count a frame of ``size`` bytes; False when it is one too many."""
        frames, space = self.frames_allowance, self.bytes_allowance
        if frames is None or space is None:
            return True
        if not frames.take(now):
            return False
        return size <= FREE_BYTES or space.take(now, size)

    def affords_run(self, count: int, weighed_bytes: int, now: Instant) -> bool:
        """Count a run of frames, all or none; ``weighed_bytes`` are those of the frames that are not free."""
        frames, space = self.frames_allowance, self.bytes_allowance
        if frames is None or space is None:
            return True
        frames.refill(now)
        if frames.left < count or (weighed_bytes and not space.take(now, weighed_bytes)):
            return False
        return frames.take(now, count)


class Traffic:
    """Counts of one link to another node."""

    __slots__ = ("bytes_in", "bytes_out", "frames_in", "frames_out", "since")

    def __init__(self, now: Instant) -> None:
        """Begin to count."""
        self.since = now
        self.frames_in = self.frames_out = self.bytes_in = self.bytes_out = 0
