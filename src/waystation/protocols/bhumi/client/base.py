"""The base class of Bhumi's clients: connection state, framing and the lists of effects and events.

One machine is one connection with one role (spec section 3): ``device``, ``sender`` or ``guide``. It is WAITING until
HELLO arrives, then OPEN until the connection closes::

    state      legal for a device            for a sender                for a guide client
    WAITING    HELLO                         HELLO                       HELLO
    OPEN       DELIVER, extension frames     SEND_RESULT                 WHERE_RESULT, RELAYS
               and in each of them           OPTIONS, KEEPALIVE,
                                             AUTHORITY if asked for
    CLOSED     nothing arrives any more

Any other frame, and any malformed byte, closes the connection with a ``Refusal``; ``receive`` never raises. Extension
frames that the role does not know are ignored (BHUMI-24). The frame buffer gets the table of legal types per state, so
it refuses an illegal frame by its header. ``take`` returns the effects, ``take_events`` the events.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from waystation.core.effects import Close, Effect, Peer, Send
from waystation.core.instant import Instant, after_ms
from waystation.core.machine import AsksNothing, IgnoresPressure
from waystation.crypto.hashing import sha256
from waystation.protocols.bhumi import extension_wire, messages, wire
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.refusals import MalformedError, Refusal

__all__ = [
    "AUTHORITIES_MAX",
    "HELLO_TIMEOUT_MS",
    "PAYLOAD_BYTES_MAX",
    "AuthorityShown",
    "Client",
    "Greeted",
    "State",
    "Unsent",
    "commit_of",
]

AUTHORITIES_MAX: Final = 8  # ours, of one connection: a relay has two, and a new one every few years

PAYLOAD_BYTES_MAX: Final = 1_048_576  # what we take whatever the relay announces; upstream's reader, BHUMI-F
HELLO_TIMEOUT_MS: Final = 10_000  # HELLO comes at once (5.1); as long as one frame may take, BHUMI-L


@dataclass(frozen=True, slots=True)
class Greeted:
    """HELLO arrived; a sender may send from now on."""

    max_payload_bytes: int
    """Largest opaque payload this relay takes."""


class Unsent(Enum):
    """Why a command did nothing."""

    NOT_OPEN = "the relay has not said HELLO, or the connection is closed"
    WINDOW_FULL = "too many requests wait for their result on this connection"
    TOO_LARGE = "the payload is larger than this relay takes"
    UNKNOWN_DELIVERY = "no delivery with this id waits for an answer on this connection"
    NOT_ACCEPTED = "the relay does not know the extension that this needs"


class State(Enum):
    """Where a client's connection stands."""

    WAITING = auto()
    OPEN = auto()
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class AuthorityShown:
    """The relay's certificate comes, or will come, from this authority.

    Believe it only for this relay, and only if this connection was verified with an authority that was trusted before.
    """

    der: bytes
    """1 to 4,096 bytes; nothing has looked into them."""


def commit_of(preimage: bytes) -> bytes:
    """Return the 32-byte commit that a relay is given for a preimage. Spec: 6.1, BHUMI-3."""
    return sha256(preimage)


class Client(ABC, AsksNothing, IgnoresPressure):
    """What all roles share: one peer, framing, state, outbox."""

    def __init__(self, open_types: Sequence[FrameType]) -> None:
        self._limits: dict[int, int] = {}
        self._open_types = open_types
        self._frames = wire.FrameBuffer(self._limits)
        self.state = State.CLOSED
        self._peer: Peer | None = None
        self._hello_by = Instant(0)
        self._received_at = Instant(0)
        self._effects: list[Effect] = []
        self._events: list[Any] = []
        self._authorities_count = 0
        self.max_payload_bytes = 0
        """Largest opaque payload the relay takes; 0 before HELLO."""

    def connect(self, peer: Peer, now: Instant, address: str = "") -> None:  # noqa: ARG002 - we dialled it
        """Take the one connection of this machine over; a machine is used once."""
        assert self._peer is None
        self._peer = peer
        self.state = State.WAITING
        self._hello_by = after_ms(now, HELLO_TIMEOUT_MS)
        # Bhumi v2 5.1: HELLO comes first; until then every other type is refused by its limit.
        self._limits[FrameType.HELLO] = wire.client_frame_limits(0)[FrameType.HELLO]

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Take bytes from the relay, in any chunking."""
        # Bytes that were under way when we closed mean nothing.
        if peer != self._peer or self.state is State.CLOSED:
            return
        self._received_at = now
        self._frames.feed(data)
        try:
            while (frame := self._frames.next_frame()) is not None:
                self._on_frame(*frame, now)
        except MalformedError as error:
            self._close(error.refusal)

    def disconnect(self, peer: Peer, _now: Instant) -> None:
        """Note that the connection ended from the other side."""
        if peer == self._peer and self.state is not State.CLOSED:
            self._end()

    def wake(self, now: Instant) -> None:
        """Act on whatever has become due."""
        if self.state is State.WAITING and now >= self._hello_by:
            self._close(Refusal.FRAME_TIMEOUT)
        elif self.state is State.OPEN:
            self._on_due(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` must be called next, or None."""
        if self.state is State.WAITING:
            return self._hello_by
        return self._next_due() if self.state is State.OPEN else None

    def take(self) -> list[Effect]:
        """Return and forget the effects gathered so far, in their order."""
        effects, self._effects = self._effects, []
        return effects

    def take_events(self) -> list[Any]:
        """Return and forget what happened since the last call, in order."""
        events, self._events = self._events, []
        return events

    @property
    def is_open(self) -> bool:
        """Whether HELLO has come and the connection has not ended."""
        return self.state is State.OPEN

    def _on_frame(self, frame_type: int, payload: bytes, now: Instant) -> None:
        if frame_type == FrameType.HELLO:
            self._on_hello(wire.decode_hello(payload), now)
        elif frame_type == FrameType.OPTIONS:
            self._on_options(wire.decode_options(payload))
        elif frame_type == FrameType.KEEPALIVE:
            self._on_keepalive()
        elif frame_type in self._open_types:
            self._on_role_frame(frame_type, payload, now)

    def _on_hello(self, hello: messages.Hello, now: Instant) -> None:
        # BHUMI-1: the document is titled v2, the version on the wire is 1.
        if hello.protocol_version != messages.PROTOCOL_VERSION:
            raise MalformedError(Refusal.BAD_VERSION, f"protocol version {hello.protocol_version}")
        self.state = State.OPEN
        # A relay may announce more than we are willing to hold.
        self.max_payload_bytes = min(hello.max_payload_bytes, PAYLOAD_BYTES_MAX)
        known = wire.client_frame_limits(PAYLOAD_BYTES_MAX)
        # A second HELLO is in the wrong direction of the exchange and closes.
        del self._limits[FrameType.HELLO]
        self._limits.update(
            (frame_type, known.get(frame_type, wire.EXTENSION_FRAME_BYTES_MAX)) for frame_type in self._open_types
        )
        self._on_open(hello.relay_nonce, now)

    def _on_authority(self, payload: bytes) -> None:
        authority = extension_wire.decode_authority(payload)
        # BHUMI-AUTHORITY: a relay that shows more than an honest one has is not listened to on this connection.
        if self._authorities_count < AUTHORITIES_MAX:
            self._authorities_count += 1
            self._events.append(AuthorityShown(authority.der))

    def _send(self, message: messages.Message) -> None:
        self._send_bytes(wire.encode(message))

    def _send_bytes(self, frame: bytes) -> None:
        assert self._peer is not None
        self._effects.append(Send(self._peer, frame))

    def _close(self, refusal: Refusal) -> None:
        assert self._peer is not None
        self._effects.append(Close(self._peer, refusal))
        self._end()

    def _end(self) -> None:
        self.state = State.CLOSED
        self._on_end()

    @abstractmethod
    def _on_options(self, options: messages.Options) -> None: ...

    @abstractmethod
    def _on_keepalive(self) -> None: ...

    @abstractmethod
    def _on_open(self, relay_nonce: int, now: Instant) -> None: ...

    @abstractmethod
    def _on_role_frame(self, frame_type: int, payload: bytes, now: Instant) -> None: ...

    @abstractmethod
    def _on_due(self, now: Instant) -> None: ...

    @abstractmethod
    def _next_due(self) -> Instant | None: ...

    @abstractmethod
    def _on_end(self) -> None: ...
