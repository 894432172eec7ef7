"""The other side of a Bhumi connection: a device that listens, or a sender that asks.

One machine is one connection with one role (spec section 3). It waits for HELLO, then it is open until it closes::

    state      legal for a device                              legal for a sender
    WAITING    HELLO -> OPEN, OPTIONS and I_AM leave           HELLO -> OPEN
    OPEN       OPTIONS, DELIVER, KEEPALIVE                     OPTIONS, SEND_RESULT, KEEPALIVE
    CLOSED     nothing arrives any more

Everything else, and every malformed byte, closes the connection with a ``Refusal``; nothing raises. Which types a state
takes is the table of frame limits that the frame buffer is given, so that an illegal frame is refused by its header.

The relay never answers I_AM. A device therefore sends KEEPALIVE behind it: the echo proves that the relay took the
I_AM, for a refused one closes the connection. The original relay does not echo; there, silence for ``CONFIRM_MS`` has
to do, and silence is not held against it later. ``take_events`` tells what happened, ``take`` what must be done.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from waystation.core.effects import Close, Effect, Peer, Send
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant, after_ms
from waystation.core.machine import AsksNothing
from waystation.crypto.hashing import sha256
from waystation.crypto.signing import KeyPair, sign
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.refusals import MalformedError, Refusal

__all__ = [
    "CONFIRM_MS",
    "DELIVERIES_MAX",
    "HELLO_TIMEOUT_MS",
    "KEEPALIVE_MS",
    "OUTSTANDING_MAX",
    "PAYLOAD_BYTES_MAX",
    "RESULT_TIMEOUT_MS",
    "SILENCE_MS",
    "Answered",
    "Delivered",
    "DeviceClient",
    "Event",
    "Greeted",
    "Lost",
    "Registered",
    "SenderClient",
    "Unsent",
    "commit_of",
]

PAYLOAD_BYTES_MAX: Final = 1_048_576  # what we take whatever the relay announces; upstream's reader, BHUMI-F
HELLO_TIMEOUT_MS: Final = 10_000  # HELLO comes at once (5.1); as long as one frame may take, BHUMI-L
KEEPALIVE_MS: Final = 45_000  # twice within the 120 s after which the relay drops an idle device, BHUMI-L
SILENCE_MS: Final = 90_000  # two keepalives without any echo
CONFIRM_MS: Final = 1_000  # ours: longer than any round trip on which the 30 s of an ACK make sense
OUTSTANDING_MAX: Final = 16  # SENDs without a result on one connection, BHUMI-9
DELIVERIES_MAX: Final = 1_024  # ours; the relay holds back after 32 without ACK (BHUMI-A12), other relays may not
RESULT_TIMEOUT_MS: Final = 45_000  # 30 s of ACK timeout at the relay, and half of it again for the way
_TYPES_IN_OPEN_DEVICE: Final = (FrameType.DELIVER, FrameType.KEEPALIVE, FrameType.OPTIONS)
_TYPES_IN_OPEN_SENDER: Final = (FrameType.SEND_RESULT, FrameType.KEEPALIVE, FrameType.OPTIONS)


@dataclass(frozen=True, slots=True)
class Greeted:
    """HELLO arrived; a sender may send from now on."""

    max_payload_bytes: int
    """Largest opaque payload this relay takes."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The relay has taken the I_AM."""

    confirmed: bool
    """False when this rests on silence, as with the original relay."""
    with_preimage: bool
    """True when deliveries name their preimage."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """Somebody wants an answer; give it with ``DeviceClient.answer``."""

    message_id: int
    payload: bytes
    preimage: bytes | None = field(default=None, repr=False)
    """32 bytes, or None when the relay leaves it out."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The outcome of a SEND."""

    token: int
    """What ``SenderClient.send`` returned."""
    status: int
    """See ``messages.Status``; the relay may know more."""
    payload: bytes
    """The recipient's answer, empty unless the status is OK."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection ended before the outcome of a SEND arrived: it may or may not have been delivered."""

    token: int


Event = Greeted | Registered | Delivered | Answered | Lost


class Unsent(Enum):
    """Why a command did nothing."""

    NOT_OPEN = "the relay has not said HELLO, or the connection is closed"
    WINDOW_FULL = "too many requests wait for their result on this connection"
    TOO_LARGE = "the payload is larger than this relay takes"
    UNKNOWN_DELIVERY = "no delivery with this id waits for an answer on this connection"


class _State(Enum):
    WAITING = auto()
    OPEN = auto()
    CLOSED = auto()


def commit_of(preimage: bytes) -> bytes:
    """Return the 32-byte commit that a relay is given for a preimage. Spec: 6.1, BHUMI-3."""
    return sha256(preimage)


class _Client(ABC, AsksNothing):
    """What both roles share: one peer, framing, state, outbox."""

    def __init__(self, open_types: Sequence[FrameType]) -> None:
        self._limits: dict[int, int] = {}
        self._open_types = open_types
        self._frames = wire.FrameBuffer(self._limits)
        self._state = _State.CLOSED
        self._peer: Peer | None = None
        self._hello_by = Instant(0)
        self._heard_at = Instant(0)
        self._effects: list[Effect] = []
        self._events: list[Event] = []
        self.max_payload_bytes = 0
        """Largest opaque payload the relay takes; 0 before HELLO."""

    def connect(self, peer: Peer, now: Instant, address: str = "") -> None:  # noqa: ARG002 - we dialled it
        """Take the one connection of this machine over; a machine is used once."""
        assert self._peer is None
        self._peer = peer
        self._state = _State.WAITING
        self._hello_by = after_ms(now, HELLO_TIMEOUT_MS)
        self._limits[FrameType.HELLO] = wire.client_frame_limits(0)[FrameType.HELLO]

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Take bytes from the relay, in any chunking."""
        if peer != self._peer or self._state is _State.CLOSED:
            return
        self._heard_at = now
        self._frames.feed(data)
        try:
            while (frame := self._frames.next_frame()) is not None:
                self._on_frame(*frame, now)
        except MalformedError as error:
            self._close(error.refusal)

    def disconnect(self, peer: Peer, _now: Instant) -> None:
        """Note that the connection ended from the other side."""
        if peer == self._peer and self._state is not _State.CLOSED:
            self._end()

    def congested(self, peer: Peer, now: Instant) -> None:
        """Ignore that bytes wait: what a client sends is bounded by its own windows."""

    def drained(self, peer: Peer, now: Instant) -> None:
        """Ignore that nothing waits any more."""

    def wake(self, now: Instant) -> None:
        """Act on whatever has become due."""
        if self._state is _State.WAITING and now >= self._hello_by:
            self._close(Refusal.FRAME_TIMEOUT)
        elif self._state is _State.OPEN:
            self._on_due(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` must be called next, or None."""
        if self._state is _State.WAITING:
            return self._hello_by
        return self._next_due() if self._state is _State.OPEN else None

    def take(self) -> list[Effect]:
        """Return and forget the effects gathered so far, in their order."""
        effects, self._effects = self._effects, []
        return effects

    def take_events(self) -> list[Event]:
        """Return and forget what happened since the last call, in order."""
        events, self._events = self._events, []
        return events

    @property
    def is_open(self) -> bool:
        """Whether HELLO has come and the connection has not ended."""
        return self._state is _State.OPEN

    def _on_frame(self, frame_type: int, payload: bytes, now: Instant) -> None:
        if frame_type == FrameType.HELLO:
            self._on_hello(wire.decode_hello(payload), now)
        elif frame_type == FrameType.OPTIONS:
            self._on_options(wire.decode_options(payload))
        elif frame_type == FrameType.KEEPALIVE:
            self._on_keepalive()
        elif frame_type in self._open_types:
            self._on_role_frame(payload)

    def _on_hello(self, hello: messages.Hello, now: Instant) -> None:
        if hello.protocol_version != messages.PROTOCOL_VERSION:
            raise MalformedError(Refusal.BAD_VERSION, f"protocol version {hello.protocol_version}")
        self._state = _State.OPEN
        self.max_payload_bytes = min(hello.max_payload_bytes, PAYLOAD_BYTES_MAX)
        known = wire.client_frame_limits(PAYLOAD_BYTES_MAX)
        del self._limits[FrameType.HELLO]
        self._limits.update({frame_type: known[frame_type] for frame_type in self._open_types})
        self._on_open(hello.relay_nonce, now)

    def _send(self, message: messages.Message) -> None:
        assert self._peer is not None
        self._effects.append(Send(self._peer, wire.encode(message)))

    def _close(self, refusal: Refusal) -> None:
        assert self._peer is not None
        self._effects.append(Close(self._peer, refusal))
        self._end()

    def _end(self) -> None:
        self._state = _State.CLOSED
        self._on_end()

    @abstractmethod
    def _on_options(self, options: messages.Options) -> None: ...

    @abstractmethod
    def _on_keepalive(self) -> None: ...

    @abstractmethod
    def _on_open(self, relay_nonce: int, now: Instant) -> None: ...

    @abstractmethod
    def _on_role_frame(self, payload: bytes) -> None: ...

    @abstractmethod
    def _on_due(self, now: Instant) -> None: ...

    @abstractmethod
    def _next_due(self) -> Instant | None: ...

    @abstractmethod
    def _on_end(self) -> None: ...


class DeviceClient(_Client):
    """A device: proves its identity, hands over commits, gets deliveries, answers them.

    After ``Delivered`` the caller persists whatever the answer promises, calls ``add_commits`` for the preimages it
    gives out, and only then ``answer``: the relay must know a commit before its preimage can be used.
    """

    def __init__(
        self,
        key_pair: KeyPair,
        commits: Sequence[bytes] = (),
        responses: Sequence[messages.RecentResponse] = (),
        *,
        ask_preimage: bool = True,
        always_preimage: bool = False,
    ) -> None:
        """Describe a device's connection.

        Args:
            key_pair: Who the device is.
            commits: 32 bytes each; at most 4,096 go to the relay.
            responses: Recent answers the relay may give to retries (6.6).
            ask_preimage: Send OPTIONS, asking for the preimage in DELIVER.
            always_preimage: The relay puts the preimage into every DELIVER unasked, as the original one does.
        """
        super().__init__(_TYPES_IN_OPEN_DEVICE)
        self._key_pair = key_pair
        self._commits = tuple(commits)
        self._responses = tuple(responses)
        self._ask_preimage = ask_preimage
        self._with_preimage = always_preimage
        self._nonce = 0
        self._unanswered: set[int] = set()
        self._registered = False
        self._echoes = False
        self._confirm_by = Instant(0)
        self._keepalive_at = Instant(0)

    def answer(self, message_id: int, payload: bytes) -> Unsent | None:
        """Answer a delivery; None means that the ACK is on its way."""
        if self._state is not _State.OPEN:
            return Unsent.NOT_OPEN
        if message_id not in self._unanswered:
            return Unsent.UNKNOWN_DELIVERY
        if len(payload) > self.max_payload_bytes:
            return Unsent.TOO_LARGE
        self._unanswered.discard(message_id)
        self._send(messages.Ack(message_id, payload))
        return None

    def add_commits(self, commits: Iterable[bytes]) -> None:
        """Add commits to the relay's set; before HELLO they go into the I_AM."""
        added = tuple(commits)
        if self._state is not _State.OPEN:
            self._commits += added
            return
        for start in range(0, len(added), wire.COMMITS_MAX):
            self._send(messages.UpdateCommits(added[start : start + wire.COMMITS_MAX]))

    def replace(self, commits: Sequence[bytes], responses: Sequence[messages.RecentResponse] = ()) -> None:
        """Replace the relay's set, and offer recent answers, by a second I_AM on the same nonce (BHUMI-8)."""
        self._commits = tuple(commits)
        self._responses = tuple(responses)
        if self._state is _State.OPEN:
            self._introduce()

    def _introduce(self) -> None:
        identity = self._key_pair.public
        signature = sign(self._key_pair, wire.signed_bytes(self._nonce, identity))
        carried = _within_quota(self._responses)
        self._send(messages.IAm(identity, signature, self._commits[: wire.COMMITS_MAX], carried))

    def _on_open(self, relay_nonce: int, now: Instant) -> None:
        self._nonce = relay_nonce
        self._events.append(Greeted(self.max_payload_bytes))
        if self._ask_preimage:
            self._send(messages.Options(Feature.DELIVER_WITH_PREIMAGE))
        self._introduce()
        self._send(messages.Keepalive())
        self._confirm_by = after_ms(now, CONFIRM_MS)
        self._keepalive_at = after_ms(now, KEEPALIVE_MS)

    def _on_options(self, options: messages.Options) -> None:
        if self._ask_preimage:
            self._with_preimage = Feature.DELIVER_WITH_PREIMAGE in options.features

    def _on_keepalive(self) -> None:
        self._echoes = True
        self._register(confirmed=True)

    def _on_role_frame(self, payload: bytes) -> None:
        deliver = wire.decode_deliver(payload, with_preimage=self._with_preimage)
        if len(self._unanswered) >= DELIVERIES_MAX:
            raise MalformedError(Refusal.RECIPIENT_QUEUE_FULL, f"{DELIVERIES_MAX} deliveries without an answer")
        self._register(confirmed=True)
        self._unanswered.add(deliver.message_id)
        self._events.append(Delivered(deliver.message_id, deliver.payload, deliver.preimage))

    def _register(self, *, confirmed: bool) -> None:
        if not self._registered:
            self._registered = True
            self._events.append(Registered(confirmed, self._with_preimage))

    def _on_due(self, now: Instant) -> None:
        if self._echoes and now >= after_ms(self._heard_at, SILENCE_MS):
            self._close(Refusal.IDLE_TIMEOUT)
            return
        if not self._registered and now >= self._confirm_by:
            self._register(confirmed=False)
        if now >= self._keepalive_at:
            self._send(messages.Keepalive())
            self._keepalive_at = after_ms(now, KEEPALIVE_MS)

    def _next_due(self) -> Instant | None:
        due = self._keepalive_at
        if self._echoes:
            due = min(due, after_ms(self._heard_at, SILENCE_MS))
        return due if self._registered else min(due, self._confirm_by)

    def _on_end(self) -> None:
        self._unanswered.clear()


class SenderClient(_Client):
    """A sender: anonymous, asks and waits. Outcomes come strictly in the order of the SENDs (BHUMI-9)."""

    def __init__(self, *, result_timeout_ms: int = RESULT_TIMEOUT_MS) -> None:
        """Describe a sender's connection.

        Args:
            result_timeout_ms: How long the oldest SEND may wait for its outcome before the connection counts as dead.
        """
        super().__init__(_TYPES_IN_OPEN_SENDER)
        self._result_timeout_ms = result_timeout_ms
        self._outstanding: deque[tuple[int, Instant]] = deque()
        self._tokens = 0

    def send(self, recipient: bytes, preimage: bytes, payload: bytes, now: Instant) -> int | Unsent:
        """Send a request and return its token, which ``Answered`` or ``Lost`` will name; each token gets exactly one.

        Args:
            recipient: 32-byte identity.
            preimage: 32 bytes. Retries use the same preimage with the same payload.
            payload: Opaque, at most ``max_payload_bytes``.
            now: The current instant.
        """
        if self._state is not _State.OPEN:
            return Unsent.NOT_OPEN
        if len(payload) > self.max_payload_bytes:
            return Unsent.TOO_LARGE
        if len(self._outstanding) >= OUTSTANDING_MAX:
            return Unsent.WINDOW_FULL
        self._tokens += 1
        self._outstanding.append((self._tokens, after_ms(now, self._result_timeout_ms)))
        self._send(messages.Send(PublicKey(recipient), preimage, payload))
        return self._tokens

    def _on_open(self, _relay_nonce: int, _now: Instant) -> None:
        self._events.append(Greeted(self.max_payload_bytes))

    def _on_options(self, options: messages.Options) -> None:
        """Ignore what a sender never asks for."""

    def _on_keepalive(self) -> None:
        """Ignore an echo that a sender never waits for."""

    def _on_role_frame(self, payload: bytes) -> None:
        result = wire.decode_send_result(payload)
        if not self._outstanding:
            raise MalformedError(Refusal.WRONG_DIRECTION, "a result without a request")
        token, _ = self._outstanding.popleft()
        self._events.append(Answered(token, result.status, result.payload))

    def _on_due(self, now: Instant) -> None:
        if self._outstanding and now >= self._outstanding[0][1]:
            self._close(Refusal.IDLE_TIMEOUT)

    def _next_due(self) -> Instant | None:
        return self._outstanding[0][1] if self._outstanding else None

    def _on_end(self) -> None:
        self._events += [Lost(token) for token, _ in self._outstanding]
        self._outstanding.clear()


def _within_quota(responses: Sequence[messages.RecentResponse]) -> tuple[messages.RecentResponse, ...]:
    """Return the responses, first ones first, that one I_AM may carry."""
    kept: list[messages.RecentResponse] = []
    left = wire.CARRIED_BYTES_MAX
    for response in responses[: wire.CARRIED_COUNT_MAX]:
        left -= len(response.response)
        if left < 0:
            break
        kept.append(response)
    return tuple(kept)
