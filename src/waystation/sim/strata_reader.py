"""Readers of a simulated Strata world: they subscribe, turn pages, get lost, and come back with a cursor.

A *stay* is everything from a subscription without a cursor on: connections, clients and cursors change, what was got
stays. At its end, and whenever the relay says that history is complete, the reader tells what it has.
"""

import random
from collections import Counter
from typing import Any, Final

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.canonical import parse
from waystation.protocols.strata.client import StrataClient
from waystation.protocols.strata.client_events import (
    Event,
    HistoryEnded,
    PacketArrived,
    ProtocolFault,
    SubscriptionRefused,
    Violation,
)
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.packet import parse_packet_id
from waystation.sim import strata_observations as seen
from waystation.sim.chance import fork, spread
from waystation.sim.strata_commons import TYPES, StrataCommons
from waystation.sim.strata_line import Line

__all__ = ["Reader"]

HOUR_US: Final = 3_600 * MICROSECONDS_PER_SECOND
STALL_US: Final = 15 * MICROSECONDS_PER_SECOND
LONG_PAGE: Final = 500
SUBSCRIPTION: Final = "r"
DEPTH_MAX: Final = 65


class Reader:
    """One reader of one relay."""

    def __init__(
        self, commons: StrataCommons, rng: random.Random, host: str, number: int, relay: int, authors: list[str]
    ) -> None:
        """Make a reader; ``start`` lets it read.

        Args:
            commons: The world.
            rng: Source of its habits.
            host: Its address.
            number: Who it is in observations.
            relay: Number of the relay it reads.
            authors: DIDs that it may ask for.
        """
        self._commons = commons
        self._rng = rng
        self._host = host
        self._number = number
        self._relay = relay
        self._filters = _draw_filters(rng, authors, commons.wall_s)
        self._live_only = rng.random() < 1 / 8 and not self._filters.descending
        self._page = 0 if self._live_only else commons.plan.reader.page
        habits = commons.plan.reader
        self._key = KeyPair.from_seed(rng.randbytes(32)) if rng.random() < habits.authenticates else None
        self._trusts = rng.random() < 1 / 3
        self._client: StrataClient
        self._line: Line | None = None
        self._is_leaving = False
        self._mangles = False
        self._is_told = False
        """Whether the relay itself has said that history is complete."""
        self.outcomes: Counter[str] = Counter()
        self._begin()

    @property
    def is_descending(self) -> bool:
        """Whether it reads backwards."""
        return self._filters.descending

    # Phases

    def start(self) -> None:
        """Connect, and let habits begin."""
        self.come()
        habits = self._commons.plan.reader
        self._habit(habits.drops, self._drop)
        self._habit(habits.restarts, self._restart)
        self._habit(habits.begins_anew, self._begin_anew)
        self._habit(habits.mangles, self._mangle)
        self._habit(habits.stalls, self._stall)

    def come(self) -> None:
        """Connect, unless connected."""
        if self._line is None and not self._is_leaving:
            commons = self._commons
            world = commons.worlds[self._relay]
            self._asked_on = -1
            self._line = Line(commons, world, self._host, self._client, commons.plan.link, self)
            self._line.settle()

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
        """Tell what it has, now that it must have everything."""
        if self._line is None or not self._is_complete:
            self._commons.observe(seen.LeftHanging(f"reader {self._number} has not come to the end of history"))
        else:
            self._tell(final=True)

    def leave(self) -> None:
        """Go for good."""
        self._is_leaving = True
        self._drop()

    # Habits

    def _habit(self, per_hour: float, act: Any) -> None:
        def happen() -> None:
            if self._commons.troubled:
                act()
                self._habit(per_hour, act)

        if per_hour > 0:
            self._commons.schedule.after(spread(self._rng, HOUR_US / per_hour), happen)

    def _drop(self) -> None:
        if self._line is not None:
            self._line.hang_up(abort=self._rng.random() < 1 / 2)

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
        if self._line is not None:
            self._line.read_nothing(1 + spread(self._rng, STALL_US))

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
        commons = self._commons
        self._is_complete = False
        self._client = commons.make_client(
            fork(self._rng), key_pair=self._key, keys_of=None if self._trusts else commons.keys_of
        )
        cursor = self._cursor
        if cursor is not None and self._mangles:
            cursor = cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB")
        self._client.subscribe(
            SUBSCRIPTION,
            self._filters,
            commons.schedule.now,
            cursor=cursor,
            received_at=self._received_at,
            # A limit of 0 begins with what is new, whatever the cursor says.
            limit=LONG_PAGE if self._live_only and cursor is not None else self._page,
        )

    def _tell(self, *, final: bool) -> None:
        if self._floor >= 0:
            self._commons.observe(
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

    # What the line reports

    def on_frame(self, data: bytes) -> None:
        """Look at the wire itself."""
        body = parse(data, DEPTH_MAX)
        assert isinstance(body, dict)
        assert self._line is not None
        if body["type"] == "EVENT":
            self._see(body, data, self._line.number)
        elif body["type"] == "EOSE":
            self._is_told = not body["has_more"]
            if self._floor < 0:
                self._floor = self._commons.worlds[self._relay].store.packets.newest_seq()
            self._commons.observe(seen.PageEnded(self._number, self._line.number, body["cursor"], body["has_more"]))

    def on_sent(self, data: bytes) -> None:
        """Note what was asked for."""
        body = parse(data, DEPTH_MAX)
        assert isinstance(body, dict)
        if body["type"] == "SUBSCRIBE":
            self._is_told = False
            line = self._line.number if self._line is not None else 0
            if self._asked_on < 0:
                self._asked_on = line
                self._promised = len(self._commons.oks[self._relay])
            self._commons.observe(seen.Asked(self._number, self._relay, line, body["filters"].get("cursor")))

    def on_event(self, event: Event) -> None:
        """Note packets and ends of history."""
        commons = self._commons
        if isinstance(event, PacketArrived):
            self._got.add(event.packet.packet_id)
            self.outcomes["read"] += 1
            if event.cursor is not None:
                self._cursor, self._received_at = event.cursor, event.received_at
            commons.observe(seen.Taken(self._number, event.packet.packet_id, event.verified or self._trusts))
            leaves = commons.plan.reader.leaves_mid_page
            if commons.troubled and not self._is_told and self._rng.random() < leaves:
                self._rng.choice((self._drop, self._restart))()
        elif isinstance(event, HistoryEnded):
            self._cursor = event.cursor or self._cursor
            self._is_complete = not event.has_more
            if self._is_complete and self._is_told and not self._live_only:
                # A client that knows no EOSE of this relay takes 2 s of quiet for the end (13.2); that is a guess.
                self._tell(final=False)
        elif isinstance(event, SubscriptionRefused):
            commons.schedule.after(spread(self._rng, STALL_US), self._restart)
        elif isinstance(event, Violation | ProtocolFault):
            commons.observe(seen.Blamed(self._number, type(event).__name__, event.detail))

    def on_end(self) -> None:
        """Come back later."""
        self._line = None
        self._is_complete = False
        if self._filters.descending and not self._is_leaving:
            self._begin()  # pages that go back never come to what was missed
        self._commons.schedule.after(spread(self._rng, self._commons.plan.reader.away_us), self.come)

    def _see(self, body: dict[str, Any], data: bytes, line: int) -> None:
        commons, packet = self._commons, body["packet"]
        packet_id = parse_packet_id(packet["packet_id"]) or b""
        row = commons.worlds[self._relay].store.packets.packet(packet_id)
        expires_at = packet.get("expires_at")
        commons.observe(
            seen.EventSeen(
                self._number,
                self._relay,
                line,
                packet_id,
                body["received_at"],
                body.get("cursor"),
                row.order_at if row is not None else -1,
                row.seq if row is not None else -1,
                commons.is_genuine(packet_id, packet["author_id"], data),
                commons.wall_s - expires_at if expires_at is not None else 0,
            )
        )


def _draw_filters(rng: random.Random, authors: list[str], wall_s: int) -> Filters:
    chosen = rng.sample(authors, rng.randint(1, len(authors))) if rng.random() < 1 / 3 else []
    types = rng.sample(TYPES, rng.randint(1, len(TYPES))) if rng.random() < 1 / 3 else []
    since = wall_s + rng.randrange(-60, 120) if rng.random() < 1 / 8 else None
    until = wall_s + rng.randrange(60, 600) if rng.random() < 1 / 8 else None
    return Filters(tuple(sorted(chosen)), tuple(sorted(types)), since, until, rng.random() < 1 / 6)
