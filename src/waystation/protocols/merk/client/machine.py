"""The MERK client: it proves its key to a relay, sends frames, and opens received ones.

``sdk.merk.relays`` and the simulator drive it.

One machine is one connection::

    state           legal                                        goes on with
    WAITING         challenge                                    answer -> CONFIRMING
    CONFIRMING      confirmation                                 HELLO -> AWAITING_HELLO, or READY without extensions
    AWAITING_HELLO  HELLO, AUTH, everything that READY takes     AUTH, or 2 s of silence -> READY
    READY           messages, NODE_INFO, a late HELLO and AUTH
    CLOSED          nothing arrives any more

The relay's AUTH is answered with ours, which binds our key to that relay and both nonces, and, where the relay
understands it, with a PRESENCE that is renewed while the connection stands. Nobody who passes a challenge on to us can
show either.

Any other handshake frame, and any malformed byte, closes the connection with a ``Refusal``; ``receive`` never raises. A
relay chooses the challenge, and the answer signs exactly those bytes. The client therefore answers one challenge per
connection, and none that could begin signed content.

Each frame given to ``send_frame`` gets one ``FrameOutcome``: at a reference relay, which reports no outcomes, once it
has left our buffers. A frame larger than the relay takes is not sent.
``take`` returns the effects, ``take_events`` the events.

Spec: specs/merk.md 2, 4, 7, 8, 10; MERK-RAW, MERK-BOUND, MERK-SEEN.
"""

import random
from collections import OrderedDict
from collections.abc import Callable
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
    MailboxSaid,
    MessageArrived,
    MessageDropped,
    Ready,
    ReceiptArrived,
    ServerAdded,
    ServersListed,
)
from waystation.protocols.merk.client.seen_messages import SeenMessages
from waystation.protocols.merk.client.sent_frames import NOTICE_MS, SentFrames
from waystation.protocols.merk.keys import Keys
from waystation.protocols.merk.messages import DeliveryCode, Feature, Frame, MessageType, PresenceKind, Role
from waystation.protocols.merk.payload.contents import Extended, Receipt
from waystation.protocols.merk.payload.recovery import open_recovered
from waystation.protocols.merk.payload.sealing import Auth, Mode, Opened, open_frame
from waystation.protocols.merk.refusals import MalformedError, Refusal

__all__ = [
    "HANDSHAKE_MS",
    "HELLO_ANSWER_MS",
    "HOSTILE_FIRST_BYTES",
    "KEY_ANSWER_MS",
    "KEY_QUERIES_MAX",
    "NOTICE_MS",
    "ORIGINAL_FRAME_BYTES_MAX",
    "PRESENCE_MS",
    "PRESENCE_RENEWED_MS",
    "SERVERS_MAX",
    "UNTOLD_MAX",
    "MerkClient",
]

HANDSHAKE_MS: Final = 10_000  # ours; the relay itself waits 5 s for the answer
HELLO_ANSWER_MS: Final = 2_000  # longer than a round trip; an original relay keeps silent for ever
PRESENCE_MS: Final = 600_000  # spec 7: the longest that a node takes
PRESENCE_RENEWED_MS: Final = 300_000  # half of it
ORIGINAL_FRAME_BYTES_MAX: Final = 104_857_600  # the `ws` library's own limit, which the original leaves as it is
KEY_ANSWER_MS: Final = 10_000  # a look-up at other nodes takes 5 s
KEY_QUERIES_MAX: Final = 256  # ours
UNTOLD_MAX: Final = 1_024  # frames whose outcome is not known yet, ours
SERVERS_MAX: Final = 64  # specs/merk.md 8
HOSTILE_FIRST_BYTES: Final = (0x01, 0x02, 0x03, 0x10)  # spec 3: types of content
"""What signed content begins with (specs/merk.md 8; 0x10 is our own content type, MERK-RAW)."""
_OURS: Final = Feature.PRESENCE | Feature.MAILBOX
_FEATURES: Final = Feature.DELIVERY_NOTICES | Feature.KEY_DIRECTORY | Feature.HEADER_SIGNATURES | _OURS
_LESS: Final = (Auth.LEGACY, Auth.AMBIGUOUS)
_CONTENT: Final = (MessageType.DATA, MessageType.SIGNED_DATA, MessageType.ENCRYPTED_DATA)


class _State(Enum):
    WAITING = auto()
    CONFIRMING = auto()
    AWAITING_HELLO = auto()
    READY = auto()
    CLOSED = auto()


_OPEN: Final = (_State.AWAITING_HELLO, _State.READY)


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
        is_able: Callable[[bytes], bool] = lambda _key: False,
    ) -> None:
        """Describe a connection.

        Args:
            keys: Who we are.
            rng: Source of the nonce in HELLO.
            extensions: Say HELLO; without it every relay is taken for an original one.
            salvage: Make the best of frames that an original relay has mutilated; they prove little.
            pinned_server: Key that the relay must prove, 32 bytes; without ``extensions`` it need only claim it.
            seen: Messages taken already, also by earlier connections; None begins anew.
            is_able: Whether a sender, a 32-byte key, is known to use the bound form, so that less is refused.
        """
        self._keys = keys
        self._extensions = extensions
        self._recover = salvage
        self._pinned = pinned_server
        self._seen = seen if seen is not None else SeenMessages()
        self._is_able = is_able
        self._wall_ahead_us = 0
        self._nonce = rng.randbytes(messages.NONCE_BYTES)
        self._state = _State.CLOSED
        self._peer: Peer | None = None
        self._due = Instant(0)
        self._hello: messages.Hello | None = None
        self._servers_asked = False
        self._key_queries: OrderedDict[bytes, Instant] = OrderedDict()
        self._sent = SentFrames()
        self._presence_due: Instant | None = None
        self._effects: list[Effect] = []
        self._events: list[Event] = []
        self.server = messages.ZERO_KEY
        """Key that the relay names, 32 bytes; zero before its confirmation."""
        self.authenticated = False
        """Whether the relay has proved that key."""
        self.features = Feature(0)
        """What the relay understands."""
        self.frame_bytes_max = ORIGINAL_FRAME_BYTES_MAX
        """Largest frame that the relay takes, header included, as far as it has said so."""

    # Inputs

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Tie the monotonic clock to the wall clock: ``now`` is ``wall_us`` (microseconds UTC)."""
        self._wall_ahead_us = wall_us - now

    def connect(self, peer: Peer, now: Instant, address: str = "") -> None:  # noqa: ARG002 - we dialled it
        """Take the one connection of this machine over; a machine is used once."""
        assert self._peer is None
        self._peer = peer
        self._state = _State.WAITING
        self._due = after_ms(now, HANDSHAKE_MS)

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Take one whole binary message from the relay."""
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
        self._sent.left(now)
        # Spec 6: without notices nobody will say more than that it has left.
        if Feature.DELIVERY_NOTICES not in self.features:
            self._events += [FrameOutcome(frame_hash, None) for frame_hash in self._sent.clear()]

    def wake(self, now: Instant) -> None:
        """Act on whatever has become due."""
        if self._state in (_State.WAITING, _State.CONFIRMING) and now >= self._due:
            self._close(Refusal.AUTH_TIMEOUT)
        elif self._state is _State.AWAITING_HELLO and now >= self._due:
            self._on_silence()
        if self._state in _OPEN:
            self._give_up_waiting(now)
        if self._presence_due is not None and now >= self._presence_due:
            self._announce(now)

    def deadline(self) -> Instant | None:
        """Return when ``wake`` must be called next, or None."""
        if self._state is _State.CLOSED:
            return None
        due = [] if self._state is _State.READY else [self._due]
        due += [next(iter(self._key_queries.values()))] if self._key_queries else []
        due += [each for each in (self._sent.deadline(), self._presence_due) if each is not None]
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
        # Not sent: the outcome says so, so that the caller may repeat it. A frame too large would end the connection.
        if self.is_ready and len(frame) > self.frame_bytes_max:
            self._events.append(FrameOutcome(frame_hash, DeliveryCode.TOO_LARGE, sent=False))
        elif not self.is_ready or len(self._sent) >= UNTOLD_MAX:
            self._events.append(FrameOutcome(frame_hash, None, sent=False))
        else:
            self._send(frame, receipt=True)
            self._sent.add(frame_hash)
        return frame_hash

    def ask_servers(self, now: Instant) -> None:  # noqa: ARG002
        """Ask for the servers that the relay knows; ``ServersListed`` answers, or nothing does."""
        if self.is_ready:
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

    def say_mail(self, info: messages.Info) -> bool:
        """Say something about our mailbox; False when the relay has not proved its key or has no mailboxes."""
        can_say = self.is_ready and Feature.MAILBOX in self.features
        if can_say:
            self._say(info)
        return can_say

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
        # Spec 7: a node that has not said LIMITS takes the usual size.
        self.frame_bytes_max = min(self.frame_bytes_max, messages.FRAME_BYTES_USUAL)

    def _on_auth(self, auth: messages.Auth, now: Instant) -> None:
        hello = self._hello
        if hello is None or self.authenticated:
            raise MalformedError(Refusal.MISPLACED_HANDSHAKE, "an AUTH that nobody waits for")
        ours = self._keys.signing.public
        signed = wire.auth_message(hello.key, ours, hello.nonce, self._nonce, Role.NODE, Role.CLIENT)
        if not verify(hello.key, signed, auth.signature):
            raise MalformedError(Refusal.BAD_PEER_AUTH, "the relay does not hold the key that it names")
        self.authenticated = True
        # Spec 7: features are added up; without one its frames are not sent.
        self.features = Feature(hello.features)
        # Spec 7: ours names this very relay, so that a relay which passes challenges on cannot use it elsewhere.
        proof = wire.auth_message(ours, hello.key, self._nonce, hello.nonce, Role.CLIENT, Role.NODE)
        self._say(messages.Auth(sign(self._keys.signing, proof)))
        self._announce(now)
        self._become_ready()

    def _announce(self, now: Instant) -> None:
        """Say that we are connected here, for a while; nodes that look for us believe nothing less."""
        self._presence_due = None
        if Feature.PRESENCE not in self.features:
            return
        issued_ms = self._wall_ms(now)
        until_ms = issued_ms + PRESENCE_MS
        self._say(wire.make_presence(self._keys.signing, PresenceKind.CONNECTED, self.server, issued_ms, until_ms))
        self._presence_due = after_ms(now, PRESENCE_RENEWED_MS)

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
            self._on_info(frame, now)
        elif frame.kind in _CONTENT:
            self._on_content(frame, data, now)
        else:
            self._drop(Refusal.UNKNOWN_TYPE, frame.sender)

    def _on_content(self, frame: Frame, data: bytes, now: Instant) -> None:
        try:
            opened = self._open(data)
        except MalformedError as error:
            self._drop(error.refusal, frame.sender, data)
            return
        # MERK-BOUND: who is known to say more is not believed with less; what a relay mutilates is another matter.
        is_less = opened.auth in _LESS and self._is_able(opened.sender)
        refusal = Refusal.DOWNGRADED if is_less and not self._recovers else None
        refusal = refusal or self._seen.refusal_of(opened, self._wall_ms(now))
        if refusal is not None:
            self._drop(refusal, frame.sender, data)
        elif isinstance(opened.content, Extended) and isinstance(opened.content.content, Receipt):
            self._on_receipt(opened, opened.content.content)
        else:
            self._events.append(MessageArrived(opened, len(data)))

    def _on_receipt(self, opened: Opened, receipt: Receipt) -> None:
        # Spec 3: a receipt counts in the bound form only, for anything less could be somebody else's.
        if opened.mode is Mode.ENCRYPTED and opened.auth is Auth.BOUND:
            self._events.append(ReceiptArrived(opened.sender, receipt.message_ids, opened.frame_hash))
        else:
            self._drop(Refusal.BAD_CONTENT, opened.sender)

    @property
    def _recovers(self) -> bool:
        # Spec 3, salvage mode: only behind a relay that proved nothing.
        return self._recover and not self.authenticated

    def _wall_ms(self, now: Instant) -> int:
        return (now + self._wall_ahead_us) // 1_000

    def _open(self, data: bytes) -> Opened:
        if self._recovers:
            return open_recovered(data, self._keys)
        return open_frame(data, self._keys)

    def _on_info(self, frame: Frame, now: Instant) -> None:
        try:
            info = wire.decode_info(frame.payload)
        except MalformedError as error:
            self._drop(error.refusal, frame.sender)
            return
        if isinstance(info, messages.Hello):
            self._on_hello(info)
        elif isinstance(info, messages.Auth):
            self._on_auth(info, now)
        elif isinstance(info, messages.MailState):
            self._events.append(MailboxSaid(info.state, info.messages_count, info.kept_bytes, info.until_ms))
        elif isinstance(info, messages.Delivery):
            self._on_delivery(info)
        elif isinstance(info, messages.KeyAdvert | messages.KeyUnknown):
            self._on_key(info)
        elif isinstance(info, messages.Servers):
            self._on_servers(info)
        elif isinstance(info, messages.AddServer):
            self._events.append(ServerAdded(info.address))
        elif isinstance(info, messages.Limits) and self._hello is not None:
            self.frame_bytes_max = info.frame_bytes_max

    def _on_delivery(self, notice: messages.Delivery) -> None:
        if not self._sent.settle(notice.frame_hash):
            self._drop(Refusal.UNASKED_ANSWER, None)
            return
        # An unknown code says only that the outcome is unknown.
        known = notice.code in DeliveryCode.__members__.values()
        self._events.append(FrameOutcome(notice.frame_hash, DeliveryCode(notice.code) if known else None))

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

    def _give_up_waiting(self, now: Instant) -> None:
        self._events += [FrameOutcome(frame_hash, None) for frame_hash in self._sent.overdue(now)]
        while self._key_queries and next(iter(self._key_queries.values())) <= now:
            key, _ = self._key_queries.popitem(last=False)
            self._events.append(KeyNotFound(key))

    def _drop(self, refusal: Refusal, sender: bytes | None, content: bytes = b"") -> None:
        self._events.append(MessageDropped(refusal, sender, wire.frame_hash(content) if content else b""))

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
        self._presence_due = None
        self._events += [FrameOutcome(frame_hash, None) for frame_hash in self._sent.clear()]
        self._events += [KeyNotFound(key) for key in self._key_queries]
        self._key_queries.clear()
        self._events.append(Ended(refusal))
