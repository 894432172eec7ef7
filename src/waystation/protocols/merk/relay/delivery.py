"""Delivers frames to connected clients, and sends notices of the outcome.

``routing`` passes it each frame whose recipient is connected here. A frame is forwarded byte for byte. Frames for a
slow reader wait here, up to twice the largest frame, and of one sender a quarter of that, or one frame; a frame beyond
it is refused. Only a reader that takes nothing for a minute is cut, whatever others send it. A frame counts as
delivered once it is written to the recipient's connection.

The sender gets one notice per frame if it asked for notices. A node that understands DELIVERIES gets one for many: the
ids of the frames that ended alike are gathered until ``flush``, which the relay calls when its effects are taken. The
journal gets counts per recipient and second.

Spec: specs/merk.md 3, 6, 7, 8, 10.3, 10.11; MERK-SLOW, MERK-TALLY, MERK-NOTICES.
"""

from collections.abc import Callable, Sequence
from typing import Final

from waystation.core.facts import DeliveryFinished, Outcome, Refused
from waystation.core.instant import Instant, after_ms
from waystation.core.settings import InForce
from waystation.protocols.merk import wire
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.messages import (
    DELIVERIES_MAX,
    HASH_BYTES,
    HEADER_BYTES,
    KEY_BYTES,
    Deliveries,
    DeliveryCode,
)
from waystation.protocols.merk.messages import Delivery as Notice
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.relay.outbox import Outbox
from waystation.protocols.merk.session import Sending, Session, State

__all__ = ["Delivery"]

PROTOCOL: Final = "merk"
NOT_READING_MS: Final = 60_000  # ours: a reader that takes nothing for so long holds memory for nobody
PRESSED_MS: Final = 10_000  # MERK-SLOW: who has bytes waiting for so long while there is no memory left for others
SENDER_PART: Final = 4  # MERK-SLOW: one sender may fill a quarter of what waits for a reader
TALLY_MS: Final = 1_000  # MERK-TALLY
_SENDER: Final = slice(24, 24 + KEY_BYTES)  # spec 1

_OUTCOMES: Final = {
    DeliveryCode.DELIVERED: Outcome.OK,
    DeliveryCode.UNKNOWN_TARGET: Outcome.OFFLINE,
    DeliveryCode.LOOKUP_TIMEOUT: Outcome.TIMEOUT,
}
"""Every other code is a refusal."""
_REACHED: Final = (DeliveryCode.DELIVERED, DeliveryCode.STORED)
"""These are counted where the frame is handed to its recipient."""


class Delivery:
    """All frames that end here."""

    def __init__(self, outbox: Outbox, node_key: bytes, limits: InForce[MerkLimits]) -> None:
        """Start with nothing under way.

        Args:
            outbox: Where frames and notices go.
            node_key: Sender of notices.
            limits: How many recipients are counted separately.
        """
        self._outbox = outbox
        self._limits = limits
        self._node_key = node_key
        empty = wire.encode_info_frame(Notice(0, bytes(KEY_BYTES), bytes(HASH_BYTES)), node_key)
        self._notice_heads = [empty[: HEADER_BYTES + 1] + bytes((code,)) for code in range(max(DeliveryCode) + 1)]
        """Notices without target and hash, by code."""
        self._gathered: dict[tuple[Session, DeliveryCode], list[bytes]] = {}
        """Ids of frames that ended alike, of nodes that get one notice for many; below 240 of each."""
        self._ready: dict[Session, None] = {}
        """Sessions whose frames wait though nothing is known to wait behind us."""
        self._attempts = 0
        self.keep: Callable[[Sending, Instant], bool] = lambda _sending, _now: False
        """Keeps a frame for who is away, and sees to its outcome; False where no mailbox does."""
        self._delivered: dict[Session, None] = {}
        self._failed: dict[tuple[bytes, Outcome], list[int]] = {}
        self._tally_at: Instant | None = None

    def deliver(
        self,
        recipient: Session,
        origin: Session | None,
        target: bytes,
        frame: bytes,
        now: Instant,
        message_id: bytes = b"",
    ) -> None:
        """Hand a frame to a client's connection, or let it wait, or refuse it.

        Args:
            recipient: An authenticated client of ours.
            origin: The connection it came by and that gets the outcome if it asked for notices; None for nobody.
            target: The recipient's key.
            frame: Left as it is.
            now: Monotonic time.
            message_id: As in ``Sending``.
        """
        size = len(frame)
        if self._outbox.takes(recipient, size):
            self._outbox.send(recipient, frame)
            self._count(recipient, size, now)
            if origin is not None and origin.wants_notices:
                self._notify(origin, DeliveryCode.DELIVERED, target, frame, b"", message_id)
            return
        asker = origin if origin is not None and origin.wants_notices else None
        sending = Sending(asker, target, frame, b"", message_id)
        # Spec 8: 256 MiB wait for all readers together, and a share of it for those of one network.
        if not self._outbox.make_room(recipient, size) or not self._may_wait(recipient, frame[_SENDER], size):
            self.finish(sending, DeliveryCode.QUEUE_FULL, now)
        else:
            recipient.waiting.append(sending)
            recipient.waiting_bytes += size
            recipient.waiting_of[frame[_SENDER]] = recipient.waiting_of.get(frame[_SENDER], 0) + size
            self._outbox.wait(recipient, size)
            if not recipient.congested:
                self._ready[recipient] = None

    def _may_wait(self, recipient: Session, sender: bytes, size: int) -> bool:
        """Return whether a frame may wait for a reader: twice the largest may, a quarter of it or one of one sender."""
        # MERK-SLOW: what others send must not cost a reader its connection, nor one sender the others their place.
        most, of_sender = self._outbox.ahead_bytes_max, recipient.waiting_of.get(sender, 0)
        has_share = not of_sender or of_sender + size <= most // SENDER_PART
        return has_share and recipient.waiting_bytes + size <= most

    def deliver_run(self, recipient: Session, frames: Sequence[bytes], size: int, now: Instant) -> None:
        """Hand over frames, ``size`` bytes in all, that the connection takes, without notices."""
        taken = self._outbox.takes(recipient, size)
        assert taken
        self._outbox.send_many(recipient, frames)
        self._count(recipient, size, now, len(frames))

    def notify_run(self, origin: Session, target: bytes, frames: Sequence[bytes]) -> None:
        """Notify that frames were delivered, which ``deliver_run`` has handed over."""
        head = self._notice_heads[DeliveryCode.DELIVERED] + target
        self._outbox.reply_many(origin, [head + wire.frame_hash(frame) for frame in frames])

    def finish(self, sending: Sending, code: DeliveryCode, now: Instant, refusal: Refusal = Refusal.QUEUE_FULL) -> None:
        """Report the outcome of a frame that was not simply delivered; ``refusal`` is why, where something was full."""
        if sending.session is not None:
            self._notify(sending.session, code, sending.target, sending.frame, sending.frame_hash, sending.message_id)
        if code not in _REACHED:
            self.count_failure(sending.target, code, len(sending.frame), now, refusal)

    def refuse(
        self, origin: Session, code: DeliveryCode, target: bytes, frame: bytes, now: Instant, message_id: bytes = b""
    ) -> None:
        """Turn a frame down; ``message_id`` as in ``Sending``."""
        if origin.wants_notices:
            self._notify(origin, code, target, frame, b"", message_id)
        self.count_failure(target, code, len(frame), now)

    def release(self, session: Session, now: Instant) -> None:
        """Hand over what waits, as far as the connection takes it."""
        self._ready.pop(session, None)
        while session.waiting and not session.congested:
            sending = session.waiting[0]
            size = len(sending.frame)
            if not self._outbox.takes_next(session, size):
                self._ready[session] = None
                return
            session.waiting.popleft()
            session.waiting_bytes -= size
            _give_back(session.waiting_of, sending.frame[_SENDER], size)
            self._outbox.wait(session, -size)
            self._outbox.send(session, sending.frame)
            self._count(session, size, now)
            self.finish(sending, DeliveryCode.DELIVERED, now)

    def abandon(self, session: Session, now: Instant) -> None:
        """Drop what waits for a connection that is over."""
        self._ready.pop(session, None)
        self._report_delivered(session)
        self._outbox.wait(session, -session.waiting_bytes)
        session.waiting_bytes = 0
        session.waiting_of.clear()
        while session.waiting:
            # Spec 6: the connection ended with the frame still waiting: code 2, unless a mailbox keeps it.
            sending = session.waiting.popleft()
            if not self.keep(sending, now):
                self.finish(sending, DeliveryCode.QUEUE_FULL, now)

    def wake(self, now: Instant) -> None:
        """Release what may leave, doom readers that do not read, and report the counts of the last second."""
        for session in list(self._ready):
            self.release(session, now)
        for session in self._outbox.congested:
            # Spec 8: a reader that takes nothing for 60 s is cut; the table is in the order of progress.
            if now < after_ms(session.progress_at, NOT_READING_MS):
                break
            self._outbox.doomed.append((session, Refusal.NOT_READING))
        pressed = self._pressed()
        if pressed is not None and pressed[0] <= now and not self._outbox.doomed:
            # One at a time: its end may free enough.
            self._outbox.doomed.append((pressed[1], Refusal.NOT_READING))
            self._outbox.is_short = False
            self._outbox.short_networks.pop(pressed[1].network, None)
        if self._tally_at is not None and self._tally_at <= now:
            self.report_counts()

    def deadline(self) -> Instant | None:
        """Return when ``wake`` is due."""
        if self._ready:
            return Instant(0)
        due = [] if self._tally_at is None else [self._tally_at]
        if self._outbox.congested:
            due.append(after_ms(next(iter(self._outbox.congested)).progress_at, NOT_READING_MS))
        pressed = self._pressed()
        return min(due if pressed is None else [*due, pressed[0]], default=None)

    def _pressed(self) -> tuple[Instant, Session] | None:
        """Return when which reader is cut so that others, of its network or all, have memory; None while they have.

        It is the one that is behind for longest.
        """
        # MERK-SLOW: not by its progress, which a reader that takes a byte a second has too.
        outbox = self._outbox
        crowds = [outbox.behind_of.get(network, {}) for network in outbox.short_networks]
        crowds += [outbox.behind] if outbox.is_short else []
        slowest = [next((since, session) for session, since in crowd.items()) for crowd in crowds if crowd]
        since, session = min(slowest, key=lambda each: each[0], default=(None, None))
        return None if since is None or session is None else (after_ms(since, PRESSED_MS), session)

    def report_counts(self) -> None:
        """Report the counts gathered so far."""
        self._tally_at = None
        for session in list(self._delivered):
            self._report_delivered(session)
        failed, self._failed = self._failed, {}
        for (target, outcome), (count, size) in failed.items():
            self._fact(target, outcome, count, size)

    def next_attempt(self) -> int:
        """Return a number for one row of the journal."""
        self._attempts += 1
        return self._attempts

    def count_failure(
        self, target: bytes, code: DeliveryCode, size: int, now: Instant, refusal: Refusal = Refusal.QUEUE_FULL
    ) -> None:
        """Count a frame that was not delivered."""
        if self._tally_at is None:
            self._tally_at = after_ms(now, TALLY_MS)
        if code is DeliveryCode.QUEUE_FULL or refusal is not Refusal.QUEUE_FULL:
            # Without the sender: beside the delivery's fact it would say who wrote to whom.
            self._outbox.add(Refused(PROTOCOL, None, refusal.value))
        key = (target, _OUTCOMES.get(code, Outcome.REFUSED))
        # Bounded: beyond the limit failures are counted under the zero key.
        if key not in self._failed and len(self._failed) >= self._limits.now.tallied_recipients:
            key = (bytes(len(target)), key[1])
        entry = self._failed.setdefault(key, [0, 0])
        entry[0] += 1
        entry[1] += size

    def _count(self, recipient: Session, size: int, now: Instant, frames_count: int = 1) -> None:
        if not recipient.delivered_count:
            self._delivered[recipient] = None
            if self._tally_at is None:
                self._tally_at = after_ms(now, TALLY_MS)
        recipient.delivered_count += frames_count
        recipient.delivered_bytes += size

    def _report_delivered(self, session: Session) -> None:
        if self._delivered.pop(session, session) is None:
            assert session.identity is not None
            self._fact(session.identity, Outcome.OK, session.delivered_count, session.delivered_bytes)
            session.delivered_count = session.delivered_bytes = 0

    def _fact(self, recipient: bytes, outcome: Outcome, count: int, size: int) -> None:
        self._outbox.add(DeliveryFinished(PROTOCOL, self.next_attempt(), recipient, outcome, None, size, count))

    def gather(self, node: Session, code: DeliveryCode, message_ids: Sequence[bytes]) -> None:
        """Note that frames of a node have ended alike, for one notice of all of them."""
        gathered = self._gathered.setdefault((node, code), [])
        gathered += message_ids
        while len(gathered) >= DELIVERIES_MAX:
            self._say_gathered(node, code, gathered[:DELIVERIES_MAX])
            del gathered[:DELIVERIES_MAX]

    def flush(self, ending: Session | None = None) -> None:
        """Send what is gathered, or what is gathered for a connection that we are about to close."""
        gathered = self._gathered
        if not gathered:
            return
        self._gathered = {} if ending is None else {at: ids for at, ids in gathered.items() if at[0] is not ending}
        for (node, code), message_ids in gathered.items():
            if message_ids and ending in (None, node):
                self._say_gathered(node, code, message_ids)

    def _say_gathered(self, node: Session, code: DeliveryCode, message_ids: Sequence[bytes]) -> None:
        # Spec 7: DELIVERIES; a connection that is over gets nothing.
        self._outbox.reply(node, wire.encode_info_frame(Deliveries(code, tuple(message_ids)), self._node_key))

    def _notify(
        self, origin: Session, code: DeliveryCode, target: bytes, frame: bytes, frame_hash: bytes, message_id: bytes
    ) -> None:
        """Notify the origin, or gather it; ``frame_hash`` and ``message_id`` are empty where they are not known."""
        if origin.state is State.CLOSED:
            return
        if message_id:
            self.gather(origin, code, (message_id,))
        else:
            self._outbox.reply(origin, self._notice_heads[code] + target + (frame_hash or wire.frame_hash(frame)))


def _give_back(waiting_of: dict[bytes, int], sender: bytes, size: int) -> None:
    """Take a frame off a sender's share."""
    waiting_of[sender] -= size
    if not waiting_of[sender]:
        del waiting_of[sender]
