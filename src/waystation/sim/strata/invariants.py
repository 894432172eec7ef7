"""Invariants of a simulated Strata network, one checker class each.

``StrataScenario`` has each observation passed to them. The reference is simple: lists of created and acknowledged
packets, and a brute-force filter. Checkers see only observations, so a few tuples are enough to test each. Spec:
specs/strata.md 6, 7, 13, 15.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.packets import PacketRow
from waystation.protocols.strata.limits import DEFAULT_LIMITS
from waystation.protocols.strata.relay.subscription import PAGE_BYTES_MAX, PAGE_ROWS_MAX
from waystation.sim.disk import PACKETS, Row
from waystation.sim.invariants import ExceptLost, Invariant, Liveness
from waystation.sim.observations import DiskRefused, Sized
from waystation.sim.strata import observations as seen

__all__ = [
    "Converged",
    "Credit",
    "FairVerdict",
    "HistoryOrder",
    "NoGap",
    "NoRepeat",
    "OnlySigned",
    "PromiseKept",
    "ReceivedAt",
    "strata_invariants",
]

SEND_LATE_S: Final = 120  # an EVENT may wait so long behind a reader that stalls; it was alive when it was sent
REFUSED_LATE_US: Final = SEND_LATE_S * MICROSECONDS_PER_SECOND  # a verdict waits behind a stall, too
PACKET_BYTES_MAX: Final = 262_144
FRAME_BYTES: Final = 512  # ours: more than the envelope of an EVENT, or a reply, ever has
REPLIES_MAX: Final = DEFAULT_LIMITS.unread_replies + DEFAULT_LIMITS.pending_packets
CREDIT_BYTES: Final = (
    DEFAULT_LIMITS.ahead_bytes + PAGE_BYTES_MAX + 2 * PACKET_BYTES_MAX + FRAME_BYTES * (PAGE_ROWS_MAX + REPLIES_MAX)
)
SIGNERS: Final = "strata_signers"
KEY_EVENT: Final = "KEY_EVENT"
KEY_CODES: Final = ("invalid_signature", "key_expired", "key_revoked")
EMPTY: Final = ("connections", "subscriptions", "packets_under_way", "slow_readers")


class _ExceptLostKeys(ExceptLost):
    """Knows, too, whose keys a relay cannot know any more, because its disk has lost a key event or a row about one."""

    def __init__(self) -> None:
        super().__init__()
        self._key_events: dict[bytes, str] = {}
        """Authors by id of their key event."""

    def _on_made(self, made: seen.Made, now: Instant) -> None:  # noqa: ARG002
        if made.content_type == KEY_EVENT:
            self._key_events[made.packet_id] = made.author_id

    def has_lost_key(self, relay: int, author_id: str = "") -> bool:
        """Return whether a relay lost a key of this author, or any when it is empty."""
        return any(
            row.key.startswith(author_id.encode())
            if row.table == SIGNERS
            else self._key_events.get(row.key, "none").startswith(author_id)
            for row in self._lost.get(relay, ())
            if row.table == SIGNERS or row.key in self._key_events
        )


class PromiseKept(ExceptLost):
    """A packet that got OK is stored at that instant, after every restart, and at the end, unless the disk lost it.

    No plan gives so little space that packets fill it, so whatever key events others publish, nothing is dropped.
    """

    name = "promise-kept"

    def __init__(self) -> None:
        super().__init__()
        self._promised: dict[int, dict[bytes, None]] = {}

    def _on_published(self, published: seen.Published, now: Instant) -> None:  # noqa: ARG002
        if self.has_lost(published.relay, Row(PACKETS, published.packet_id)):
            return
        if not published.is_stored:
            raise self.broken(f"relay {published.relay} said OK to {published.packet_id.hex()} and has not stored it")
        self._promised.setdefault(published.relay, {})[published.packet_id] = None

    def _on_stored(self, stored: seen.Stored, now: Instant) -> None:  # noqa: ARG002
        kept = {packet.packet_id for packet in stored.packets}
        for packet_id in self._promised.get(stored.relay, {}):
            if packet_id not in kept and not self.has_lost(stored.relay, Row(PACKETS, packet_id)):
                raise self.broken(f"relay {stored.relay} has lost {packet_id.hex()}, to which it had said OK")


class OnlySigned(Invariant):
    """Only what somebody made is stored, delivered, or handed on, byte for byte, and nothing that has expired."""

    name = "only-signed"

    def __init__(self, relay_ids: Sequence[str]) -> None:
        """Let the relays in ``relay_ids`` make descriptors."""
        self._relay_ids = relay_ids
        self._made: dict[bytes, bytes] = {}

    def _on_made(self, made: seen.Made, now: Instant) -> None:  # noqa: ARG002
        self._made[made.packet_id] = made.canonical

    def _on_stored(self, stored: seen.Stored, now: Instant) -> None:  # noqa: ARG002
        for packet in stored.packets:
            announced = packet.author_id in self._relay_ids and packet.content_type == "RELAY_DESCRIPTOR"
            if self._made.get(packet.packet_id) != packet.canonical and not announced:
                raise self.broken(f"relay {stored.relay} has stored {packet.packet_id.hex()}, which nobody made")

    def _on_event(self, event: seen.EventSeen, now: Instant) -> None:  # noqa: ARG002
        if not event.is_signed:
            raise self.broken(f"reader {event.reader} got {event.packet_id.hex()}, which nobody made")
        if event.late_s > SEND_LATE_S:
            raise self.broken(f"reader {event.reader} got {event.packet_id.hex()} {event.late_s} s after its end")

    def _on_taken(self, taken: seen.Taken, now: Instant) -> None:  # noqa: ARG002
        if not taken.verified:
            raise self.broken(f"the client of reader {taken.reader} handed on {taken.packet_id.hex()} unverified")

    def _on_blamed(self, blamed: seen.Blamed, now: Instant) -> None:  # noqa: ARG002
        raise self.broken(f"the client of reader {blamed.reader} found a {blamed.kind}: {blamed.detail}")


class FairVerdict(_ExceptLostKeys):
    """A packet that is as it must be is refused for a limit, for its expiry, or for a key that was replaced.

    A relay whose disk refuses says so, and only then. One whose disk has lost a key of an author cannot know it.
    """

    name = "fair-verdict"

    def __init__(self) -> None:
        super().__init__()
        self._expires: dict[bytes, int | None] = {}
        self._authors: dict[bytes, str] = {}
        self._refused_at: dict[int | str, Instant] = {}

    def _on_disk_refused(self, refused: DiskRefused, now: Instant) -> None:
        self._refused_at[refused.node] = now

    def _on_made(self, made: seen.Made, now: Instant) -> None:
        super()._on_made(made, now)
        self._expires[made.packet_id] = made.expires_at
        self._authors[made.packet_id] = made.author_id

    def _on_refused(self, refused: seen.Refused, now: Instant) -> None:
        expires_at = self._expires[refused.packet_id]
        if refused.detail == "expired" and expires_at is not None and refused.wall_s >= expires_at:
            return
        if refused.code in KEY_CODES and self.has_lost_key(refused.relay, self._authors[refused.packet_id]):
            return
        refused_at = self._refused_at.get(refused.relay)
        if refused.detail == seen.NOT_STORED and refused_at is not None and now - refused_at <= REFUSED_LATE_US:
            return
        if refused.code in {"key_expired", "key_revoked"} and refused.rotated:
            return
        raise self.broken(
            f"relay {refused.relay} refused {refused.packet_id.hex()}: {refused.code} {refused.detail}".rstrip()
        )


class NoGap(ExceptLost):
    """A reader that got the end of history has everything that was promised before it asked, and in the end all.

    In the end it has what the filter, applied to the store by brute force, gives, and nothing besides.
    """

    name = "no-gap"

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[bytes, seen.Made] = {}
        self._oks: dict[int, list[bytes]] = {}
        self._stored: dict[int, tuple[PacketRow, ...]] = {}

    def _on_made(self, made: seen.Made, now: Instant) -> None:  # noqa: ARG002
        self._made[made.packet_id] = made

    def _on_published(self, published: seen.Published, now: Instant) -> None:  # noqa: ARG002
        self._oks.setdefault(published.relay, []).append(published.packet_id)

    def _on_stored(self, stored: seen.Stored, now: Instant) -> None:  # noqa: ARG002
        if stored.final:
            self._stored[stored.relay] = stored.packets

    def _on_caught_up(self, caught_up: seen.CaughtUp, now: Instant) -> None:  # noqa: ARG002
        if caught_up.final:
            self._compare(caught_up)
            return
        for packet_id in self._oks.get(caught_up.relay, [])[: caught_up.promised]:
            is_lost = self.has_lost(caught_up.relay, Row(PACKETS, packet_id))
            if packet_id not in caught_up.got and not is_lost and self._is_wanted(packet_id, caught_up):
                raise self.broken(f"reader {caught_up.reader} got the end of history and lacks {packet_id.hex()}")

    def _compare(self, caught_up: seen.CaughtUp) -> None:
        for packet in self._stored[caught_up.relay]:
            is_owed = packet.seq > caught_up.floor and self._is_wanted(packet.packet_id, caught_up)
            if is_owed and packet.packet_id not in caught_up.got:
                raise self.broken(f"reader {caught_up.reader} never got {packet.packet_id.hex()}, number {packet.seq}")
        for packet_id in sorted(caught_up.got):
            made = self._made.get(packet_id)
            if made is not None and not caught_up.filters.match(made.author_id, made.content_type, made.timestamp):
                raise self.broken(f"reader {caught_up.reader} got {packet_id.hex()}, for which it did not ask")

    def _is_wanted(self, packet_id: bytes, caught_up: seen.CaughtUp) -> bool:
        """Return whether the filter matches a packet that never expires."""
        made = self._made.get(packet_id)
        return (
            made is not None
            and made.expires_at is None
            and caught_up.filters.match(made.author_id, made.content_type, made.timestamp)
        )


class NoRepeat(ExceptLost):
    """A packet comes once per connection, and not again behind a cursor that it is behind (13.1, 13.2).

    One that a disk lost may have been stored again, as a new one.

    What came live, without a cursor, while history was cut short may come again on the next connection.
    """

    name = "no-repeat"

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[int, _Row] = {}

    def _on_asked(self, asked: seen.Asked, now: Instant) -> None:  # noqa: ARG002
        row = self._rows.setdefault(asked.reader, _Row())
        known = asked.cursor is not None and asked.cursor in row.places
        if not known:
            self._rows[asked.reader] = row = _Row()
        elif asked.line != row.line:
            assert asked.cursor is not None
            row.behind = set(row.ids[: row.places[asked.cursor]])
            row.on_line = set()
        row.line = asked.line

    def _on_event(self, event: seen.EventSeen, now: Instant) -> None:  # noqa: ARG002
        row = self._rows[event.reader]
        if event.packet_id in row.on_line:
            raise self.broken(f"reader {event.reader} got {event.packet_id.hex()} twice on one connection")
        if event.packet_id in row.behind and not self.has_lost(event.relay, Row(PACKETS, event.packet_id)):
            raise self.broken(f"reader {event.reader} got {event.packet_id.hex()}, which its cursor is past")
        row.on_line.add(event.packet_id)
        if event.cursor is not None:
            row.ids.append(event.packet_id)
            row.places[event.cursor] = len(row.ids)

    def _on_page_ended(self, ended: seen.PageEnded, now: Instant) -> None:  # noqa: ARG002
        row = self._rows[ended.reader]
        row.places[ended.cursor] = len(row.ids)


class _Row:
    """What one reader got, in order, since it last asked without a cursor that we know."""

    def __init__(self) -> None:
        self.line = 0
        self.ids: list[bytes] = []
        """Ids of packets that came with a cursor."""
        self.places: dict[str, int] = {}
        """How many of them are behind a cursor."""
        self.behind: set[bytes] = set()
        self.on_line: set[bytes] = set()


class HistoryOrder(Invariant):
    """History comes by ``(order_at, seq)``, then what came late by ``seq``, then everything new by ``seq``."""

    name = "history-order"

    def __init__(self, descending: Sequence[bool]) -> None:
        """Know which readers read backwards."""
        self._descending = descending
        self._lines: dict[int, _Order] = {}

    def _on_asked(self, asked: seen.Asked, now: Instant) -> None:  # noqa: ARG002
        order = self._lines.get(asked.reader)
        if order is None or order.line != asked.line or asked.cursor is None:
            self._lines[asked.reader] = _Order(asked.line)

    def _on_page_ended(self, ended: seen.PageEnded, now: Instant) -> None:  # noqa: ARG002
        self._lines[ended.reader].complete |= not ended.has_more

    def _on_event(self, event: seen.EventSeen, now: Instant) -> None:  # noqa: ARG002
        order, place = self._lines[event.reader], (event.order_at, event.seq)
        if event.seq < 0:
            return  # only-signed speaks of packets that are not in the store
        if event.cursor is None or order.complete:
            if event.seq <= order.newest:
                raise self.broken(f"reader {event.reader} got number {event.seq} behind {order.newest}")
            order.newest = event.seq
        elif self._descending[event.reader]:
            if order.place is not None and place >= order.place:
                raise self.broken(f"reader {event.reader} reads backwards and got {place} behind {order.place}")
            order.place = place
        elif not order.in_b and (order.place is None or place > order.place):
            order.place = place
        else:
            if order.in_b and event.seq <= order.late:
                raise self.broken(f"reader {event.reader} got {place} behind {order.place} and {order.late}")
            order.in_b, order.late = True, event.seq


class _Order:
    """How far one connection of a reader has come."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.complete = False
        self.place: tuple[int, int] | None = None
        self.in_b = False
        self.late = -1
        self.newest = -1


class _Upstreams(_ExceptLostKeys, ABC):
    """Compares in the end what every relay has stored with what the relay that it reads has.

    A relay that has lost a key takes its upstream for a forger, and is left out.
    """

    def __init__(self, upstreams: Sequence[int | None]) -> None:
        """Know which relay reads which."""
        super().__init__()
        self._upstreams = upstreams
        self._mortal: set[bytes] = set()
        """What may have expired before an upstream could send it."""
        self._stored: dict[int, dict[bytes, PacketRow]] = {}

    def _on_made(self, made: seen.Made, now: Instant) -> None:
        super()._on_made(made, now)
        if made.expires_at is not None:
            self._mortal.add(made.packet_id)

    def _on_stored(self, stored: seen.Stored, now: Instant) -> None:  # noqa: ARG002
        if not stored.final:
            return
        self._stored[stored.relay] = {packet.packet_id: packet for packet in stored.packets}
        if len(self._stored) == len(self._upstreams):
            for relay, upstream in enumerate(self._upstreams):
                if not self.has_lost_key(relay):
                    self._judge(relay, self._stored[upstream] if upstream is not None else {})

    @abstractmethod
    def _judge(self, relay: int, theirs: dict[bytes, PacketRow]) -> None:
        """Compare one relay with ``theirs``, what its upstream has stored."""


class ReceivedAt(_Upstreams):
    """A relay sends one ``received_at`` for a packet: its own, or an earlier one of a relay that it reads."""

    name = "received-at"

    def __init__(self, upstreams: Sequence[int | None]) -> None:
        """Know which relay reads which."""
        super().__init__(upstreams)
        self._sent_times: dict[tuple[int, bytes], set[int]] = {}

    def _on_event(self, event: seen.EventSeen, now: Instant) -> None:  # noqa: ARG002
        self._sent_times.setdefault((event.relay, event.packet_id), set()).add(event.received_at)

    def _judge(self, relay: int, theirs: dict[bytes, PacketRow]) -> None:
        for packet_id, packet in self._stored[relay].items():
            if self.has_anybody_lost(Row(PACKETS, packet_id)):
                continue  # it was received again, later
            times = {packet.order_at, *({theirs[packet_id].order_at} if packet_id in theirs else ())}
            sent = self._sent_times.get((relay, packet_id), set()) | {packet.received_at}
            if not sent <= times:
                raise self.broken(
                    f"relay {relay} sent {sorted(sent)} about {packet_id.hex()}, stored at {sorted(times)}"
                )
            if packet.received_at != min(times) and packet_id not in self._mortal:
                raise self.broken(
                    f"relay {relay} says {packet.received_at} of {packet_id.hex()}, its upstream saw it at {min(times)}"
                )


class Converged(_Upstreams):
    """In the end a relay has everything that the relay it reads has; two that read each other have the same."""

    name = "converged"

    def _judge(self, relay: int, theirs: dict[bytes, PacketRow]) -> None:
        lacking = theirs.keys() - self._stored[relay].keys() - self._mortal
        missing = sorted(each for each in lacking if not self.has_lost(relay, Row(PACKETS, each)))
        if missing:
            raise self.broken(f"relay {relay} lacks {len(missing)} of its upstream, first {missing[0].hex()}")


class Credit(Invariant):
    """No peer has more bytes waiting at a relay than the named limits allow, and nothing is left of who has left."""

    name = "credit"

    def _on_sized(self, sized: Sized, now: Instant) -> None:  # noqa: ARG002
        if sized.facts["unsent_bytes_peak"] > CREDIT_BYTES:
            raise self.broken(f"relay {sized.node} let {sized.facts['unsent_bytes_peak']} bytes wait for one peer")
        left = {name: sized.sizes[name] for name in EMPTY if sized.sizes.get(name)}
        if sized.settled and left:
            raise self.broken(f"everybody has left relay {sized.node}, and there is still {left}")


def strata_invariants(
    relay_ids: Sequence[str], upstreams: Sequence[int | None], descending: Sequence[bool]
) -> list[Invariant]:
    """Return all laws of a Strata world.

    Args:
        relay_ids: DIDs of its relays.
        upstreams: For each relay the number of the honest one that it reads.
        descending: For each reader whether it reads backwards.
    """
    return [
        PromiseKept(),
        OnlySigned(relay_ids),
        FairVerdict(),
        NoGap(),
        NoRepeat(),
        HistoryOrder(descending),
        ReceivedAt(upstreams),
        Converged(upstreams),
        Credit(),
        Liveness(),
    ]
