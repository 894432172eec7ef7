"""Worlds of Strata for the tests of the simulator."""

import random
from dataclasses import replace
from functools import partial

from waystation.core.dids import encode_did
from waystation.core.instant import Instant
from waystation.core.packets import PacketQuery
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.client import StrataClient
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.relay import StrataRelay
from waystation.protocols.strata.settings import StrataSettings
from waystation.sim import strata_observations as seen
from waystation.sim.link import LinkSettings
from waystation.sim.plan import FaultRates
from waystation.sim.run import SimResult, run_seed
from waystation.sim.schedule import Schedule
from waystation.sim.strata import StrataTown
from waystation.sim.strata_commons import Author, StrataCommons
from waystation.sim.strata_plan import PublisherHabits, ReaderHabits, StrataPlan
from waystation.sim.trace import Trace
from waystation.sim.world import WALL_START_US, World, WorldSettings, make_store

HOURS = 0.03

QUIET = StrataPlan(
    relays=1,
    mutual=False,
    hostile_upstream=False,
    publishers=1,
    readers=2,
    packets_per_hour=1_000.0,
    text_bytes_max=40,
    link=LinkSettings(latency_us=1_000, jitter_us=0, framed=True),
    host=WorldSettings(),
    rate_limits=False,
    announces=False,
    publisher=PublisherHabits(),
    reader=ReaderHabits(),
    faults=FaultRates(),
    hostiles=(),
)
"""A world where nothing goes wrong; tests replace what they are about."""

PAGED = replace(
    QUIET,
    readers=4,
    packets_per_hour=4_000.0,
    reader=ReaderHabits(drops=200.0, restarts=200.0, leaves_mid_page=0.1, page=7, away_us=10_000_000),
)
"""Readers that leave in the middle of pages and resume."""

HEAVY = replace(
    QUIET,
    packets_per_hour=4_000.0,
    text_bytes_max=80_000,
    link=replace(QUIET.link, window_bytes=2_048),
    reader=ReaderHabits(stalls=400.0),
    hostiles=("deaf", "deaf"),
)
"""Large packets, and peers that never read."""

PAIR = replace(
    QUIET,
    relays=2,
    mutual=True,
    publishers=3,
    packets_per_hour=4_000.0,
    publisher=PublisherHabits(fans_out=0.7, leaves_mid_flight=0.1),
    faults=FaultRates(breaks=600.0, crashes=200.0),
)
"""Two relays that read each other, and publishers that write to both."""


APART = replace(PAIR, publisher=PublisherHabits())
"""Two relays that read each other, and publishers that write to one of them."""

SLOW_DISK = replace(QUIET, host=WorldSettings(commit_delay_us=400_000), faults=FaultRates(crashes=200.0))
"""A disk that takes its time, and a node that dies."""

TAMPERED = replace(QUIET, hostile_upstream=True, hostiles=("tamperer", "garbage"))
"""Forged packets from below and above."""

HASTY = replace(QUIET, publishers=3, publisher=PublisherHabits(leaves_mid_flight=0.3))
"""Publishers that do not wait for their answers."""


def run_with(kind: type | None, seed: int, plan: StrataPlan | None = None, hours: float = HOURS) -> SimResult:
    """Run one seed of a world whose relays, or whose clients, are of this class; None for the right ones."""
    options = {"plan": plan}
    if kind is not None:
        options["make_client" if issubclass(kind, StrataClient) else "make_relay"] = kind
    return run_seed("strata", seed, hours, make=partial(StrataTown, **options))


def first_failure(kind: type, seeds: range, plan: StrataPlan | None = None) -> str | None:
    """Return which law the first failing seed names, or None."""
    for seed in seeds:
        failure = run_with(kind, seed, plan).failure
        if failure is not None:
            return failure.invariant
    return None


def made(number: int, expires_at: int | None = None, timestamp: int = 50) -> seen.Made:
    """Return the packet with this number as somebody made it."""
    return seen.Made(_id(number), "did:strata:a", "POST", timestamp, expires_at, b"packet %d" % number)


def kept(number: int, order_at: int = 100, received_at: int | None = None) -> seen.Kept:
    """Return it as a relay stores it, its number being its ``seq``."""
    told = order_at if received_at is None else received_at
    return seen.Kept(_id(number), order_at, told, number, b"packet %d" % number, "did:strata:a", "POST")


def published(number: int, *, is_stored: bool = True) -> seen.Published:
    """Return its OK from relay 0."""
    return seen.Published(0, _id(number), duplicate=False, is_stored=is_stored)


def event(
    number: int, cursor: str | None = None, line: int = 1, order_at: int = 100, told: int = 100
) -> seen.EventSeen:
    """Return its EVENT as reader 0 gets it from relay 0."""
    return seen.EventSeen(0, 0, line, _id(number), told, cursor, order_at, number, is_signed=True, late_s=0)


def asked(cursor: str | None = None, line: int = 1) -> seen.Asked:
    """Return a SUBSCRIBE of reader 0."""
    return seen.Asked(0, 0, line, cursor)


def caught_up(*numbers: int, promised: int = 0, floor: int = 0, final: bool = False) -> seen.CaughtUp:
    """Return what reader 0 says it has."""
    got = frozenset(_id(number) for number in numbers)
    return seen.CaughtUp(0, 0, Filters(since=10), floor, promised, got, final)


def _id(number: int) -> bytes:
    return number.to_bytes(32, "big")


class Quarter:
    """One real relay and what its people saw, without a town around them."""

    def __init__(self, plan: StrataPlan = QUIET, seed: int = 1):
        self.schedule, self.seen, self.rng = Schedule(), [], random.Random(seed)
        self.commons = StrataCommons(self.schedule, plan, self.seen.append, StrataClient)
        store, key = make_store(bytes(8)), KeyPair.from_seed(bytes(32))

        def make_relays(entropy, admits):
            relay = StrataRelay(StrataSettings(), key, store, entropy, rate_limits=False, admits=admits)
            relay.set_wall(self.schedule.now, WALL_START_US + self.schedule.now)
            return {"strata": relay}

        self.world = World(self.schedule, random.Random(2), Trace(), make_relays, store=store, settings=plan.host)
        self.commons.worlds.append(self.world)
        self.commons.oks.append([])
        self.commons.relay_ids.append(encode_did(key.public))
        self._author = Author(random.Random(3))
        self.commons.know_key(self._author.did, self._author.key)

    def run(self, seconds: float):
        self.schedule.run(Instant(self.schedule.now + int(seconds * 1_000_000)))

    def kinds(self, kind: type):
        return [observation for observation in self.seen if isinstance(observation, kind)]

    def packet(self, text: str = "hello"):
        return self.commons.make(self._author, {"type": "POST", "text": text}, self.commons.wall_s)

    def stored(self):
        rows = self.world.store.packets.page(PacketQuery(by_seq=True, rows_max=10_000)).rows
        return {row.packet_id: row.canonical for row in rows}
