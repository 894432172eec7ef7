"""The outbox: the relay's effects in order, with limits on the bytes that wait to be sent.

All parts of the relay send through it. A connection accepts frames while no bytes wait for it, and at most twice the
largest frame per event-loop iteration. When ``buffered_bytes`` wait in total, or the share of one network for its own
readers, large frames are refused, and ``delivery`` closes the connection whose bytes have waited longest, of all or of
that network. Our own short replies are always sent; a client that keeps asking without reading them is disconnected.

Spec: specs/merk.md 8, 10.11; MERK-SLOW.
"""

from collections.abc import Sequence
from typing import Final

from waystation.core.effects import Close, Effect, Hold, SendMany, make_send
from waystation.core.instant import Instant
from waystation.core.settings import InForce
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.session import Session, State

__all__ = ["Outbox"]

SMALL_BYTES: Final = 65_536  # frames up to this size are counted once they are known to wait; one read brings no more
REPLIES_HELD_BYTES: Final = 262_144  # answers that wait for a connection before we stop reading it


class Outbox:
    """Gathers effects in their order."""

    def __init__(self, ahead_bytes_max: int, limits: InForce[MerkLimits]) -> None:
        """Start empty.

        Args:
            ahead_bytes_max: Most bytes for one connection in one turn, one frame excepted.
            limits: How much may wait.
        """
        self._limits = limits
        self._effects: list[Effect] = []
        self.add = self._effects.append
        self.ahead_bytes_max = ahead_bytes_max
        self.turn = 1
        self.congested: dict[Session, None] = {}
        """Connections whose bytes wait, the one that has taken nothing for longest first."""
        self.behind: dict[Session, Instant] = {}
        """The same, by when their bytes began to wait: taking a little now and then changes nothing here."""
        self.behind_of: dict[str, dict[Session, Instant]] = {}
        """The same of each network."""
        self.stuck_bytes = 0
        """Most bytes that can wait behind us for all of them."""
        self.waiting_bytes = 0
        """Bytes of frames that wait here, for whoever takes them later."""
        self.is_short = False
        """Whether a frame found no room lately."""
        self.short_networks: dict[str, None] = {}
        """Networks whose readers found none in their share."""
        self._turn_bytes = 0
        """Bytes of large frames handed over in this turn."""
        self._turn_bytes_of: dict[str, int] = {}
        """The same of each network."""
        self._unread_of: dict[str, int] = {}
        """Bytes of each network that wait here, or can wait behind us."""
        self.doomed: list[tuple[Session, Refusal]] = []
        """Connections that the relay must close when it is woken, which is soon."""

    def take(self) -> list[Effect]:
        """Return and forget everything gathered; a new turn begins."""
        effects, self._effects = self._effects, []
        self.add = self._effects.append
        self.turn += 1
        self._turn_bytes = 0
        self._turn_bytes_of.clear()
        return effects

    @property
    def unread_bytes(self) -> int:
        """Bytes that wait or may have to: here, behind us for slow readers, and large frames of this turn."""
        return self.stuck_bytes + self.waiting_bytes + self._turn_bytes

    def unread_bytes_of(self, network: str) -> int:
        """Return how much of ``unread_bytes`` is for readers of one network."""
        return self._unread_of.get(network, 0) + self._turn_bytes_of.get(network, 0)

    def make_room(self, session: Session, size: int) -> bool:
        """Return whether ``size`` bytes more may wait for a reader.

        If not, ``delivery`` closes the one whose bytes have waited longest, of all or of its network.
        """
        # Spec 8: 256 MiB wait for all connections together.
        limits, network = self._limits.now, session.network
        has_room = self.unread_bytes + size <= limits.buffered_bytes
        self.is_short = self.is_short or not has_room
        if not network or (session.state is State.PEER and not session.is_unnamed):
            return has_room
        # MERK-SLOW: keys and connections cost little, so those of one network leave room for others.
        unread_bytes = self.unread_bytes_of(network)
        has_share = not unread_bytes or unread_bytes + size <= limits.buffered_bytes // limits.buffered_network_part
        if not has_share:
            self.short_networks[network] = None
        return has_room and has_share

    def wait(self, session: Session, size: int) -> None:
        """Count bytes that wait here for a reader, or, below 0, that do no more."""
        self.waiting_bytes += size
        self._count_unread(session, size)

    def would_take(self, session: Session, size: int) -> bool:
        """Return whether ``takes`` would say yes; like it, ``make_room`` for what is large."""
        if session.congested or session.waiting or (size > SMALL_BYTES and not self.make_room(session, size)):
            return False
        return session.turn != self.turn or session.ahead_bytes + size <= self.ahead_bytes_max

    def takes(self, session: Session, size: int) -> bool:
        """Return whether ``size`` bytes may be handed over now, and count them if so.

        The first frame of a turn, or the first run, may have any size: a read brings less than the limit.
        """
        if session.congested or session.waiting:
            return False
        # Small frames are not worth the look: the limit per connection bounds them.
        if size > SMALL_BYTES and not self.make_room(session, size):
            return False
        return self.takes_next(session, size)

    def takes_next(self, session: Session, size: int) -> bool:
        """Return whether the next of the frames that wait for a connection may leave in this turn; count it if so."""
        ahead = session.ahead_bytes if session.turn == self.turn else 0
        # The first frame of a turn may be larger than what is left, else a large frame would never go.
        if ahead and ahead + size > self.ahead_bytes_max:
            return False
        session.turn, session.ahead_bytes = self.turn, ahead + size
        if size > SMALL_BYTES:
            self._turn_bytes += size
            self._turn_bytes_of[session.network] = self._turn_bytes_of.get(session.network, 0) + size
        return True

    def send(self, session: Session, frame: bytes) -> None:
        """Hand a frame over that ``takes`` has allowed."""
        self.add(make_send((session.peer, frame, False)))

    def send_many(self, session: Session, frames: Sequence[bytes]) -> None:
        """Hand frames over that ``takes`` has allowed, all of them together."""
        self.add(SendMany(session.peer, frames))

    def reply(self, session: Session, frame: bytes) -> None:
        """Send an answer of our own."""
        if session.state is State.CLOSED:
            return
        if session.congested:
            session.replies_bytes += len(frame)
            # A peer that asks and does not read is closed before its answers fill memory.
            if session.replies_bytes > self._limits.now.replies_bytes:
                self.doomed.append((session, Refusal.NOT_READING))
                return
            # Before that it is not read, which stops its questions.
            if session.replies_bytes > REPLIES_HELD_BYTES and not session.held:
                session.held = True
                self.add(Hold(session.peer, held=True))
        self.add(make_send((session.peer, frame, False)))

    def reply_many(self, session: Session, frames: Sequence[bytes]) -> None:
        """Send several answers of our own."""
        if session.congested:
            for frame in frames:
                self.reply(session, frame)
        elif session.state is not State.CLOSED:
            self.send_many(session, frames)

    def on_congested(self, session: Session, now: Instant) -> None:
        """Note that bytes wait, or that fewer wait than before."""
        if not session.congested:
            session.congested = True
            self.behind[session] = now
            self.behind_of.setdefault(session.network, {})[session] = now
            self.stuck_bytes += session.ahead_bytes
            self._count_unread(session, session.ahead_bytes)
        session.progress_at = now
        self.congested.pop(session, None)
        self.congested[session] = None

    def on_drained(self, session: Session) -> None:
        """Note that nothing waits any more."""
        if session.congested:
            session.congested = self.is_short = False
            del self.behind[session]
            of_network = self.behind_of[session.network]
            del of_network[session]
            if not of_network:
                del self.behind_of[session.network]
            self.short_networks.pop(session.network, None)
            self.stuck_bytes -= session.ahead_bytes
            self._count_unread(session, -session.ahead_bytes)
        session.ahead_bytes = 0
        session.replies_bytes = 0
        if session.held:
            session.held = False
            self.add(Hold(session.peer, held=False))
        self.congested.pop(session, None)

    def _count_unread(self, session: Session, size: int) -> None:
        unread_bytes = self._unread_of.get(session.network, 0) + size
        assert unread_bytes >= 0
        if unread_bytes:
            self._unread_of[session.network] = unread_bytes
        else:
            self._unread_of.pop(session.network, None)
            self.short_networks.pop(session.network, None)

    def close(self, session: Session, refusal: Refusal) -> None:
        """End a connection; the relay must forget the session."""
        # Who does not read would not read a Close frame either, and what waits for it would stay for as long as that.
        abort = refusal is Refusal.NOT_READING and session.congested
        self.add(Close(session.peer, refusal, abort=abort, status=refusal.status))
