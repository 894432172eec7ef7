"""Simulated Strata readers: they subscribe, read pages, lose connections, and resume with a cursor.

``StrataScenario`` starts them; each drives the real client machine. A *stay* begins with a subscription without a
cursor. Connections, clients and cursors may change during a stay; the received packets accumulate. They are observed at
its end and whenever the relay reports the end of history.
"""

import random
from collections import Counter
from typing import Any, Final

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.canonical import parse
from waystation.protocols.strata.client.events import (
    Event,
    HistoryEnded,
    PacketArrived,
    ProtocolFault,
    SubscriptionRefused,
    Violation,
)
from waystation.protocols.strata.client.machine import StrataClient
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import parse_packet_id
from waystation.sim.chance import Recurring, fork, spread
from waystation.sim.driver import Driver
from waystation.sim.observations import Unfulfilled
from waystation.sim.strata import observations as seen
from waystation.sim.strata.context import PROTOCOL, TYPES, StrataContext

__all__ = ["Reader"]

STALL_US: Final = 15 * MICROSECONDS_PER_SECOND
LONG_PAGE: Final = 500
SUBSCRIPTION: Final = "r"
DEPTH_MAX: Final = 65


class Reader:
    """One reader of one relay."""

    def __init__(
        self, context: StrataContext, rng: random.Random, host: str, number: int, relay: int, authors: list[str]
    ) -> None:
        """Make a reader; ``start`` lets it read.

        Args:
            context: Shared by all actors.
            rng: Source of its behaviour.
            host: Its address.
            number: Who it is in observations.
            relay: Number of the relay it reads.
            authors: DIDs that it may ask for.
        """
        self._context = context
        self._rng = rng
        self._host = host
        self._number = number
        self._relay = relay
        self._filters = _draw_filters(rng, authors, context.wall_s)
        self._live_only = rng.random() < 1 / 8 and not self._filters.descending
        self._page = 0 if self._live_only else context.plan.reader.page
        behaviour = context.plan.reader
        self._key = KeyPair.from_seed(rng.randbytes(32)) if rng.random() < behaviour.authenticates else None
        self._trusts = rng.random() < 1 / 3
        self._client: StrataClient
        self._driver: Driver[StrataClient] | None = None
        self._connection = 0
        """Number of the last connection."""
        self._is_leaving = False
        self._mangles = False
        self._is_history_over = False
        """Whether the relay itself has said that history is complete."""
        self.outcomes: Counter[str] = Counter()
        self._begin()

    @property
    def is_descending(self) -> bool:
        """Whether it reads backwards."""
        return self._filters.descending

    # Phases

    def start(self) -> None:
        """Connect, and let behaviour begin."""
        self.come()
        behaviour = self._context.plan.reader
        recurring = Recurring(self._context.schedule, self._rng, lambda: self._context.in_fault_phase)
        recurring.often(behaviour.drops, self._drop)
        recurring.often(behaviour.restarts, self._restart)
        recurring.often(behaviour.begins_anew, self._begin_anew)
        recurring.often(behaviour.mangles, self._mangle)
        recurring.often(behaviour.stalls, self._stall)

    def come(self) -> None:
        """Connect, unless connected."""
        if self._driver is None and not self._is_leaving:
            context = self._context
            world = context.worlds[self._relay]
            self._asked_on = -1
            self._connection = context.next_connection()
            self._driver = Driver(
                world,
                PROTOCOL,
                self._host,
                self._client,
                context.plan.link,
                self._on_turn,
                lambda _reason: self._on_end(),
                on_frame=self._on_frame,
                on_sent=self._on_sent,
            )
            self._driver.settle()

    def probe(self) -> None:
        """Read the rest in long pages."""
        if not self._live_only:
            self._page = LONG_PAGE
        self._drop()
        if self._filters.descending:
            self._begin()
        else:
            self._resume()
        self.come()

    def look(self) -> None:
        """Show what it has, now that it must have everything."""
        if self._driver is None or not self._is_complete:
            self._context.observe(Unfulfilled(f"reader {self._number} has not come to the end of history"))
        else:
            self._show(final=True)

    def leave(self) -> None:
        """Go for good."""
        self._is_leaving = True
        self._drop()

    # Behaviour

    def _drop(self) -> None:
        if self._driver is not None:
            self._driver.hang_up(abort=self._rng.random() < 1 / 2)

    def _restart(self) -> None:
        self._drop()
        self._resume()

    def _begin_anew(self) -> None:
        self._drop()
        self._begin()

    def _mangle(self) -> None:
        if not self._live_only and self._cursor is not None:
            self._mangles = True
            self._restart()
            self._mangles = False

    def _stall(self) -> None:
        if self._driver is not None:
            self._driver.stop_reading(1 + spread(self._rng, STALL_US))

    # Stays

    def _begin(self) -> None:
        """Forget everything and start at the edge of history."""
        self._got: set[bytes] = set()
        self._cursor: str | None = None
        self._received_at: int | None = None
        self._floor = -1 if self._live_only else 0
        self._promised = 0
        self._asked_on = -1
        self._resume()

    def _resume(self) -> None:
        """Go on with a client that knows nothing but the cursor."""
        context = self._context
        self._is_complete = False
        self._client = context.make_client(
            fork(self._rng), key_pair=self._key, keys_of=None if self._trusts else context.keys_of
        )
        self._client.set_wall(context.schedule.now, context.wall_us)
        cursor = self._cursor
        if cursor is not None and self._mangles:
            cursor = cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB")
        self._client.subscribe(
            SUBSCRIPTION,
            self._filters,
            context.schedule.now,
            cursor=cursor,
            received_at=self._received_at,
            # A limit of 0 begins with what is new, whatever the cursor says.
            limit=LONG_PAGE if self._live_only and cursor is not None else self._page,
        )

    def _show(self, *, final: bool) -> None:
        if self._floor >= 0:
            self._context.observe(
                seen.CaughtUp(
                    self._number,
                    self._relay,
                    self._filters,
                    self._floor,
                    self._promised,
                    frozenset(self._got),
                    final,
                )
            )

    # What the connection reports

    def _on_frame(self, data: bytes) -> None:
        """Look at the wire itself."""
        body = parse(data, DEPTH_MAX)
        assert isinstance(body, dict)
        if body["type"] == "EVENT":
            self._see(body, data, self._connection)
        elif body["type"] == "EOSE":
            self._is_history_over = not body["has_more"]
            if self._floor < 0:
                self._floor = self._context.worlds[self._relay].store.packets.newest_seq()
            self._context.observe(seen.PageEnded(self._number, self._connection, body["cursor"], body["has_more"]))

    def _on_sent(self, data: bytes) -> None:
        """Note what was asked for."""
        body = parse(data, DEPTH_MAX)
        assert isinstance(body, dict)
        if body["type"] == "SUBSCRIBE":
            self._is_history_over = False
            line = self._connection if self._driver is not None else 0
            if self._asked_on < 0:
                self._asked_on = line
                self._promised = len(self._context.oks[self._relay])
            self._context.observe(seen.Asked(self._number, self._relay, line, body["filters"].get("cursor")))

    def _on_turn(self) -> None:
        if events := self._client.take_events():
            for event in events:
                self._on_event(event)
            if self._driver is not None:
                self._driver.settle()

    def _on_event(self, event: Event) -> None:
        """Note packets and ends of history."""
        context = self._context
        if isinstance(event, PacketArrived):
            self._got.add(event.packet.packet_id)
            self.outcomes["read"] += 1
            if event.cursor is not None:
                self._cursor, self._received_at = event.cursor, event.received_at
            context.observe(seen.Taken(self._number, event.packet.packet_id, event.verified or self._trusts))
            leaves = context.plan.reader.leaves_mid_page
            if context.in_fault_phase and not self._is_history_over and self._rng.random() < leaves:
                self._rng.choice((self._drop, self._restart))()
        elif isinstance(event, HistoryEnded):
            self._cursor = event.cursor or self._cursor
            self._is_complete = not event.has_more
            if self._is_complete and self._is_history_over and not self._live_only:
                # A client that knows no EOSE of this relay takes 2 s of quiet for the end (13.2); that is a guess.
                self._show(final=False)
        elif isinstance(event, SubscriptionRefused):
            context.schedule.after(spread(self._rng, STALL_US), self._restart)
        elif isinstance(event, Violation | ProtocolFault):
            context.observe(seen.Blamed(self._number, type(event).__name__, event.detail))

    def _on_end(self) -> None:
        """Come back later."""
        self._driver = None
        self._is_complete = False
        if self._filters.descending and not self._is_leaving:
            self._begin()  # pages that go back never come to what was missed
        self._context.schedule.after(spread(self._rng, self._context.plan.reader.away_us), self.come)

    def _see(self, body: dict[str, Any], data: bytes, line: int) -> None:
        context, packet = self._context, body["packet"]
        packet_id = parse_packet_id(packet["packet_id"]) or b""
        row = context.worlds[self._relay].store.packets.packet(packet_id)
        expires_at = packet.get("expires_at")
        context.observe(
            seen.EventSeen(
                self._number,
                self._relay,
                line,
                packet_id,
                body["received_at"],
                body.get("cursor"),
                row.order_at if row is not None else -1,
                row.seq if row is not None else -1,
                context.is_genuine(packet_id, packet["author_id"], data),
                context.wall_s - expires_at if expires_at is not None else 0,
            )
        )


def _draw_filters(rng: random.Random, authors: list[str], wall_s: int) -> Filters:
    chosen = rng.sample(authors, rng.randint(1, len(authors))) if rng.random() < 1 / 3 else []
    types = rng.sample(TYPES, rng.randint(1, len(TYPES))) if rng.random() < 1 / 3 else []
    since = wall_s + rng.randrange(-60, 120) if rng.random() < 1 / 8 else None
    until = wall_s + rng.randrange(60, 600) if rng.random() < 1 / 8 else None
    return Filters(tuple(sorted(chosen)), tuple(sorted(types)), since, until, rng.random() < 1 / 6)
