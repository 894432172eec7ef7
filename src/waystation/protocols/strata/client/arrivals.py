"""Judges the packets that one relay sends: each new one is reported once, a bad one is blamed once or not at all.

The client machine passes each EVENT in and gets back whether it is settled, or whose key events are needed first. Key
events are learnt here at once, so that the next packet of the same read is judged by them.
Spec: RFC-0004 7; specs/strata.md 4.1, 18.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from waystation.protocols.strata.client.bad_packets import BadPackets
from waystation.protocols.strata.client.events import ClientEnd, Event, PacketArrived, PacketDropped, Violation
from waystation.protocols.strata.client.inspection import Fault, Inspected, KeysOf, inspect_packet
from waystation.protocols.strata.client.key_book import KEY_EVENT_TYPES, KeyBook
from waystation.protocols.strata.client.reading import Reading
from waystation.protocols.strata.client.seen_packets import SeenPackets
from waystation.protocols.strata.messages import Filters

__all__ = ["Arrival", "Arrivals"]


class Arrival(NamedTuple):
    """One EVENT of a subscription."""

    body: dict[str, Any]
    subscription_id: str | None
    filters: Filters | None
    number: int
    """Of the subscription."""
    received_at: int
    cursor: str | None
    wall_s: int
    """Our clock."""

    @classmethod
    def of(
        cls, body: dict[str, Any], reading: Reading | None, received_at: int, cursor: str | None, wall_s: int
    ) -> "Arrival":
        """Return what came for a subscription, or unsolicited for none."""
        if reading is None:
            return cls(body, None, None, 0, received_at, cursor, wall_s)
        return cls(body, reading.id, reading.filters, reading.number, received_at, cursor, wall_s)


class Arrivals:
    """What one relay has sent."""

    def __init__(
        self,
        events: list[Event],
        close: Callable[[ClientEnd], None],
        *,
        keys_of: KeysOf | None,
        book: KeyBook | None,
        deliver_unverified: bool,
        close_on_violation: bool,
    ) -> None:
        """Begin; ``events`` gets what happens and ``close`` ends the connection, the rest is as for the machine."""
        self._events = events
        self._close = close
        self._keys_of = keys_of
        self._book = book
        self._deliver_unverified = deliver_unverified
        self._close_on_violation = close_on_violation
        self._seen = SeenPackets()
        self._bad = BadPackets()

    def begin(self) -> None:
        """Take note of a new connection."""
        self._bad.begin()

    def inspect(self, arrival: Arrival) -> Inspected | Fault:
        """Check one packet; nothing is reported."""
        return inspect_packet(
            arrival.body, arrival.filters, arrival.received_at, arrival.wall_s, self._keys_of
        )  # fmt: skip

    def lacks_keys(self, inspected: Inspected | Fault) -> bool:
        """Return whether key events of the author may make the packet good."""
        is_signature = isinstance(inspected, Fault) and inspected.reason == "signature" and inspected.blame
        return is_signature and self._book is not None

    def settle(self, arrival: Arrival, inspected: Inspected | Fault, *, blames_keys: bool) -> bool:
        """Report or drop a packet; return whether it is new. Without ``blames_keys`` no signature is a violation."""
        if isinstance(inspected, Fault):
            if inspected.reason == "signature" and not blames_keys:
                self._events.append(PacketDropped(arrival.subscription_id, inspected.packet_id, "signature"))
            else:
                self._on_bad(inspected, arrival.body)
            return False
        packet, origin_type, downgrade, verified = inspected
        if not self._seen.is_new(arrival.number, packet.packet_id):
            return False
        if not verified and self._keys_of is not None and not self._deliver_unverified:
            self._events.append(PacketDropped(arrival.subscription_id, packet.packet_id, "unknown_author"))
            return True
        if self._book is not None:
            if packet.content_type in KEY_EVENT_TYPES:
                self._book.learn(packet, arrival.received_at)
            if self._book.check(packet, arrival.received_at) is not None:
                return True
        where = (arrival.received_at, arrival.cursor)
        self._events.append(PacketArrived(arrival.subscription_id, packet, *where, origin_type, downgrade, verified))
        return True

    def _on_bad(self, fault: Fault, body: dict[str, Any]) -> None:
        if fault.blame and self._bad.is_new(body.get("packet")):
            self._events.append(Violation(fault.reason, fault.detail, fault.packet_id))
            if self._close_on_violation and self._bad.ends_connection():
                self._close(ClientEnd[fault.reason.upper()])
