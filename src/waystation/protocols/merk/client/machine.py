"""The MERK client: it proves its key to a relay, sends frames, and opens received ones.

``sdk.merk.relays`` and the simulator drive it.

One machine is one connection::

    state           legal                                        goes on with
    WAITING         challenge                                    answer -> CONFIRMING
    CONFIRMING      confirmation                                 HELLO -> AWAITING_HELLO, or READY without extensions
    AWAITING_HELLO  HELLO, AUTH, everything that READY takes     AUTH, or 2 s of silence -> READY
    READY           messages, NODE_INFO, a late HELLO and AUTH
    CLOSED          nothing arrives any more

Any other handshake frame, and any malformed byte, closes the connection with a ``Refusal``; ``receive`` never raises. A
relay chooses the challenge, and the answer signs exactly those bytes. The client therefore answers one challenge per
connection, and none that could begin signed content.

Each frame given to ``send_frame`` gets one ``FrameOutcome``, even at a reference relay, which reports no outcomes.
``take`` returns the effects, ``take_events`` the events.

Spec: specs/merk.md 2, 4, 7, 8, 10; MERK-RAW.
"""

import random
from collections import OrderedDict, deque
from enum import Enum, auto
from typing import Final

from waystation.core.effects import Close, Effect, Peer, Send
from waystation.core.instant import Instant, after_ms
from waystation.core.machine import AsksNothing
from waystation.crypto.signing import sign, verify
from waystation.protocols.merk import messages, wire
from waystation.protocols.merk.client.events import (
    Ended,
    Event,
    FrameOutcome,
    KeyFound,
    KeyNotFound,
    MessageArrived,
    MessageDropped,
    Ready,
    ServerAdded,
    ServersListed,
)
from waystation.protocols.merk.client.seen_messages import SeenMessages
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import DeliveryCode, Feature, Frame, MessageType, Role
from waystation.protocols.merk.payload.recovery import open_recovered
from waystation.protocols.merk.payload.sealing import Mode, Opened, open_frame
from waystation.protocols.merk.refusals import MalformedError, Refusal

__all__ = [
    "HANDSHAKE_MS",
    "HELLO_ANSWER_MS",
    "HOSTILE_FIRST_BYTES",
    "KEY_ANSWER_MS",
    "KEY_QUERIES_MAX",
    "NOTICE_MS",
    "SERVERS_MAX",
    "UNTOLD_MAX",
    "MerkClient",
]

HANDSHAKE_MS: Final = 10_000  # ours; the relay itself waits 5 s for the answer
HELLO_ANSWER_MS: Final = 2_000  # longer than a round trip; an original relay keeps silent for ever
NOTICE_MS: Final = 30_000  # once the frame has left: two look-ups of 5 s, and a recipient that reads slowly
KEY_ANSWER_MS: Final = 10_000  # a look-up at other nodes takes 5 s
KEY_QUERIES_MAX: Final = 256  # ours
UNTOLD_MAX: Final = 1_024  # frames whose outcome is not known yet, ours
SERVERS_MAX: Final = 64  # specs/merk.md 8
HOSTILE_FIRST_BYTES: Final = (0x01, 0x02, 0x03, 0x10)  # spec 3: types of content
"""What signed content begins with (specs/merk.md 8; 0x10 is our own content type, MERK-RAW)."""
_FEATURES: Final = Feature.DELIVERY_NOTICES | Feature.KEY_DIRECTORY | Feature.HEADER_SIGNATURES
_CONTENT: Final = (MessageType.DATA, MessageType.SIGNED_DATA, MessageType.ENCRYPTED_DATA)


class _State(Enum):
    WAITING = auto()
    CONFIRMING = auto()
    AWAITING_HELLO = auto()
    READY = auto()
    CLOSED = auto()


_OPEN: Final = (_State.AWAITING_HELLO, _State.READY)


class _Sent:
    """A frame whose outcome is not known."""

    __slots__ = ("due", "frame_hash")

    def __init__(self, frame_hash: bytes) -> None:
        self.frame_hash = frame_hash
        self.due: Instant | None = None
        """None while it may still wait in our own buffers."""


class MerkClient(AsksNothing):
    """A client's one connection to a relay."""

    def __init__(
        self,
        keys: Keys,
        rng: random.Random,
        *,
        extensions: bool = True,
        salvage: bool = False,
        pinned_server: bytes | None = None,
        seen: SeenMessages | None = None,
    ) -> None:
        """Describe a connection.

        Args:
            keys: Who we are.
            rng: Source of the nonce in HELLO.
            extensions: Say HELLO; without it every relay is taken for an original one.
            salvage: Make the best of frames that an original relay has mutilated; they prove little.
            pinned_server: Key that the relay must prove, 32 bytes; without ``extensions`` it need only claim it.
            seen: Messages taken already, also by earlier connections; None begins anew.
        """
        self._keys = keys
        self._extensions = extensions
        self._recover = salvage
        self._pinned = pinned_server
        self._seen = seen if seen is not None else SeenMessages()
        self._nonce = rng.randbytes(messages.NONCE_BYTES)
        self._state = _State.CLOSED
        self._peer: Peer | None = None
        self._due = Instant(0)
        self._hello: messages.Hello | None = None
        self._servers_asked = False
        self._key_queries: OrderedDict[bytes, Instant] = OrderedDict()
        self._sent: OrderedDict[int, _Sent] = OrderedDict()
        self._numbers_of: dict[bytes, deque[int]] = {}
        self._number = 0
        self._effects: list[Effect] = []
        self._events: list[Event] = []
        self.server = messages.ZERO_KEY
        """Key that the relay names, 32 bytes; zero before its confirmation."""
        self.authenticated = False
        """Whether the relay has proved that key."""
        self.features = Feature(0)
        """What the relay understands."""

    # Inputs

    def connect(self, peer: Peer, now: Instant, address: str = "") -> None:  # noqa: ARG002 - we dialled it
        """Take the one connection of this machine over; a machine is used once."""
        assert self._peer is None
        self._peer = peer
        self._state = _State.WAITING
        self._due = after_ms(now, HANDSHAKE_MS)

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Take one whole binary message from the relay."""
        # Messages that were under way when we closed mean nothing.
        if peer != self._peer or self._state is _State.CLOSED:
            return
        try:
            frame = wire.decode_frame(data)
            if frame.kind == MessageType.HANDSHAKE:
                self._on_handshake(frame, now)
            elif self._state in _OPEN:
                self._on_frame(frame, data, now)
            # Spec 2: before the confirmation only NODE_INFO is skipped; content closes.
            elif frame.kind != MessageType.NODE_INFO:
                raise MalformedError(Refusal.FRAME_BEFORE_AUTH, f"type {frame.kind} before the confirmation")
        except MalformedError as error:
            self._close(error.refusal)

    def disconnect(self, peer: Peer, _now: Instant) -> None:
        """Note that the connection ended from the other side."""
        if peer == self._peer and self._state is not _State.CLOSED:
            self._end(None)

    def congested(self, peer: Peer, now: Instant) -> None:
        """Ignore that bytes wait: what a client sends is bounded by ``UNTOLD_MAX``."""

    def drained(self, peer: Peer, now: Instant) -> None:
        """Note that all frames have left: from now on the relay has ``NOTICE_MS`` for each."""
        if peer != self._peer:
            return
        # Only frames sent since the last drain have no due time yet; they are the last ones.
        for sent in reversed(self._sent.values()):
            if sent.due is not None:
                return
            sent.due = after_ms(now, NOTICE_MS)

    def wake(self, now: Instant) -> None:
        """Act on whatever has become due."""
        if self._state in (_State.WAITING, _State.CONFIRMING) and now >= self._due:
            self._close(Refusal.AUTH_TIMEOUT)
        elif self._state is _State.AWAITING_HELLO and now >= self._due:
            self._on_silence()
        if self._state in _OPEN:
            self._give_up_waiting(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` must be called next, or None."""
        if self._state is _State.CLOSED:
            return None
        due = [] if self._state is _State.READY else [self._due]
        due += [next(iter(self._key_queries.values()))] if self._key_queries else []
        oldest = next(iter(self._sent.values())).due if self._sent else None
        due += [oldest] if oldest is not None else []
        return min(due) if due else None

    def take(self) -> list[Effect]:
        """Return and forget the effects gathered so far, in their order."""
        effects, self._effects = self._effects, []
        return effects

    def take_events(self) -> list[Event]:
        """Return and forget what happened since the last call, in order."""
        events, self._events = self._events, []
        return events

    @property
    def is_ready(self) -> bool:
        """Whether ``Ready`` was emitted and the connection has not ended."""
        return self._state is _State.READY

    # Commands

    def send_frame(self, frame: bytes, now: Instant) -> bytes:  # noqa: ARG002 - commands know the time, as inputs do
        """Send a frame of content and return its hash, 16 bytes, which one ``FrameOutcome`` will name.

        Args:
            frame: A whole frame of ours: DATA, SIGNED_DATA or ENCRYPTED_DATA.
            now: The current instant.
        """
        frame_hash = wire.frame_hash(frame)
        # Not sent: the outcome says so, so that the caller may repeat it.
        if not self.is_ready or len(self._sent) >= UNTOLD_MAX:
            self._events.append(FrameOutcome(frame_hash, None, sent=False))
            return frame_hash
        self._send(frame, receipt=True)
        # Spec 6: without notices the outcome stays unknown.
        if Feature.DELIVERY_NOTICES in self.features:
            self._number += 1
            self._sent[self._number] = _Sent(frame_hash)
            self._numbers_of.setdefault(frame_hash, deque()).append(self._number)
        else:
            self._events.append(FrameOutcome(frame_hash, None))
        return frame_hash

    def ask_servers(self, now: Instant) -> None:  # noqa: ARG002
        """Ask for the servers that the relay knows; ``ServersListed`` answers, or nothing does."""
        if self.is_ready:
            # Spec 4: REQUEST_SERVERS is answered to everybody who is known.
            self._servers_asked = True
            self._say(messages.RequestServers())

    def ask_key(self, key: bytes, now: Instant) -> None:
        """Ask the key directory for an agreement key; ``KeyFound`` or ``KeyNotFound`` answers, once per key."""
        if key in self._key_queries:
            return
        has_directory = self.is_ready and Feature.KEY_DIRECTORY in self.features
        # Spec 8: 16 key questions of one client; beyond, the relay would refuse.
        if not has_directory or len(self._key_queries) >= KEY_QUERIES_MAX:
            self._events.append(KeyNotFound(key))
            return
        self._key_queries[key] = after_ms(now, KEY_ANSWER_MS)
        self._say(messages.KeyQuery(key))

    def advertise(self, now: Instant, wall_ms: int) -> None:  # noqa: ARG002
        """Publish our agreement key in the key directory, if there is one; ``wall_ms`` is Unix milliseconds."""
        if self.is_ready and Feature.KEY_DIRECTORY in self.features:
            # Spec 7: KEY_ADVERT binds our agreement key to our signing key as of now.
            self._say(wire.make_advert(self._keys.signing, self._keys.agreement_public, wall_ms))

    # Handshake

    def _on_handshake(self, frame: Frame, now: Instant) -> None:
        # Spec 2: a relay's handshake frames carry no signature.
        if frame.signature != messages.ZERO_SIGNATURE:
            raise MalformedError(Refusal.MISPLACED_HANDSHAKE, "a relay's handshake frames are not signed")
        if self._state is _State.WAITING:
            self._on_challenge(frame.payload)
        elif self._state is _State.CONFIRMING and frame.payload == messages.CONFIRMATION:
            self._on_confirmation(frame.sender, now)
        else:
            raise MalformedError(Refusal.MISPLACED_HANDSHAKE, "a second challenge or confirmation")

    def _on_challenge(self, challenge: bytes) -> None:
        # Spec 2: a challenge of this form could be read as signed content.
        if len(challenge) != messages.CHALLENGE_BYTES or challenge[0] in HOSTILE_FIRST_BYTES:
            raise MalformedError(Refusal.HOSTILE_CHALLENGE, "signing it could mean more than an answer")
        signing = self._keys.signing
        # Spec 2: the answer signs the challenge with the client's key.
        signature = sign(signing, challenge)
        answer = wire.encode_frame(MessageType.HANDSHAKE, challenge, sender=signing.public, signature=signature)
        self._send(answer)
        self._state = _State.CONFIRMING

    def _on_confirmation(self, server: bytes, now: Instant) -> None:
        # A claimed key already ends a pinned connection; its proof is demanded by AUTH.
        if self._pinned is not None and server != self._pinned:
            raise MalformedError(Refusal.WRONG_SERVER, "another key than the pinned one")
        self.server = server
        if not self._extensions:
            self._become_ready()
            return
        self._state = _State.AWAITING_HELLO
        self._due = after_ms(now, HELLO_ANSWER_MS)
        # Spec 7: none is sent before the confirmation; from then on the original ignores it.
        self._say(messages.Hello(_FEATURES, Role.CLIENT, self._keys.signing.public, self._nonce, ""))

    def _on_hello(self, hello: messages.Hello) -> None:
        if self._hello is not None or not self._extensions:
            raise MalformedError(Refusal.MISPLACED_HANDSHAKE, "a HELLO that nobody waits for")
        # Spec 7: HELLO names the key of the confirmation.
        if hello.key != self.server or hello.role is not Role.NODE:
            raise MalformedError(Refusal.WRONG_SERVER, "HELLO of somebody else")
        self._hello = hello

    def _on_auth(self, auth: messages.Auth) -> None:
        hello = self._hello
        if hello is None or self.authenticated:
            raise MalformedError(Refusal.MISPLACED_HANDSHAKE, "an AUTH that nobody waits for")
        ours = self._keys.signing.public
        # Spec 7: signer first, with both nonces and roles.
        signed = wire.auth_message(hello.key, ours, hello.nonce, self._nonce, Role.NODE, Role.CLIENT)
        if not verify(hello.key, signed, auth.signature):
            raise MalformedError(Refusal.BAD_PEER_AUTH, "the relay does not hold the key that it names")
        self.authenticated = True
        # Spec 7: features are added up; without one its frames are not sent.
        self.features = Feature(hello.features)
        self._become_ready()

    def _on_silence(self) -> None:
        if self._pinned is not None:
            self._close(Refusal.WRONG_SERVER)
        else:
            self._become_ready()

    def _become_ready(self) -> None:
        self._state = _State.READY
        self._events.append(Ready(self.server, self.authenticated, int(self.features)))

    # What arrives

    def _on_frame(self, frame: Frame, data: bytes, now: Instant) -> None:
        if frame.kind == MessageType.NODE_INFO:
            self._on_info(frame)
        elif frame.kind in _CONTENT:
            self._on_content(frame, data, now)
        else:
            self._drop(Refusal.UNKNOWN_TYPE, frame.sender)

    def _on_content(self, frame: Frame, data: bytes, now: Instant) -> None:
        try:
            opened = self._open(data)
        except MalformedError as error:
            self._drop(error.refusal, frame.sender)
            return
        # The same plain bytes may be meant twice; the same signed ones are a replay.
        if opened.mode is not Mode.PLAIN and not self._seen.is_new(opened.fingerprint, now):
            self._drop(Refusal.DUPLICATE, frame.sender)
            return
        self._events.append(MessageArrived(opened, len(data)))

    def _open(self, data: bytes) -> Opened:
        # Spec 3, salvage mode: only behind a relay that proved nothing.
        if self._recover and not self.authenticated:
            return open_recovered(data, self._keys)
        return open_frame(data, self._keys)

    def _on_info(self, frame: Frame) -> None:
        try:
            info = wire.decode_info(frame.payload)
        except MalformedError as error:
            self._drop(error.refusal, frame.sender)
            return
        if isinstance(info, messages.Hello):
            self._on_hello(info)
        elif isinstance(info, messages.Auth):
            self._on_auth(info)
        elif isinstance(info, messages.Delivery):
            self._on_delivery(info)
        elif isinstance(info, messages.KeyAdvert | messages.KeyUnknown):
            self._on_key(info)
        elif isinstance(info, messages.Servers):
            self._on_servers(info)
        elif isinstance(info, messages.AddServer):
            self._events.append(ServerAdded(info.address))

    def _on_delivery(self, notice: messages.Delivery) -> None:
        numbers = self._numbers_of.get(notice.frame_hash)
        if numbers is None:
            self._drop(Refusal.UNASKED_ANSWER, None)
            return
        # An unknown code says only that the outcome is unknown.
        known = notice.code in DeliveryCode.__members__.values()
        self._finish(numbers[0], DeliveryCode(notice.code) if known else None)

    def _on_key(self, answer: messages.KeyAdvert | messages.KeyUnknown) -> None:
        # Spec 10.2: an advert counts as the answer to our own question only.
        if answer.key not in self._key_queries:
            self._drop(Refusal.UNASKED_ANSWER, answer.key)
        elif isinstance(answer, messages.KeyUnknown):
            del self._key_queries[answer.key]
            self._events.append(KeyNotFound(answer.key))
        elif wire.is_advert_valid(answer):
            del self._key_queries[answer.key]
            self._events.append(KeyFound(answer))
        else:
            self._drop(Refusal.BAD_ADVERT, answer.key)

    def _on_servers(self, servers: messages.Servers) -> None:
        if not self._servers_asked:
            self._drop(Refusal.UNASKED_ANSWER, None)
            return
        self._servers_asked = False
        self._events.append(ServersListed(servers.entries[:SERVERS_MAX]))

    # Helpers

    def _finish(self, number: int, code: DeliveryCode | None) -> None:
        """Emit the outcome of a frame; frames of equal bytes have theirs in the order in which they were sent."""
        sent = self._sent.pop(number)
        numbers = self._numbers_of[sent.frame_hash]
        numbers.remove(number)
        if not numbers:
            del self._numbers_of[sent.frame_hash]
        self._events.append(FrameOutcome(sent.frame_hash, code))

    def _give_up_waiting(self, now: Instant) -> None:
        while self._sent:
            number, sent = next(iter(self._sent.items()))
            if sent.due is None or sent.due > now:
                break
            self._finish(number, None)
        while self._key_queries and next(iter(self._key_queries.values())) <= now:
            key, _ = self._key_queries.popitem(last=False)
            self._events.append(KeyNotFound(key))

    def _drop(self, refusal: Refusal, sender: bytes | None) -> None:
        self._events.append(MessageDropped(refusal, sender))

    def _say(self, info: messages.Info) -> None:
        self._send(wire.encode_info_frame(info, self._keys.signing.public))

    def _send(self, frame: bytes, *, receipt: bool = False) -> None:
        assert self._peer is not None
        self._effects.append(Send(self._peer, frame, receipt))

    def _close(self, refusal: Refusal) -> None:
        assert self._peer is not None
        self._effects.append(Close(self._peer, refusal, status=refusal.status))
        self._end(refusal)

    def _end(self, refusal: Refusal | None) -> None:
        self._state = _State.CLOSED
        for number in tuple(self._sent):
            self._finish(number, None)
        self._events += [KeyNotFound(key) for key in self._key_queries]
        self._key_queries.clear()
        self._events.append(Ended(refusal))
