"""Serves mailboxes: takes what clients say about theirs, keeps frames for who is away, and gives them out.

``known_frames`` passes in MAIL of clients, ``routing`` each frame whose recipient is connected nowhere, and the relay
the answers of the store. A sender gets STORED once its frame is on disk. The owner gets what is kept when it asks, the
oldest first and as fast as it reads; each frame stays until the owner says that its program took it.

Spec: specs/merk.md 6, 7, 8; MERK-MAIL.
"""

from collections.abc import Callable
from typing import Final

from waystation.core.commits import COMMIT_AGAIN_MS
from waystation.core.effects import Commit
from waystation.core.facts import DeliveryFinished, LeaseChanged, Outcome, Refused
from waystation.core.instant import Instant, after_ms
from waystation.core.networks import network_of
from waystation.protocols.merk.messages import (
    DeliveryCode,
    Feature,
    MailboxState,
    MailClose,
    MailFetch,
    MailOpen,
    MailState,
    MailTaken,
    MessageType,
    Presence,
)
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay.delivery import PROTOCOL
from waystation.protocols.merk.relay.key_directory import KeyDirectory
from waystation.protocols.merk.relay.mail import Closed, Kept, NotKept, NotOpened, Opened
from waystation.protocols.merk.relay.mailboxes import Mailboxes
from waystation.protocols.merk.relay.outbox import Outbox
from waystation.protocols.merk.relay.presences import WallClock, is_proof_of_presence
from waystation.protocols.merk.relay.routing import Routing
from waystation.protocols.merk.relay.sessions import Sessions
from waystation.protocols.merk.session import Sending, Session, State

__all__ = ["Mailing"]

FETCH_MS: Final = 10_000  # MERK-MAIL: who asks again sooner goes on where it is
SWEEP_MS: Final = 60_000
UNKNOWN_SOURCE: Final = "unknown"
_COUNT_MAX: Final = 0xFFFF_FFFF  # u32 of STATE
_SENDER: Final = slice(24, 56)  # spec 1


class _Reader:
    """An owner that is given its mail."""

    __slots__ = ("again_at", "number")

    def __init__(self, again_at: Instant) -> None:
        self.again_at = again_at
        """From when on FETCH begins anew."""
        self.number = 0
        """Of the last frame that was sent."""


class Mailing:
    """All mailboxes of one relay, as its connections see them."""

    def __init__(
        self,
        boxes: Mailboxes,
        keys: KeyDirectory,
        node_key: bytes,
        sessions: Sessions,
        outbox: Outbox,
        routing: Routing,
        clock: WallClock,
        *,
        is_on: bool,
        has_shares: bool,
    ) -> None:
        """Bind the parts of one relay; see ``machine.MerkRelay``.

        Args:
            boxes: What is kept.
            keys: Adverts of the clients that are here.
            node_key: Our own key.
            sessions: The connections.
            outbox: Where frames go.
            routing: Knows who is connected, and brings frames for who is not.
            clock: The wall clock.
            is_on: Whether mailboxes are opened and frames kept; what was kept is given out anyway.
            has_shares: Whether networks and nodes have shares, which are ceilings per address.
        """
        self.boxes = boxes
        self._keys = keys
        self._node_key = node_key
        self._sessions = sessions
        self._outbox = outbox
        self._delivery = routing.delivery
        self._clock = clock
        self._holder_of: Callable[[bytes], Session | None] = routing.clients.get
        self._is_on = is_on
        self._has_shares = has_shares
        self._readers: dict[Session, _Reader] = {}
        self._ready: dict[Session, None] = {}
        """Readers that have not taken everything though nothing is known to wait behind us."""
        self.ticket = 0
        """Of the commit under way."""
        self._again_at: Instant | None = None
        self._sweep_at: Instant | None = None
        routing.mail_word, routing.delivery.keep = self.word_of, self.keep

    # What clients say

    def proved(self, session: Session, now: Instant) -> None:
        """A client has proved its key: it gets the state of its mailbox, if it knows what that is."""
        owner = session.identity
        assert owner is not None
        self.boxes.came(owner, self._clock.ms(now))
        if session.hello is not None and session.hello.features & Feature.MAILBOX:
            self._state(session)

    def on_open(self, session: Session, info: MailOpen, now: Instant) -> None:
        """Open or renew a client's mailbox."""
        presence, owner = info.presence, session.identity
        if not self._is_owner(session, now):
            return
        assert owner is not None
        # Spec 7: the session's key, this node, now.
        if not is_proof_of_presence(presence, owner, self._node_key, self._clock.ms(now)):
            self._sessions.strike(session, Refusal.BAD_PRESENCE, now)
            self._refuse_open(session)
        elif not self._is_on:
            self._sessions.note(session, Refusal.MAILBOX_OFF)
            self._refuse_open(session)
        else:
            refusal = self.boxes.open(presence, self._network(session), self._clock.ms(now))
            if refusal is not None:
                self._sessions.note(session, refusal)
                self._refuse_open(session)
                return
            # A client may have said its agreement key before it asks for a mailbox.
            advert = self._keys.held(owner)
            if advert is not None:
                self.boxes.advertised(advert)

    def on_close(self, session: Session, _info: MailClose, now: Instant) -> None:
        """End a client's mailbox; STATE follows once it is off the disk."""
        if self._is_owner(session, now):
            assert session.identity is not None
            self.boxes.close(session.identity)
            self.answer(now)

    def on_taken(self, session: Session, info: MailTaken, now: Instant) -> None:
        """Delete what the client's program took."""
        if not self._is_owner(session, now):
            return
        owner = session.identity
        assert owner is not None
        before = self.boxes.mail_bytes
        count = self.boxes.taken(owner, info.hashes)
        if count:
            self._fact(owner, Outcome.OK, before - self.boxes.mail_bytes, count)
            box = self.boxes.of(owner)
            if box is not None and not box.mail:
                self._state(session)  # that nothing is left is news for whoever shows how much there is

    def on_fetch(self, session: Session, _info: MailFetch, now: Instant) -> None:
        """Send what is kept for a client, and what is kept for it while it is here."""
        if not self._is_owner(session, now):
            return
        assert session.identity is not None
        reader = self._readers.get(session)
        if reader is None:
            self.boxes.came(session.identity, self._clock.ms(now))
        elif now < reader.again_at:
            return
        self._readers[session] = _Reader(after_ms(now, FETCH_MS))
        self.release(session, now)

    def on_state(self, session: Session, _info: MailState, now: Instant) -> None:
        """Only a node says that."""
        self._sessions.strike(session, Refusal.INFO_NOT_ALLOWED, now)

    def _is_owner(self, session: Session, now: Instant) -> bool:
        # MERK-PROVED: only AUTH shows that it is the key's owner that speaks with this very node.
        if session.state is State.CLIENT and session.is_proved:
            return True
        self._sessions.strike(session, Refusal.INFO_NOT_ALLOWED, now)
        return False

    def _refuse_open(self, session: Session) -> None:
        self._sessions.say(session, MailState(MailboxState.REFUSED, 0, 0, 0))

    def _state(self, session: Session) -> None:
        box = self.boxes.of(session.identity or b"")
        if box is None or (box.presence is None and not box.mail):
            self._sessions.say(session, MailState(MailboxState.CLOSED, 0, 0, 0))
            return
        state = MailboxState.OPEN if box.presence is not None else MailboxState.CLOSED
        count, size = min(len(box.mail), _COUNT_MAX), min(box.mail_bytes, _COUNT_MAX)
        until_ms = box.presence.until_ms if box.presence is not None else 0
        self._sessions.say(session, MailState(state, count, size, until_ms))

    def _network(self, session: Session) -> str:
        return network_of(session.address) if self._has_shares else ""

    # Frames for who is away

    def word_of(self, target: bytes, now: Instant) -> Presence | None:
        """Return a client's word that we keep its mail, None when we do not."""
        return self.boxes.presence_of(target, self._clock.ms(now)) if self._is_on else None

    def keep(self, sending: Sending, now: Instant) -> bool:
        """Keep a frame for a client that is away; False when that is not for us to do, and nothing was said."""
        # Spec 7: only ENCRYPTED frames are kept; a disk must not be read for what was written in clear.
        if sending.frame[2] != MessageType.ENCRYPTED_DATA or self.word_of(sending.target, now) is None:
            return False
        sender = sending.frame[_SENDER]
        refusal = self.boxes.keep(sending, sender, self._source(sending, sender), self._clock.ms(now))
        if refusal is not None:
            code = DeliveryCode.TOO_LARGE if refusal is Refusal.MAIL_TOO_LARGE else DeliveryCode.QUEUE_FULL
            self._refuse(sending, code, refusal, now)
        self.answer(now)
        return True

    def _source(self, sending: Sending, sender: bytes) -> str:
        """Return whose share a frame takes; those of whom nobody knows any more have one together."""
        # Who wants no notices is not named by its frames; a client's frames have its own key as their sender.
        origin = sending.session or self._holder_of(sender)
        if not self._has_shares:
            return ""
        if origin is None:
            return UNKNOWN_SOURCE
        if origin.state is State.PEER:
            return f"node:{(origin.identity or b'').hex()}"
        return network_of(origin.address)

    def _refuse(self, sending: Sending, code: DeliveryCode, refusal: Refusal, now: Instant) -> None:
        self._delivery.finish(sending, code, now, refusal)

    # Giving out

    def release(self, session: Session, now: Instant) -> None:  # noqa: ARG002 - as delivery's
        """Send what is kept for an owner, as far as its connection takes it."""
        self._ready.pop(session, None)
        reader, owner = self._readers.get(session), session.identity
        if reader is None or owner is None:
            return
        for stored in self.boxes.mail_of(owner, reader.number):
            if not self._outbox.takes(session, stored.size):
                if not session.congested:
                    self._ready[session] = None
                return
            frame = self.boxes.read(owner, stored)
            reader.number = stored.number
            if frame is not None:  # else its row is damaged, and the others follow
                self._outbox.send(session, frame)

    def left(self, session: Session) -> None:
        """A connection is over."""
        self._readers.pop(session, None)
        self._ready.pop(session, None)

    # The disk

    def begin(self, ticket: int) -> Commit | None:
        """Return the commit of what waits, None while there is nothing or one is under way."""
        if self._again_at is not None or self.boxes.is_committing or not self.boxes.has_changes:
            return None
        self.ticket = ticket
        return Commit(ticket, self.boxes.changes())

    def committed(self, now: Instant) -> None:
        """What waited is on disk."""
        self.boxes.committed()
        self.answer(now)

    def not_committed(self, now: Instant) -> None:
        """The store refused it; nothing is asked of it for a second."""
        self.boxes.not_committed()
        self._again_at = after_ms(now, COMMIT_AGAIN_MS)
        self.answer(now)

    def answer(self, now: Instant) -> None:
        """Say what has become of mailboxes and frames."""
        fresh: dict[Session, None] = {}
        for answer in self.boxes.take_answers():
            if isinstance(answer, Kept):
                self._delivery.finish(answer.sending, DeliveryCode.STORED, now)
                owner = self._holder_of(answer.sending.target)
                if owner is not None:
                    fresh[owner] = None
            elif isinstance(answer, NotKept):
                self._refuse(answer.sending, DeliveryCode.QUEUE_FULL, Refusal.MAIL_NOT_KEPT, now)
            else:
                self._answer_of_box(answer)
        for owner in fresh:
            self.release(owner, now)
        if self._sweep_at is None and len(self.boxes):
            self._sweep_at = after_ms(now, SWEEP_MS)

    def _answer_of_box(self, answer: Opened | NotOpened | Closed) -> None:
        session = self._holder_of(answer.owner)
        if isinstance(answer, NotOpened):
            self._outbox.add(Refused(PROTOCOL, answer.owner, Refusal.MAIL_NOT_KEPT.value))
            if session is not None:
                self._refuse_open(session)
            return
        box = self.boxes.of(answer.owner)
        change = "granted" if isinstance(answer, Opened) else "forgotten"
        self._outbox.add(LeaseChanged(PROTOCOL, answer.owner, change, len(box.mail) if box is not None else 0))
        if session is not None:
            self._state(session)

    # Time

    def wake(self, now: Instant) -> None:
        """Send what may leave, ask the store again, and end what is over."""
        for session in list(self._ready):
            self.release(session, now)
        if self._again_at is not None and self._again_at <= now:
            self._again_at = None
        if self._sweep_at is not None and self._sweep_at <= now:
            for owner, count, size in self.boxes.sweep(self._clock.ms(now)).items():
                assert isinstance(owner, bytes)
                self._fact(owner, Outcome.GONE, size, count)
            self.answer(now)
            self._sweep_at = after_ms(now, SWEEP_MS) if len(self.boxes) else None

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        if self._ready:
            return Instant(0)
        return min((at for at in (self._again_at, self._sweep_at) if at is not None), default=None)

    def begin_sweeping(self, now: Instant) -> None:
        """Look for what is over soon: mailboxes of the last life."""
        if self._sweep_at is None and len(self.boxes):
            self._sweep_at = now

    def _fact(self, recipient: bytes, outcome: Outcome, size: int, count: int) -> None:
        self._outbox.add(
            DeliveryFinished(PROTOCOL, self._delivery.next_attempt(), recipient, outcome, None, size, count)
        )
