"""The fast path: forwards a run of ordinary frames from one read with one effect.

The relay offers it what one read brought. The result is the same as that of ``routing`` frame by frame, at a lower
cost. Unusual frames take the slow path: a broken header, another sender key, an unknown location, a slow reader, or a
spent rate allowance. Every method starts at the front of a list and returns how many frames it handled.

Spec: specs/merk.md 3, 5, 6, 7.
"""

import struct
from collections.abc import Sequence
from typing import Final

from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.merk.infos import decode_forwards
from waystation.protocols.merk.messages import (
    HASH_BYTES,
    HEADER_BYTES,
    KEY_BYTES,
    MAGIC,
    MESSAGE_ID_BYTES,
    VERSION,
    DeliveryCode,
    Forward,
    InfoType,
    MessageType,
)
from waystation.protocols.merk.refusals import MalformedError
from waystation.protocols.merk.relay.lookups import Location
from waystation.protocols.merk.relay.notices import Notices
from waystation.protocols.merk.relay.routing import CARRIED, FORWARD_BYTES, Routing
from waystation.protocols.merk.session import FREE_BYTES, Session, State

__all__ = ["Runs"]

_MARK: Final = MAGIC << 8 | VERSION
_CARRIED_HEAD: Final = struct.Struct(">HBxI16x32s64x32s")  # magic and version, type, length, sender, target
_INFO_HEAD: Final = struct.Struct(">HBxI112xB")  # magic and version, type, length, subtype
_ENVELOPE: Final = struct.Struct(f">HBxI112xBB{MESSAGE_ID_BYTES}s{KEY_BYTES}s")
"""FORWARD: the same, then hop, id and origin, up to the frame inside."""
_NODE_INFO: Final = int(MessageType.NODE_INFO)
_FORWARD: Final = int(InfoType.FORWARD)
_FORWARDS: Final = int(InfoType.FORWARDS)
_DELIVERY: Final = int(InfoType.DELIVERY)
_CODE_AT: Final = HEADER_BYTES + 1
_TARGET_AT: Final = _CODE_AT + 1
_HASH_AT: Final = _TARGET_AT + KEY_BYTES
_NOTICE_BYTES: Final = _HASH_AT + HASH_BYTES


class Runs:
    """Runs of frames of clients and of peers."""

    def __init__(self, routing: Routing, notices: Notices, frame_bytes_max: int) -> None:
        """Take frames past ``routing``, outcomes to ``notices``; frames have at most ``frame_bytes_max`` bytes."""
        self._routing = routing
        self._notices = notices
        self._frame_bytes_max = frame_bytes_max

    def of_client(self, session: Session, frames: Sequence[bytes], start: int, now: Instant) -> int:
        """Send the frames from ``start`` on that a client has for one recipient whose place is known.

        Returns:
            How many were sent. Below 0: none, and so many must go the slow path.
        """
        identity, target = session.identity, b""
        if not self._routing.holds(session):
            return -1
        count = size = weighed = 0
        for at in range(start, len(frames)):
            frame = frames[at]
            frame_size = len(frame)
            if frame_size < _CARRIED_HEAD.size or frame_size > self._frame_bytes_max:
                break
            mark, kind, length, sender, aimed_at = _CARRIED_HEAD.unpack_from(frame)
            # The checks of the slow path in one look; whatever fails one of them goes there for its refusal.
            if mark != _MARK or kind not in CARRIED or length != frame_size - HEADER_BYTES or sender != identity:
                break
            if aimed_at != target:
                if count:
                    break
                target = aimed_at
            count += 1
            size += frame_size
            if frame_size > FREE_BYTES:
                weighed += frame_size
        if not count:
            return -1
        run = frames[start : start + count]
        return count if self._send(session, target, run, size, weighed, now) else -count

    def _send(
        self, session: Session, target: bytes, run: Sequence[bytes], size: int, weighed: int, now: Instant
    ) -> bool:
        routing = self._routing
        recipient = routing.clients.get(target)
        place = routing.lookups.place(target, now) if recipient is None else None
        if recipient is None and not (isinstance(place, Location) and place.node.state is State.PEER):
            return False
        # MERK-RENEW: the slow path asks for the recipient again, once.
        if isinstance(place, Location) and routing.lookups.is_to_be_renewed(target, place, now):
            return False
        taker = place.node if isinstance(place, Location) else recipient
        assert taker is not None
        # A slow reader or a full table needs the slow path's outcomes.
        if not routing.outbox.would_take(taker, size) or not routing.forwards.has_room(len(run), size):
            return False
        if taker is not recipient and max(map(len, run)) > taker.frame_bytes_max:
            return False
        # Spec 6: the whole run must be within the rate, else the slow path refuses frame by frame.
        if not session.affords_run(len(run), weighed, now):
            return False
        if taker is not recipient:
            routing.forwards.send_run(taker, session if session.wants_notices else None, target, run, now)
            return True
        routing.delivery.deliver_run(taker, run, size, now)
        if session.wants_notices:
            routing.delivery.notify_run(session, target, run)
        return True

    def of_peer(self, node: Session, messages: Sequence[bytes], start: int, now: Instant) -> int:
        """Take forwards and notices of a peer from ``start`` on.

        Returns:
            How many messages were taken; the one behind them must go the slow path.
        """
        arrivals = _Arrivals(self._routing, node, self._frame_bytes_max, now)
        at = start
        for at in range(start, len(messages)):
            data = messages[at]
            size = len(data)
            if size == _NOTICE_BYTES and self._take_notice(node, data, now):
                continue
            if size < _ENVELOPE.size:
                break
            mark, kind, length, subtype, hop, message_id, origin = _ENVELOPE.unpack_from(data)
            if mark != _MARK or kind != _NODE_INFO or length != size - HEADER_BYTES:
                break
            if subtype == _FORWARDS and node.gathers_notices:
                if not arrivals.take_many(data):
                    break
            elif (
                subtype != _FORWARD
                or hop != 1
                or origin != node.identity
                or not arrivals.take(message_id, data[_ENVELOPE.size :])
            ):
                break
        else:
            at = len(messages)
        arrivals.hand_over()
        return at - start

    def _take_notice(self, node: Session, data: bytes, now: Instant) -> bool:
        """Take a notice of success, which ends a flight; any other code may have the frame sent again."""
        mark, kind, length, subtype = _INFO_HEAD.unpack_from(data)
        if mark != _MARK or kind != _NODE_INFO or length != _NOTICE_BYTES - HEADER_BYTES or subtype != _DELIVERY:
            return False
        if data[_CODE_AT] or not node.affords(_NOTICE_BYTES, now):
            return False
        self._notices.delivered(node, data[_TARGET_AT:_HASH_AT], data[_HASH_AT:], now)
        return True


class _Arrivals:
    """Ordinary frames of one peer, of which those for one client are handed over together."""

    __slots__ = ("_frame_bytes_max", "_frames", "_ids", "_node", "_now", "_origin", "_routing", "_sender", "_target")

    def __init__(self, routing: Routing, node: Session, frame_bytes_max: int, now: Instant) -> None:
        """Start with none."""
        self._routing = routing
        self._node = node
        self._frame_bytes_max = frame_bytes_max
        self._now = now
        self._origin = node.identity or b""
        self._target = self._sender = b""
        self._frames: list[bytes] = []
        self._ids: list[bytes] = []

    def take(self, message_id: bytes, frame: bytes) -> bool:
        """Note a frame that needs no second look; False when it must go the slow path."""
        routing, size = self._routing, len(frame)
        if not _CARRIED_HEAD.size <= size <= self._frame_bytes_max:
            return False
        mark, kind, length, sender, target = _CARRIED_HEAD.unpack_from(frame)
        if mark != _MARK or kind not in CARRIED or length != size - HEADER_BYTES or target not in routing.clients:
            return False
        # The ban list is asked once per run of one sender.
        if sender != self._sender and not routing.admits(PublicKey(sender)):
            return False
        number = message_id + self._origin
        if number in routing.seen or not self._node.affords(FORWARD_BYTES + size, self._now):
            return False
        self._sender = sender
        routing.seen.add(number, self._now)
        if target != self._target:
            self.hand_over()
            self._target = target
        self._frames.append(frame)
        self._ids.append(message_id)
        return True

    def take_many(self, data: bytes) -> bool:
        """Take a FORWARDS, each frame as if it had come alone; False when all of it must go the slow path."""
        try:
            run = decode_forwards(data, HEADER_BYTES)
        except MalformedError:
            return False
        if run.hop != 1 or run.origin != self._origin:
            return False
        for message_id, frame in run.frames:
            if not self.take(message_id, frame):
                self.hand_over()
                self._routing.arrived_in_run(self._node, Forward(1, message_id, run.origin, frame), self._now)
                # A lie may have closed the connection, behind which nothing is taken.
                if self._node.state is not State.PEER:
                    return False
        return True

    def hand_over(self) -> None:
        """Deliver what has been noted."""
        frames, ids, now = self._frames, self._ids, self._now
        if not frames:
            return
        self._frames, self._ids = [], []
        node, delivery, recipient = self._node, self._routing.delivery, self._routing.clients[self._target]
        size = sum(map(len, frames))
        assert node.link is not None
        node.link.frames_in += len(frames)
        node.link.bytes_in += size
        if self._routing.outbox.would_take(recipient, size):
            delivery.deliver_run(recipient, frames, size, now)
            if node.gathers_notices:
                delivery.gather(node, DeliveryCode.DELIVERED, ids)
            else:
                delivery.notify_run(node, self._target, frames)
            return
        for frame, message_id in zip(frames, ids, strict=True):
            name = message_id if node.gathers_notices else b""
            delivery.deliver(recipient, node, self._target, frame, now, name)
