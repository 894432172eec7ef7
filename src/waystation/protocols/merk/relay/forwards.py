"""The table of frames that were forwarded to other nodes and are not answered yet.

``routing`` adds a frame and passes the other node's answer in. A peer node gets each frame in an envelope with a unique
number and answers with a notice, which names the number where the peer understands DELIVERIES, and else the hash of the
frame. If the notice says that the client has left, the frame may be sent to another node. If
no notice arrives in time, the frame is not sent again, as it may have arrived; the sender gets a time-out. A reference
relay gets the bare frame and never answers.

Spec: specs/merk.md 5, 7, 10.3, 10.7; MERK-FORWARD, MERK-NOTICES.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from waystation.core.instant import Instant, after_ms
from waystation.core.settings import InForce
from waystation.protocols.merk import wire
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.messages import (
    FORWARDS_MAX,
    HEADER_BYTES,
    LENGTH_AT,
    LENGTH_BYTES,
    MESSAGE_ID_BYTES,
    Forward,
    ForwardRun,
)
from waystation.protocols.merk.relay.outbox import Outbox
from waystation.protocols.merk.session import ORIGINALS, Flight, Sending, Session, State

__all__ = ["Forwards", "SeenIds", "sending_of"]

ANSWER_MS: Final = 5_000  # as long as a look-up
SEEN_MS: Final = 120_000  # spec 8
LINK_EXTRA_BYTES: Final = 256  # spec 10.5: what a message between nodes may have beyond the largest frame
_BOOT_BYTES: Final = 8
_SIZE_BYTES: Final = 4  # spec 7, FORWARDS: of each frame
_PART_BYTES: Final = MESSAGE_ID_BYTES + _SIZE_BYTES
_NUMBER_BYTES: Final = MESSAGE_ID_BYTES - _BOOT_BYTES
_UNTIL: Final = 0  # places in a ``Flight``
_TARGET: Final = 2
_FRAME: Final = 3


class Forwards:
    """All frames that went to other nodes, and those that wait for a slow link."""

    def __init__(self, outbox: Outbox, node_key: bytes, boot: bytes, limits: InForce[MerkLimits]) -> None:
        """Start with nothing under way.

        Args:
            outbox: Where frames go.
            node_key: Our own key.
            boot: 8 bytes that no other life of this node has used.
            limits: How much may be under way.
        """
        assert len(boot) == _BOOT_BYTES
        self._outbox = outbox
        self._limits = limits
        self._node_key = node_key
        empty = wire.encode_info_frame(Forward(1, bytes(MESSAGE_ID_BYTES), node_key, b""), node_key)
        self._envelope_bytes = len(empty) - HEADER_BYTES
        self._before_size = empty[:LENGTH_AT]
        self._behind_size = empty[LENGTH_AT + LENGTH_BYTES : HEADER_BYTES + 2]
        """Two halves of every envelope's beginning, up to the id."""
        bundle = wire.encode_info_frame(ForwardRun(1, node_key, ((bytes(MESSAGE_ID_BYTES), b""),)), node_key)
        self._bundle_bytes = len(bundle) - _PART_BYTES
        self._bundle_head = bundle[LENGTH_AT + LENGTH_BYTES : self._bundle_bytes - 1]
        """Of every FORWARDS, from behind its length up to the number of its frames."""
        self._boot = boot
        self._sent = 0
        self._due: deque[tuple[Instant, Session, list[bytes]]] = deque()
        """When which frames of which node must have been answered, oldest first; many have been.

        Frames that left together are the youngest first, so that the oldest can be taken off the end.
        """
        self._count = 0
        self._bytes = 0
        self._slow: dict[Session, None] = {}
        """Nodes with frames that wait."""
        self._ready: dict[Session, None] = {}
        """Those of them that are not known to be congested."""

    def __len__(self) -> int:
        """Return how many frames are under way."""
        return self._count

    @property
    def carried_bytes(self) -> int:
        """Bytes of the frames under way."""
        return self._bytes

    def has_room(self, count: int, size: int) -> bool:
        """Return whether so many frames more, ``size`` bytes together, may be under way."""
        limits = self._limits.now
        return self._count + count <= limits.forwards and self._bytes + size <= limits.forward_bytes

    def send(self, node: Session, sending: Sending, now: Instant) -> bool | None:
        """Send a frame to a node.

        Returns:
            True when no outcome will come, None when one will, False when there is no room.
        """
        size = len(sending.frame)
        # Spec 8: 65,536 frames and 128 MiB under way to nodes.
        if not self.has_room(1, size):
            return False
        if self._outbox.takes(node, size):
            self._send(node, sending, now)
        # Spec 8: 16 MiB wait for one slow node.
        elif node.state in ORIGINALS or node.waiting_bytes + size > self._limits.now.waiting_bytes_per_node:
            return False  # an original sends no outcome, so none may be sent before its frame has left
        else:
            sending.until = after_ms(now, ANSWER_MS)
            node.waiting.append(sending)
            node.waiting_bytes += size
            self._outbox.wait(node, size)
            self._count += 1
            self._bytes += size
            self._slow[node] = None
            if not node.congested:
                self._ready[node] = None
        return True if node.state in ORIGINALS else None

    def send_run(
        self, node: Session, session: Session | None, target: bytes, frames: Sequence[bytes], now: Instant
    ) -> None:
        """Send frames to a peer that takes them all; there is room for them.

        Args:
            node: A peer of ours.
            session: The connection that gets their outcomes; None for none.
            target: The recipient of all of them.
            frames: As they came.
            now: Monotonic time.
        """
        size = sum(map(len, frames))
        taken = self._outbox.takes(node, size)
        assert taken
        until = after_ms(now, ANSWER_MS)
        ids = self._new_ids(len(frames))
        names = ids if node.gathers_notices else [wire.frame_hash(frame) for frame in frames]
        self._fly(node, until, names, [(until, session, target, frame, 0) for frame in frames])
        self._bytes += size
        self._count_out(node, len(frames), size)
        if node.gathers_notices and len(frames) > 1:
            # Spec 7: FORWARDS; it is framed, masked and read once for all of them.
            self._outbox.send_many(node, self._bundle(node, ids, frames))
            return
        # Spec 7: FORWARD has the whole frame inside.
        heads = {size: self._head(size) for size in dict.fromkeys(map(len, frames))}
        envelopes = [
            b"".join((heads[len(frame)], message_id, self._node_key, frame))
            for message_id, frame in zip(ids, frames, strict=True)
        ]
        self._outbox.send_many(node, envelopes)

    def _bundle(self, node: Session, ids: Sequence[bytes], frames: Sequence[bytes]) -> list[bytes]:
        """Return frames in as few FORWARDS as may be: of 240 frames each, and no larger than what the node takes."""
        most, bundles = node.frame_bytes_max + LINK_EXTRA_BYTES, []
        pieces: list[bytes] = []
        count, size = 0, self._bundle_bytes
        for message_id, frame in zip(ids, frames, strict=True):
            part_bytes = _PART_BYTES + len(frame)
            if count == FORWARDS_MAX or (count and size + part_bytes > most):
                bundles.append(self._seal(count, size, pieces))
                pieces, count, size = [], 0, self._bundle_bytes
            pieces += (message_id, len(frame).to_bytes(_SIZE_BYTES, "big"), frame)
            count, size = count + 1, size + part_bytes
        bundles.append(self._seal(count, size, pieces))
        return bundles

    def _seal(self, count: int, size: int, pieces: list[bytes]) -> bytes:
        """Return the FORWARDS of ``size`` bytes that carries so many frames."""
        length = (size - HEADER_BYTES).to_bytes(LENGTH_BYTES, "big")
        return b"".join((self._before_size, length, self._bundle_head, bytes((count,)), *pieces))

    def answered(self, node: Session, target: bytes, frame_hash: bytes) -> Flight | None:
        """Return the oldest frame that a node's notice is about, None when it has nothing of that kind."""
        flight = node.flights.get(frame_hash)
        # A notice counts for a frame that this very node was sent.
        if flight is None or flight[_TARGET] != target:
            return None
        self._land(node, frame_hash, flight)
        return flight

    def answered_many(self, node: Session, message_ids: Iterable[bytes]) -> list[Flight]:
        """Return the frames that a notice of many is about, without those that the node does not owe an answer for."""
        assert node.gathers_notices
        take = node.flights.pop
        flights = [flight for message_id in message_ids if (flight := take(message_id, None)) is not None]
        self._count -= len(flights)
        self._bytes -= sum(len(flight[_FRAME]) for flight in flights)
        return flights

    def release(self, node: Session, now: Instant) -> None:
        """Send what waits for a link, as far as it takes it."""
        self._ready.pop(node, None)
        while node.waiting and not node.congested:
            size = len(node.waiting[0].frame)
            if not self._outbox.takes_next(node, size):
                self._ready[node] = None
                return
            self._send(node, self._next_waiting(node), now)
        if not node.waiting:
            self._slow.pop(node, None)

    def lost(self, node: Session) -> tuple[list[Sending], list[Sending]]:
        """A link is over; return the frames that never left, and those that may have arrived."""
        unsent, sent = [], []
        while node.waiting:
            unsent.append(self._next_waiting(node))
        self._slow.pop(node, None)
        self._ready.pop(node, None)
        while node.flights:
            name, flight = next(iter(node.flights.items()))
            self._land(node, name, flight)
            sent.append(sending_of(flight))
        return unsent, sent

    def wake(self, now: Instant) -> list[tuple[Session, Sending]]:
        """Send what may leave; return the frames whose time is up, each with the node that it was for."""
        late = []
        while self._due and self._due[0][0] <= now:
            until, node, names = self._due.popleft()
            for name in reversed(names):
                flight = node.flights.get(name)
                if flight is not None and flight[_UNTIL] <= until:
                    self._land(node, name, flight)
                    # Spec 6: 3: the answer took longer than 5 s, and the frame may have arrived.
                    late.append((node, sending_of(flight)))
        for node in list(self._slow):
            while node.waiting and node.waiting[0].until <= now:
                late.append((node, self._next_waiting(node)))
        for node in list(self._ready):
            self.release(node, now)
        return late

    def deadline(self) -> Instant | None:
        """Return when ``wake`` has something to do."""
        if self._ready:
            return Instant(0)
        while self._due:
            _, node, names = self._due[0]
            while names and names[-1] not in node.flights:
                names.pop()
            if names:
                break
            self._due.popleft()
        due = [node.waiting[0].until for node in self._slow if node.waiting]
        if self._due:
            due.append(self._due[0][0])
        return min(due, default=None)

    def _next_waiting(self, node: Session) -> Sending:
        sending = node.waiting.popleft()
        size = len(sending.frame)
        node.waiting_bytes -= size
        self._outbox.wait(node, -size)
        self._count -= 1
        self._bytes -= size
        return sending

    def _send(self, node: Session, sending: Sending, now: Instant) -> None:
        frame = sending.frame
        self._count_out(node, 1, len(frame))
        if node.state is not State.PEER:
            self._outbox.send(node, frame)
            return
        until = after_ms(now, ANSWER_MS)
        (message_id,) = self._new_ids(1)
        name = message_id if node.gathers_notices else sending.frame_hash or wire.frame_hash(frame)
        self._fly(node, until, [name], [(until, sending.session, sending.target, frame, sending.denials)])
        self._bytes += len(frame)
        self._outbox.send(node, b"".join((self._head(len(frame)), message_id, self._node_key, frame)))

    def _count_out(self, node: Session, count: int, size: int) -> None:
        if node.link is not None:
            node.link.frames_out += count
            node.link.bytes_out += size

    def _new_ids(self, count: int) -> list[bytes]:
        """Return ids for so many forwards, unique over restarts: a number of this life, then a count."""
        first, boot = self._sent + 1, self._boot
        self._sent += count
        return [boot + number.to_bytes(_NUMBER_BYTES, "big") for number in range(first, first + count)]

    def _head(self, frame_bytes: int) -> bytes:
        """Return the beginning of the envelope of a frame of this size, up to the id."""
        size = (frame_bytes + self._envelope_bytes).to_bytes(LENGTH_BYTES, "big")
        return self._before_size + size + self._behind_size

    def _fly(self, node: Session, until: Instant, names: list[bytes], flights: Sequence[Flight]) -> None:
        """Note that frames leave for a node that will answer; the caller counts their bytes."""
        for name, flight in zip(names, flights, strict=True):
            # The same frame may be under way twice; notices by its hash then end the older one first.
            older = node.flights.setdefault(name, flight)
            if older is not flight:
                node.twins.setdefault(name, deque()).append(flight)
        self._due.append((until, node, names[::-1]))
        self._count += len(flights)

    def _land(self, node: Session, name: bytes, flight: Flight) -> None:
        """Take off the oldest flight of a frame to a node."""
        twins = node.twins.get(name)
        if twins is None:
            del node.flights[name]
        else:
            node.flights[name] = twins.popleft()
            if not twins:
                del node.twins[name]
        self._count -= 1
        self._bytes -= len(flight[_FRAME])


def sending_of(flight: Flight, frame_hash: bytes = b"") -> Sending:
    """Return a frame that has come back as one to be sent again or reported; its hash may be empty when unknown."""
    _, session, target, frame, denials = flight
    sending = Sending(session, target, frame, frame_hash)
    sending.denials = denials
    return sending


class SeenIds:
    """Numbers of forwarded frames that have come in: the newest, or all of two minutes if they are fewer.

    Two generations: the older one is forgotten when the younger one is full or two minutes old.
    """

    def __init__(self, limits: InForce[MerkLimits]) -> None:
        """Start empty."""
        self._limits = limits
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()
        self._until: Instant | None = None

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._young) + len(self._old)

    def __contains__(self, number: bytes) -> bool:
        """Return whether a number has been seen."""
        return number in self._young or number in self._old

    def add(self, number: bytes, now: Instant) -> None:
        """Remember a number."""
        if self._until is None:
            self._until = after_ms(now, SEEN_MS)
        elif len(self._young) >= self._limits.now.seen_forwards or self._until <= now:
            self._turn(now)
        self._young.add(number)

    def sweep(self, now: Instant) -> None:
        """Forget what is old."""
        if self._until is not None and self._until <= now:
            self._turn(now)

    def _turn(self, now: Instant) -> None:
        self._old, self._young = self._young, set()
        self._until = after_ms(now, SEEN_MS) if self._old else None
