"""Worlds of Strata for the tests of the simulator."""

from dataclasses import replace

from tests.sim.runs import Runs
from waystation.core.packets import PacketRow
from waystation.protocols.strata.client.machine import StrataClient
from waystation.protocols.strata.messages import Filters
from waystation.protocols.strata.relay.machine import StrataRelay
from waystation.sim.net.link import LinkSettings
from waystation.sim.plan import FaultRates
from waystation.sim.strata import observations as seen
from waystation.sim.strata.plan import PublisherBehaviour, ReaderBehaviour, StrataPlan
from waystation.sim.strata.scenario import StrataScenario
from waystation.sim.world import WorldSettings

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
    publisher=PublisherBehaviour(),
    reader=ReaderBehaviour(),
    faults=FaultRates(),
    hostiles=(),
)
"""A world where nothing goes wrong; tests replace what they are about."""

PAGED = replace(
    QUIET,
    readers=4,
    packets_per_hour=4_000.0,
    reader=ReaderBehaviour(drops=200.0, restarts=200.0, leaves_mid_page=0.1, page=7, away_us=10_000_000),
)
"""Readers that leave in the middle of pages and resume."""

HEAVY = replace(
    QUIET,
    packets_per_hour=4_000.0,
    text_bytes_max=80_000,
    link=replace(QUIET.link, window_bytes=2_048),
    reader=ReaderBehaviour(stalls=400.0),
    hostiles=("deaf", "deaf"),
)
"""Large packets, and peers that never read."""

PAIR = replace(
    QUIET,
    relays=2,
    mutual=True,
    publishers=3,
    packets_per_hour=4_000.0,
    publisher=PublisherBehaviour(fans_out=0.7, leaves_mid_flight=0.1),
    faults=FaultRates(breaks=600.0, crashes=200.0),
)
"""Two relays that read each other, and publishers that write to both."""


APART = replace(PAIR, publisher=PublisherBehaviour())
"""Two relays that read each other, and publishers that write to one of them."""

SLOW_DISK = replace(QUIET, host=WorldSettings(commit_delay_us=400_000), faults=FaultRates(crashes=200.0))
"""A disk that takes its time, and a node that dies."""

TAMPERED = replace(QUIET, hostile_upstream=True, hostiles=("tamperer", "garbage"))
"""Forged packets from below and above."""

MINTED = replace(QUIET, readers=0, retention_mib=1, hostiles=("minter", "minter"))
"""Little space, and peers who fill the store with key events of new identities."""

HASTY = replace(QUIET, publishers=3, publisher=PublisherBehaviour(leaves_mid_flight=0.3))
"""Publishers that do not wait for their answers."""


RUNS = Runs("strata", StrataScenario, HOURS, {StrataClient: "make_client", StrataRelay: "make_relay"})
run_with, first_failure, lines_of = RUNS.run_with, RUNS.first_failure, RUNS.lines_of


def made(number: int, expires_at: int | None = None, timestamp: int = 50) -> seen.Made:
    """Return the packet with this number as somebody made it."""
    return seen.Made(_id(number), "did:strata:a", "POST", timestamp, expires_at, b"packet %d" % number)


def kept(number: int, order_at: int = 100, received_at: int | None = None) -> PacketRow:
    """Return it as a relay stores it, its number being its ``seq``."""
    told = order_at if received_at is None else received_at
    canonical = b"packet %d" % number
    return PacketRow(
        number, order_at, told, told, _id(number), "did:strata:a", "POST", 0, None, canonical, b"", "", b"", False
    )


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
