"""One connection at the relay.

Three kinds of connection come here, and each proves a different thing. Whoever connects answers our challenge and is
a client; a node goes on to prove itself both ways and becomes a peer. Whom we dial challenges us, and is a peer once
it has proved itself, or an original relay (``UPSTREAM``) when it stays silent. Who comes through the door for
original relays challenges us too and proves nothing (``DOWNSTREAM``). ``TRANSITIONS`` is the whole machine.

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
from waystation.protocols.merk.messages import FRAME_BYTES_USUAL, Hello

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
    GREETING = "greeting"
    """We wait for its HELLO and its proof."""
    UPSTREAM = "upstream"
    """An original relay that we dialled; to it we are a client."""
    DOOR = "door"
    """We wait for the challenge of an original relay that dialled us."""
    DOOR_ANSWERED = "door_answered"
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
    (State.ANSWERED, Move.CONFIRM): State.GREETING,
    (State.GREETING, Move.PROOF): State.PEER,
    (State.GREETING, Move.SILENCE): State.UPSTREAM,
    (State.UPSTREAM, Move.PROOF): State.PEER,
    (State.DOOR, Move.CHALLENGE): State.DOOR_ANSWERED,
    (State.DOOR_ANSWERED, Move.CONFIRM): State.DOWNSTREAM,
}

ORIGINALS: Final = frozenset({State.UPSTREAM, State.DOWNSTREAM})
NODES: Final = ORIGINALS | {State.PEER}

AUTH_DEADLINE_MS: Final = 5_000  # specs/merk.md 2
DOOR_DEADLINE_MS: Final = 2_000  # specs/merk.md 5
GREETING_MS: Final = 2_000  # a node of ours answers HELLO at once; an original never does
PEER_PROOF_MS: Final = 5_000
FRAMES_PER_SECOND: Final = 500  # specs/merk.md 8
FRAMES_BURST: Final = 1_000
BYTES_PER_SECOND: Final = 16_777_216  # ours: one connection must not fill a gigabit line
BYTES_BURST: Final = 67_108_864
FREE_BYTES: Final = 4_096  # frames up to this size are counted, not weighed: 500 of them are 2 MiB
_FACTORS: Final = {State.PEER: 40, State.UPSTREAM: 4, State.DOWNSTREAM: 4}
"""A node speaks for many clients; one that has not proved itself gets less."""


class Contact(NamedTuple):
    """Whom we dialled."""

    url: str
    expected_key: bytes | None
    """Key that the address was told with, None when it came alone."""


class Sending:
    """A frame on its way, and who wants to know what becomes of it."""

    __slots__ = ("denials", "frame", "frame_hash", "session", "target", "until")

    def __init__(self, session: "Session | None", target: bytes, frame: bytes, frame_hash: bytes) -> None:
        """Note a frame.

        Args:
            session: Where it came from and the outcome is told; None when nobody asked to know.
            target: The recipient's key.
            frame: All of it.
            frame_hash: As in DELIVERY; empty when nobody asked to know.
        """
        self.session = session
        self.target = target
        self.frame = frame
        self.frame_hash = frame_hash
        self.denials = 0
        """How many nodes have said that the recipient is not with them any more."""
        self.until = Instant(0)
        """Until when it may wait for a slow link."""


Flight = tuple[Instant, "Session | None", bytes, bytes, int]
"""A frame that left for a node and is not answered: until when it may be, who is told, target, frame, denials.

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
        "held",
        "hello",
        "identified",
        "identity",
        "key_questions",
        "link",
        "nonce",
        "peer",
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
        "wants_notices",
    )

    def __init__(
        self, peer: Peer, state: State, now: Instant, *, address: str = "", contact: Contact | None = None
    ) -> None:
        """Open a session.

        Args:
            peer: The connection's number.
            state: CHALLENGED, DIALLED or DOOR.
            now: When the connection came.
            address: What its host is counted under.
            contact: Whom we dialled; None for who came to us.
        """
        self.peer = peer
        self.state = state
        self.address = address
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
        """Until when a node that greeted us must have proved itself."""
        self.wants_notices = False
        """Whether it is told what becomes of its frames; so is every peer."""
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
        self.held = False
        """Whether we have stopped reading it."""
        self.replies_bytes = 0
        """Bytes of our own answers since it began not to read."""
        # What is told about it
        self.delivered_count = self.delivered_bytes = 0
        self.frame_bytes_max = FRAME_BYTES_USUAL
        """Largest frame that a node takes, as it says."""
        self.link: Traffic | None = None
        """Counts of a node's connection."""
        # What was asked, both ways
        self.asked: dict[bytes, Instant] = {}
        """Clients that we asked this node about, and until when it may answer."""
        self.flights: dict[bytes, Flight] = {}
        """Frames that left for this node and are not answered, the oldest of each hash."""
        self.twins: dict[bytes, deque[Flight]] = {}
        """Younger ones of equal frames, oldest first."""
        self.asked_by: dict[Session, None] = {}
        """Nodes that were told this client is here."""
        self.distrusted: dict[bytes, Instant] = {}
        """Clients that this node was wrong about, and until when its word about them counts for less."""

    def __repr__(self) -> str:
        """Show what matters in a trace."""
        return f"<Session {self.peer} {self.state.value} {(self.identity or b'').hex()[:8]}>"

    def move(self, move: Move) -> None:
        """Move the machine; a move that the table does not have is a bug of ours."""
        self.state = TRANSITIONS[self.state, move]
        self.deadline = None

    def give_allowances(self, now: Instant) -> None:
        """Begin to count what it sends; nodes may send more."""
        factor = _FACTORS.get(self.state, 1)
        self.frames_allowance = TokenBucket(FRAMES_PER_SECOND * factor, FRAMES_BURST * factor, now)
        self.bytes_allowance = TokenBucket(BYTES_PER_SECOND * factor, BYTES_BURST * factor, now)

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
