"""The session of one connection of a BSP device: its handshake, its timeouts and its end.

The stream machine keeps one for each connection: bytes and time go in, records and moves come out. A connection that
our TLS listener accepts gets our hello and proves its key (``ACCEPTING``). A server that we dial sends its hello
(``DIALLING``) and proves its key in its verdict (``PROVING``). Then records flow both ways (``OPEN``); a plain
connection starts there. When one side stops sending, nothing more is read. Remaining records are stored and written
within three seconds (``ENDING``). ``TRANSITIONS`` is the complete state machine; every state can become ``CLOSED``.

Spec: bsp 1 (BSP-D9), 5, 11.7, 11.8.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from waystation.core.effects import Peer
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.protocols.bsp.refusals import MalformedError, Refusal
from waystation.protocols.bsp.stream import handshake
from waystation.protocols.bsp.stream.handshake import Acceptor, Dialler
from waystation.protocols.bsp.wire import RecordReader

__all__ = [
    "ENDING_MS",
    "HANDSHAKE_MS",
    "HANDSHAKING",
    "RECORD_STALL_MS",
    "SEND_STALL_MS",
    "TRANSITIONS",
    "Move",
    "PeerPolicy",
    "Session",
    "State",
    "Step",
]

HANDSHAKE_MS: Final = 10_000  # BSP-UNPROVED: three messages, and a slow link beneath them
RECORD_STALL_MS: Final = 30_000  # BSP-D9
SEND_STALL_MS: Final = 60_000  # BSP-STALL
ENDING_MS: Final = 3_000  # bsp 11.7


class State(Enum):
    """The state of a connection."""

    ACCEPTING = "accepting"
    """We sent our hello and wait for a proof."""
    DIALLING = "dialling"
    """We wait for the hello of the server that we dialled."""
    PROVING = "proving"
    """We sent our proof and wait for the verdict."""
    OPEN = "open"
    """Records go both ways."""
    ENDING = "ending"
    """Nothing more is read; what is left is stored and written."""
    CLOSED = "closed"


class Move(Enum):
    """An event that changes the state of a connection."""

    HELLO = "hello"
    PROOF = "proof"
    VERDICT = "verdict"
    FINISH = "finish"


TRANSITIONS: Final[Mapping[tuple[State, Move], State]] = {
    (State.DIALLING, Move.HELLO): State.PROVING,
    (State.PROVING, Move.VERDICT): State.OPEN,
    (State.ACCEPTING, Move.PROOF): State.OPEN,
    (State.OPEN, Move.FINISH): State.ENDING,
}

HANDSHAKING: Final = frozenset({State.ACCEPTING, State.DIALLING, State.PROVING})

PeerPolicy = Callable[[PublicKey], Refusal | None]
"""Returns why the holder of a proved key is rejected, None when it is accepted."""


class Step(NamedTuple):
    """The result of bytes that arrived during a handshake."""

    reply: bytes
    """To be sent, also before a refusal."""
    refusal: Refusal | None
    """Why the connection is over, None when it goes on."""
    rest: bytes
    """Records that came right after the handshake; not empty only once the connection is open."""


class Session:
    """State of one connection; only the machine reads and moves it."""

    __slots__ = (
        "_begun",
        "_handshake",
        "came_at",
        "congested",
        "dialled",
        "ends_at",
        "has_sent",
        "held",
        "key",
        "kind",
        "link",
        "opened_at",
        "owed",
        "peer",
        "progress_at",
        "proved",
        "reader",
        "reason",
        "received_at",
        "saved_by",
        "state",
    )

    def __init__(
        self,
        peer: Peer,
        kind: str,
        reader: RecordReader,
        now: Instant,
        *,
        handshake: Acceptor | Dialler | None = None,
        key: PublicKey | None = None,
        began_at: Instant | None = None,
    ) -> None:
        """Open a session.

        Args:
            peer: The connection's number.
            kind: tls, wss or plain.
            reader: Cuts its bytes into records.
            now: When the connection was established.
            handshake: Our side of the handshake; None for a plain connection, which is open at once.
            key: Key that the other side has, or must have; None until its proof.
            began_at: When we began to dial; None for a connection that we accepted.
        """
        self.peer = peer
        self.kind = kind
        self.reader = reader
        self.key = key
        self.proved = handshake is None
        """Whether the other side has proved ``key``."""
        self.dialled = began_at is not None
        self.came_at = now if began_at is None else began_at
        self.opened_at = now
        self.state = _FIRST[type(handshake)]
        self.link = -1
        """The device's number of this connection while it is open."""
        self._handshake = handshake
        self._begun = b""
        """Bytes of a handshake message that is not whole."""
        self.received_at = now
        self.has_sent = False
        """Whether it has sent a record, or a part of one."""
        self.held = False
        """Whether we have stopped reading it."""
        # What goes out
        self.congested = False
        self.owed = False
        """Whether we wait for the report that our last write has left."""
        self.progress_at = now
        # The end
        self.reason: Refusal | None = None
        """Why it is ending."""
        self.ends_at: Instant | None = None
        self.saved_by = 0
        """Ticket of the commit that holds its last records."""

    def __repr__(self) -> str:
        """Return number, kind, state and key for a trace."""
        return f"<Session {self.peer} {self.kind} {self.state.value} {(self.key or b'').hex()[:8]}>"

    @property
    def is_free(self) -> bool:
        """Whether a write would leave at once, as far as we know."""
        return not (self.congested or self.owed)

    def move(self, move: Move) -> None:
        """Move the machine; a move that the table does not have is a bug of ours."""
        self.state = TRANSITIONS[self.state, move]

    def shake_hands(self, data: bytes, policy: PeerPolicy) -> Step:
        """Take bytes of a handshake, in any chunking.

        Args:
            data: As they came.
            policy: Called once, with the key that the other side has proved.
        """
        begun, reply = self._begun + data, b""
        while self.state in HANDSHAKING:
            size = _SIZES[self.state]
            # Spec 5: hello and proof begin with "BSPH" 01 000000; a verdict begins with its signature.
            if self.state is not State.PROVING and not handshake.may_begin(begun):
                return Step(reply, Refusal.HANDSHAKE, b"")
            if len(begun) < size:
                self._begun = begun
                return Step(reply, None, b"")
            answer, refusal = self._take(begun[:size], policy)
            reply, begun = reply + answer, begun[size:]
            if refusal is not None:
                return Step(reply, refusal, b"")
        self._begun = b""
        # Spec 5: records may follow the last message of the handshake in the same bytes.
        return Step(reply, None, begun)

    def finish(self, reason: Refusal, now: Instant, saved_by: int) -> None:
        """Read nothing more; what is left to write gets three seconds."""
        self.move(Move.FINISH)
        self.reason, self.saved_by = reason, saved_by
        # Spec 5: after a half-close is still written what is ready, for 3 s.
        self.ends_at = after_ms(now, ENDING_MS)

    def next_look(self) -> Instant | None:
        """Return when ``overdue`` may return a reason if nothing happens until then."""
        if self.state in HANDSHAKING:
            # Spec 5: 10 s for the whole handshake.
            return after_ms(self.came_at, HANDSHAKE_MS)
        if self.state is State.ENDING:
            return self.ends_at
        times = []
        # Spec 1: a record that has begun and does not go on for 30 s closes; not while we are the one who waits.
        if self.reader.is_inside and not self.held:
            times.append(after_ms(self.received_at, RECORD_STALL_MS))
        if not self.is_free:
            # Spec 9: a peer that takes nothing for 60 s is closed.
            times.append(after_ms(self.progress_at, SEND_STALL_MS))
        return min(times, default=None)

    def overdue(self, now: Instant) -> Refusal | None:
        """Return why the connection must end now, None when it may go on."""
        at = self.next_look()
        if at is None or at > now:
            return None
        if self.state in HANDSHAKING:
            return Refusal.HANDSHAKE_TIMEOUT
        if self.state is State.ENDING:
            return self.reason
        is_stuck = not self.is_free and after_ms(self.progress_at, SEND_STALL_MS) <= now
        return Refusal.SEND_STALLED if is_stuck else Refusal.STALLED

    def _take(self, message: bytes, policy: PeerPolicy) -> tuple[bytes, Refusal | None]:
        """Return the answer to one whole message of the handshake, and why it was the last."""
        ours = self._handshake
        if isinstance(ours, Acceptor):
            return self._on_proof(ours, message, policy)
        assert ours is not None
        return self._on_hello(ours, message) if self.state is State.DIALLING else self._on_verdict(ours, message)

    def _on_proof(self, ours: Acceptor, message: bytes, policy: PeerPolicy) -> tuple[bytes, Refusal | None]:
        proof = handshake.decode_proof(message)
        # Spec 5: a wrong signature is closed without an answer, and it is checked before the table.
        if not ours.proves(proof):
            return b"", Refusal.BAD_SIGNATURE
        self.key, self.proved = proof.key, True
        refusal = policy(proof.key)
        if refusal is None:
            self.move(Move.PROOF)
            # Spec 5: status 0: records follow, both ways.
            return ours.verdict(proof, None), None
        # Spec 5: 1 your key is not in our table, 2 busy; a ban is not shown (BSP-TOLD).
        return ours.verdict(proof, _REPORTED.get(refusal, refusal)), refusal

    def _on_hello(self, ours: Dialler, message: bytes) -> tuple[bytes, Refusal | None]:
        try:
            proof = ours.answer(handshake.decode_hello(message))
        # Spec 5: the client closes when another key answers than the one it dialled.
        except MalformedError as error:
            return b"", error.refusal
        self.move(Move.HELLO)
        return proof, None

    def _on_verdict(self, ours: Dialler, message: bytes) -> tuple[bytes, Refusal | None]:
        refusal = ours.check_verdict(handshake.decode_verdict(message))
        if refusal is None:
            self.proved = True
            self.move(Move.VERDICT)
        return b"", refusal


_FIRST: Final = {Acceptor: State.ACCEPTING, Dialler: State.DIALLING, type(None): State.OPEN}
_SIZES: Final = {
    State.ACCEPTING: handshake.PROOF_BYTES,
    State.DIALLING: handshake.HELLO_BYTES,
    State.PROVING: handshake.VERDICT_BYTES,
}
_REPORTED: Final = {Refusal.IDENTITY_BANNED: Refusal.UNKNOWN_PEER, Refusal.DRAINING: Refusal.BUSY}
"""The reason that the other side gets where the true one has no status (BSP-TOLD)."""
