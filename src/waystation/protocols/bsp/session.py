"""One connection of a device.

Who comes through TLS gets our hello and proves itself (``ACCEPTING``); whom we dial is waited for (``DIALLING``) and
proves itself in its verdict (``PROVING``). Behind that, and on a plain connection at once, records come and go
(``OPEN``) until one side has no more to say: then nothing more is read, and what is left to be stored and written gets
three seconds (``ENDING``). ``TRANSITIONS`` is the whole machine; from every state a connection may be ``CLOSED``.

Spec: bsp 1 (BSP-D9), 5, 11.7, 11.8.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from waystation.core.effects import Peer
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.protocols.bsp import handshake
from waystation.protocols.bsp.handshake import Acceptor, Dialler
from waystation.protocols.bsp.refusals import MalformedError, Refusal
from waystation.protocols.bsp.wire import RecordReader

__all__ = [
    "HANDSHAKE_MS",
    "HANDSHAKING",
    "LAST_WORDS_MS",
    "RECORD_STALL_MS",
    "SEND_STALL_MS",
    "TRANSITIONS",
    "Judge",
    "Move",
    "Session",
    "State",
    "Step",
]

HANDSHAKE_MS: Final = 10_000  # BSP-UNPROVED: three messages, and a slow link beneath them
RECORD_STALL_MS: Final = 30_000  # BSP-D9
SEND_STALL_MS: Final = 60_000  # BSP-STALL
LAST_WORDS_MS: Final = 3_000  # bsp 11.7


class State(Enum):
    """Where a connection stands."""

    ACCEPTING = "accepting"
    """We said hello and wait for a proof."""
    DIALLING = "dialling"
    """We wait for the hello of whom we dialled."""
    PROVING = "proving"
    """We proved ourselves and wait for the verdict."""
    OPEN = "open"
    """Records go both ways."""
    ENDING = "ending"
    """Nothing more is read; what is left is stored and written."""
    CLOSED = "closed"


class Move(Enum):
    """What moves a connection on."""

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

Judge = Callable[[PublicKey], Refusal | None]
"""Says why somebody who proved a key is not welcome, None for who is."""


class Step(NamedTuple):
    """What comes of bytes that arrived during a handshake."""

    reply: bytes
    """To be sent, also before a refusal."""
    refusal: Refusal | None
    """Why the connection is over, None when it goes on."""
    rest: bytes
    """Records that came right behind the handshake; not empty only once the connection is open."""


class Session:
    """State of one connection; the machine reads and moves it, nobody else does."""

    __slots__ = (
        "_begun",
        "_handshake",
        "came_at",
        "congested",
        "dialled",
        "ends_at",
        "has_spoken",
        "heard_at",
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
            reader: Cuts what it says into records.
            now: When the connection stands.
            handshake: Our side of the handshake; None for a plain connection, which is open at once.
            key: Who the other side is, or must be; None when its proof will tell.
            began_at: When we began to dial; None for who came to us.
        """
        self.peer = peer
        self.kind = kind
        self.reader = reader
        self.key = key
        self.proved = handshake is None
        """Whether ``key`` is who the other side is."""
        self.dialled = began_at is not None
        self.came_at = now if began_at is None else began_at
        self.opened_at = now
        self.state = _FIRST[type(handshake)]
        self.link = -1
        """What the device calls this connection while it is open."""
        self._handshake = handshake
        self._begun = b""
        """Bytes of a handshake message that is not whole."""
        self.heard_at = now
        self.has_spoken = False
        """Whether it has said a record, or a part of one."""
        self.held = False
        """Whether we have stopped reading it."""
        # What goes out
        self.congested = False
        self.owed = False
        """Whether we wait for word that our last write has left."""
        self.progress_at = now
        # The end
        self.reason: Refusal | None = None
        """Why it is ending."""
        self.ends_at: Instant | None = None
        self.saved_by = 0
        """Ticket of the commit that holds the last of what it said."""

    def __repr__(self) -> str:
        """Show what matters in a trace."""
        return f"<Session {self.peer} {self.kind} {self.state.value} {(self.key or b'').hex()[:8]}>"

    @property
    def is_free(self) -> bool:
        """Whether a write would leave at once, as far as we know."""
        return not (self.congested or self.owed)

    def move(self, move: Move) -> None:
        """Move the machine; a move that the table does not have is a bug of ours."""
        self.state = TRANSITIONS[self.state, move]

    def shake_hands(self, data: bytes, judge: Judge) -> Step:
        """Take bytes of a handshake, in any chunking.

        Args:
            data: As they came.
            judge: Asked once, with the key that the other side has proved.
        """
        begun, reply = self._begun + data, b""
        while self.state in HANDSHAKING:
            size = _SIZES[self.state]
            if self.state is not State.PROVING and not handshake.begins_well(begun):
                return Step(reply, Refusal.HANDSHAKE, b"")
            if len(begun) < size:
                self._begun = begun
                return Step(reply, None, b"")
            said, refusal = self._take(begun[:size], judge)
            reply, begun = reply + said, begun[size:]
            if refusal is not None:
                return Step(reply, refusal, b"")
        self._begun = b""
        return Step(reply, None, begun)

    def finish(self, reason: Refusal, now: Instant, saved_by: int) -> None:
        """Read nothing more; what is left gets a moment."""
        self.move(Move.FINISH)
        self.reason, self.saved_by = reason, saved_by
        self.ends_at = after_ms(now, LAST_WORDS_MS)

    def next_look(self) -> Instant | None:
        """Return when ``overdue`` may have something to say if nothing happens until then."""
        if self.state in HANDSHAKING:
            return after_ms(self.came_at, HANDSHAKE_MS)
        if self.state is State.ENDING:
            return self.ends_at
        times = []
        if self.reader.is_inside and not self.held:
            times.append(after_ms(self.heard_at, RECORD_STALL_MS))
        if not self.is_free:
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

    def _take(self, message: bytes, judge: Judge) -> tuple[bytes, Refusal | None]:
        """Return the answer to one whole message of the handshake, and why it was the last."""
        ours = self._handshake
        if isinstance(ours, Acceptor):
            return self._on_proof(ours, message, judge)
        assert ours is not None
        return self._on_hello(ours, message) if self.state is State.DIALLING else self._on_verdict(ours, message)

    def _on_proof(self, ours: Acceptor, message: bytes, judge: Judge) -> tuple[bytes, Refusal | None]:
        proof = handshake.decode_proof(message)
        if not ours.proves(proof):
            return b"", Refusal.BAD_SIGNATURE
        self.key, self.proved = proof.key, True
        refusal = judge(proof.key)
        if refusal is None:
            self.move(Move.PROOF)
            return ours.verdict(proof, None), None
        return ours.verdict(proof, _TOLD.get(refusal, refusal)), refusal

    def _on_hello(self, ours: Dialler, message: bytes) -> tuple[bytes, Refusal | None]:
        try:
            proof = ours.answer(handshake.decode_hello(message))
        except MalformedError as error:
            return b"", error.refusal
        self.move(Move.HELLO)
        return proof, None

    def _on_verdict(self, ours: Dialler, message: bytes) -> tuple[bytes, Refusal | None]:
        refusal = ours.judge(handshake.decode_verdict(message))
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
_TOLD: Final = {Refusal.IDENTITY_BANNED: Refusal.UNKNOWN_PEER, Refusal.DRAINING: Refusal.BUSY}
"""What the other side hears where the true reason has no status (BSP-TOLD)."""
