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
from waystation.protocols.merk.messages import (
    HASH_BYTES,
    HEADER_BYTES,
    KEY_BYTES,
    MAGIC,
    MESSAGE_ID_BYTES,
    VERSION,
    DeliveryCode,
    InfoType,
    MessageType,
)
from waystation.protocols.merk.relay.lookups import Location
from waystation.protocols.merk.relay.notices import Notices
from waystation.protocols.merk.relay.routing import CARRIED, Routing
from waystation.protocols.merk.session import FREE_BYTES, Session, State

__all__ = ["Runs"]

_MARK: Final = MAGIC << 8 | VERSION
_CARRIED_HEAD: Final = struct.Struct(">HBxI16x32s64x32s")  # magic and version, type, length, sender, target
_INFO_HEAD: Final = struct.Struct(">HBxI112xB")  # magic and version, type, length, subtype
_ENVELOPE: Final = struct.Struct(f">HBxI112xBB{MESSAGE_ID_BYTES}s{KEY_BYTES}sHBxI16x32s64x32s")
"""FORWARD: the same, then hop, id, origin, and the head of the frame inside."""
_FRAME_AT: Final = _ENVELOPE.size - _CARRIED_HEAD.size
_NODE_INFO: Final = int(MessageType.NODE_INFO)
_FORWARD: Final = int(InfoType.FORWARD)
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
        routing = self._routing
        clients, seen, largest = routing.clients, routing.seen, _FRAME_AT + self._frame_bytes_max
        target = sender = b""
        frames: list[bytes] = []
        ids: list[bytes] = []
        at = start
        for at in range(start, len(messages)):
            data = messages[at]
            size = len(data)
            if size == _NOTICE_BYTES and self._take_notice(node, data, now):
                continue
            if not _ENVELOPE.size <= size <= largest:
                break
            mark, kind, length, subtype, hop, message_id, origin, *inner = _ENVELOPE.unpack_from(data)
            if mark != _MARK or kind != _NODE_INFO or length != size - HEADER_BYTES or subtype != _FORWARD:
                break
            frame_mark, frame_kind, frame_length, sent_by, aimed_at = inner
            if hop != 1 or origin != node.identity or frame_mark != _MARK or frame_kind not in CARRIED:
                break
            if frame_length != size - _FRAME_AT - HEADER_BYTES or aimed_at not in clients:
                break
            # The ban list is asked once per run of one sender.
            if sent_by != sender and not routing.admits(PublicKey(sent_by)):
                break
            number = message_id + origin
            if number in seen or not node.affords(size, now):
                break
            sender = sent_by
            seen.add(number, now)
            if aimed_at != target:
                self._deliver(node, target, frames, ids, now)
                target, frames, ids = aimed_at, [], []
            frames.append(data[_FRAME_AT:])
            ids.append(message_id)
        else:
            at = len(messages)
        self._deliver(node, target, frames, ids, now)
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

    def _deliver(self, node: Session, target: bytes, frames: list[bytes], ids: list[bytes], now: Instant) -> None:
        """Hand over the frames of a run, whose ids are those of their envelopes."""
        if not frames:
            return
        delivery, recipient = self._routing.delivery, self._routing.clients[target]
        size = sum(map(len, frames))
        assert node.link is not None
        node.link.frames_in += len(frames)
        node.link.bytes_in += size
        if self._routing.outbox.would_take(recipient, size):
            delivery.deliver_run(recipient, frames, size, now)
            if node.gathers_notices:
                delivery.gather(node, DeliveryCode.DELIVERED, ids)
            else:
                delivery.notify_run(node, target, frames)
            return
        for frame, message_id in zip(frames, ids, strict=True):
            delivery.deliver(recipient, node, target, frame, now, message_id if node.gathers_notices else b"")
