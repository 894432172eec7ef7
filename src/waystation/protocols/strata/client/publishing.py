"""Publishes packets to a relay: each is numbered, sent, and ends in exactly one outcome.

The client machine passes packets and the relay's answers in. OK with ACCEPTED is the only success. QUEUED only extends
the wait. A rate-limited packet is sent again. ERROR is a refusal. Silence and a lost connection end as
``PublishUnknown``. Answers name our ``client_msg_id``; relays that do not echo it name the packet's id.
Spec: RFC-0004 3.4, 3.5, 6.1; specs/strata.md 10, 14.
"""

import random
from collections.abc import Callable
from typing import Any, Final

from waystation.core.alarms import Alarms
from waystation.core.errors import LocalError
from waystation.core.instant import Instant, after_ms
from waystation.protocols.strata.client.events import (
    Event,
    Limited,
    Published,
    PublishQueued,
    PublishRefused,
    PublishUnknown,
)
from waystation.protocols.strata.client.limits import LIMIT_RETRIES_MAX, limited_until
from waystation.protocols.strata.client.wire import downgrade_of, encode_publish, hash_in, integer_in, text_in
from waystation.protocols.strata.packet import Packet
from waystation.protocols.strata.wire import ID_CHARS_MAX

__all__ = ["PUBLISHES_MAX", "PUBLISH_BYTES_MAX", "Publishing"]

PUBLISHES_MAX: Final = 4_096  # ours; a relay checks at most 512 of one connection at a time
PUBLISH_BYTES_MAX: Final = 64 * 1_048_576
ANSWER_MS: Final = 10_000  # specs/strata.md 10
QUEUED_MS: Final = 60_000  # ours: how long a QUEUED packet may take to become ACCEPTED


class _Outgoing:
    """One packet on its way."""

    __slots__ = ("due", "frame", "msg_id", "packet_id", "retries", "sent_at", "waits")

    def __init__(self, msg_id: str, packet_id: bytes, frame: bytes) -> None:
        self.msg_id = msg_id
        self.packet_id = packet_id
        self.frame = frame
        self.sent_at: Instant | None = None
        self.due: Instant | None = None
        self.waits = False
        """Whether ``due`` is when to send again, not when to give up."""
        self.retries = 0


class Publishing:
    """The table of packets on their way; it writes into the outbox and the events of its client."""

    def __init__(
        self,
        rng: random.Random,
        transmit: Callable[[bytes], None],
        events: list[Event],
        alarms: Alarms,
        next_number: Callable[[], int],
    ) -> None:
        self._rng = rng
        self._transmit = transmit
        self._events = events
        self._alarms = alarms
        self._next_number = next_number
        self._table: dict[int, _Outgoing] = {}
        self._by_packet: dict[bytes, set[int]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        """Return how many packets have no outcome yet."""
        return len(self._table)

    def add(self, packet: Packet, now: Instant, *, sending: bool) -> str:
        """Take a packet; see ``StrataClient.publish``."""
        if len(self._table) >= PUBLISHES_MAX or self._bytes + len(packet.canonical) > PUBLISH_BYTES_MAX:
            raise LocalError("too many packets wait for this relay's answer")
        number = self._next_number()
        msg_id = f"p{number}"
        outgoing = _Outgoing(msg_id, packet.packet_id, encode_publish(packet.canonical, msg_id))
        self._table[number] = outgoing
        self._by_packet.setdefault(packet.packet_id, set()).add(number)
        self._bytes += len(outgoing.frame)
        if sending:
            self._send(number, outgoing, now)
        return msg_id

    def send_all(self, now: Instant) -> None:
        """Send every packet that was not sent on this connection."""
        for number, outgoing in self._table.items():
            if outgoing.sent_at is None and not outgoing.waits:
                self._send(number, outgoing, now)

    def lose(self) -> None:
        """Take the end of a connection: sent packets get no answer; waiting ones are sent on the next connection."""
        for number, outgoing in list(self._table.items()):
            if outgoing.sent_at is not None and not outgoing.waits:
                self._end(number)
                self._events.append(PublishUnknown(outgoing.msg_id, outgoing.packet_id))

    def forget(self, msg_id: str) -> bool:
        """Drop a packet without an outcome; return whether it was sent and not answered."""
        number = self._number_of(msg_id)
        if number is None:
            return False
        outgoing = self._table[number]
        self._end(number)
        return outgoing.sent_at is not None and not outgoing.waits

    def on_due(self, number: int, now: Instant, *, sending: bool) -> None:
        """Handle one packet whose alarm is due."""
        outgoing = self._table.get(number)
        if outgoing is None or outgoing.due is None:
            return
        if now < outgoing.due:
            self._alarms.set_by(number, outgoing.due)
        elif not outgoing.waits:
            self._end(number)
            self._events.append(PublishUnknown(outgoing.msg_id, outgoing.packet_id))
        else:
            outgoing.waits, outgoing.due, outgoing.sent_at = False, None, None
            if sending:
                self._send(number, outgoing, now)

    def on_ok(self, body: dict[str, Any], now: Instant) -> None:
        """Take OK; one that names another packet than we sent is no answer."""
        packet_id = hash_in(body, "packet_id")
        number = self._answered(text_in(body, "client_msg_id", ID_CHARS_MAX), packet_id)
        outgoing = self._table.get(number) if number is not None else None
        # An OK for another packet, or for one that was not sent, is no success.
        if number is None or outgoing is None or outgoing.packet_id != packet_id or outgoing.sent_at is None:
            return
        # Spec 10: QUEUED is not final.
        if body.get("status") != "ACCEPTED":
            outgoing.waits, outgoing.due = False, after_ms(outgoing.sent_at, QUEUED_MS)
            self._alarms.set_by(number, outgoing.due)
            self._events.append(PublishQueued(outgoing.msg_id))
            return
        self._end(number)
        duplicate, same = body.get("duplicate") is True, hash_in(body, "duplicate_of")
        latency_us = now - outgoing.sent_at
        self._events.append(Published(outgoing.msg_id, packet_id, duplicate, same, downgrade_of(body), latency_us))

    def on_error(self, body: dict[str, Any], msg_id: str | None, code: str, detail: str, now: Instant) -> bool:
        """Take ERROR and return whether it was about one of these packets."""
        number = self._answered(msg_id, hash_in(body, "packet_id"))
        if number is None and msg_id is None and len(self._table) == 1 and code != "unauthenticated":
            number = next(iter(self._table))  # no reference at all, as RFC-0004 3.5 allows
        outgoing = self._table.get(number) if number is not None else None
        if number is None or outgoing is None or outgoing.sent_at is None:
            return False
        retry_after_s = integer_in(body, "retry_after")
        # Spec 11: rate_limited: wait and send again.
        if code == "rate_limited" and outgoing.retries < LIMIT_RETRIES_MAX:
            waited_s, outgoing.due = limited_until(self._rng, retry_after_s, now)
            outgoing.waits, outgoing.retries = True, outgoing.retries + 1
            self._alarms.set_by(number, outgoing.due)
            self._events.append(Limited(waited_s, outgoing.msg_id, None))
            return True
        self._end(number)
        reason, max_bytes = text_in(body, "reason") or "", integer_in(body, "max_bytes")
        self._events.append(
            PublishRefused(outgoing.msg_id, outgoing.packet_id, code, detail, reason, retry_after_s, max_bytes)
        )
        return True

    def _send(self, number: int, outgoing: _Outgoing, now: Instant) -> None:
        # Spec 10: after 10 s silence is no success; the same bytes may be published again.
        outgoing.sent_at, outgoing.due = now, after_ms(now, ANSWER_MS)
        self._transmit(outgoing.frame)
        self._alarms.set_by(number, outgoing.due)

    def _answered(self, msg_id: str | None, packet_id: bytes | None) -> int | None:
        if msg_id is not None:
            # Spec 10: client_msg_id is echoed; answers to several PUBLISH come in any order.
            return self._number_of(msg_id)
        return min(self._by_packet.get(packet_id, ()), default=None) if packet_id is not None else None

    def _number_of(self, msg_id: str) -> int | None:
        number = int(msg_id[1:]) if msg_id[:1] == "p" and msg_id[1:].isascii() and msg_id[1:].isdecimal() else None
        return number if number in self._table else None

    def _end(self, number: int) -> None:
        outgoing = self._table.pop(number)
        self._bytes -= len(outgoing.frame)
        self._alarms.cancel(number)
        numbers = self._by_packet[outgoing.packet_id]
        numbers.discard(number)
        if not numbers:
            del self._by_packet[outgoing.packet_id]
