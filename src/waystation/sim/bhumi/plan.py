"""The random plan of one Bhumi scenario: relays and links, devices, senders, clocks, faults and adversaries.

``sim.run`` draws it from the seed before the run. A quarter of the gossip plans have no faults; only these state how
many look-ups must be correct.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.sim.net.link import LinkSettings
from waystation.sim.plan import (
    Plan,
    between,
    chance,
    draw,
    draw_link,
    draw_rates,
    drawn_by,
    each_of,
    odds,
    one_of,
    portion,
    some_of,
    up_to,
)
from waystation.sim.topology import TOPOLOGIES
from waystation.sim.world import WorldSettings

__all__ = [
    "LARGE_EVERY",
    "PRESENCE_TRICKS",
    "RELAY_TRICKS",
    "TRICKS",
    "BhumiPlan",
    "CoreDeviceBehaviour",
    "DeviceBehaviour",
    "FaultRates",
    "SenderBehaviour",
    "draw_core_plan",
    "draw_large_plan",
    "draw_plan",
]

FAULTLESS: Final = 0.25  # chance that a plan with gossip has no faults
CLOCK_OFF_MAX_MS: Final = 60_000  # so that two clocks differ by what a relay tolerates at most
RELAYS: Final = (2, 3, 4, 5, 6, 8, 8, 12)
LARGE_EVERY: Final = 50  # of so many seeds one has 50 relays and 500 devices
LARGE_RELAYS: Final = 50
LARGE_DEVICES: Final = 500
LARGE_SENDERS: Final = 20
LARGE_MOVES: Final = 20.0
LARGE_LOOKUPS: Final = 40_000.0
LINKS_MAX: Final = 6
WINDOWS: Final = (2_048, 16_384, 65_536)  # where the latency is short: else the relay's minimum rate needs more
TRICKS: Final = ("garbage", "slowloris", "flood", "deaf", "spoofer", "mutant")
"""Of adversaries among clients that need no gossip."""
PRESENCE_TRICKS: Final = ("impostor", "carrier", "prophet", "rover", "nosy", "eager", "whisperer")
"""Of adversaries among clients that abuse presence."""
RELAY_TRICKS: Final = (
    "alterer",
    "resigner",
    "prolonger",
    "replayer",
    "flooder",
    "advertiser",
    "mute",
    "babbler",
    "asker",
)
"""Of byzantine relays."""


@dataclass(frozen=True, slots=True)
class DeviceBehaviour:
    """How devices behave; rates per device and simulated hour, times in microseconds."""

    moves: Annotated[float, one_of(0.0, 20.0, 20.0, 60.0)] = 20.0
    """Goes to another relay in good order."""
    vanishes: Annotated[float, up_to(40.0)] = 0.0
    """Loses its connection without a close and comes back, here or elsewhere."""
    think_us: Annotated[int, one_of(1_000, 30_000, 800_000, 12_000_000)] = 30_000
    """Mean time from request to answer."""
    away_us: Annotated[int, one_of(200_000, 2_000_000, 20_000_000)] = 2_000_000
    """Mean time until a device without connection comes back."""
    ttl_s: Annotated[int, one_of(300, 600, 600)] = 600
    """Of the presences that it signs."""
    spares: Annotated[int, one_of(1, 4, 16)] = 4
    """Preimages on offer."""


@dataclass(frozen=True, slots=True)
class CoreDeviceBehaviour:
    """How devices use the core protocol; chances are for each request, rates per device and simulated hour."""

    carries_answers: Annotated[bool, odds(1 / 2)] = True
    """Brings its last answers to each relay that it connects to."""
    asks_preimage: Annotated[bool, odds(1 / 2)] = True
    never_answers: Annotated[float, up_to(0.1)] = 0.0
    answers_late: Annotated[float, up_to(0.1)] = 0.0
    """After the relay's ACK timeout."""
    answers_twice: Annotated[float, up_to(0.3)] = 0.0
    leaves_mid_flight: Annotated[float, up_to(0.05)] = 0.0
    answers_elsewhere: Annotated[float, up_to(0.8)] = 0.0
    """After leaving mid-flight: answers on its next connection."""
    reconnects: Annotated[float, up_to(10.0)] = 0.0
    introduces_twice: Annotated[float, up_to(10.0)] = 0.0
    comes_twice: Annotated[float, up_to(5.0)] = 0.0
    """Opens a second connection without closing the first."""


@dataclass(frozen=True, slots=True)
class SenderBehaviour:
    """How senders behave; chances are 0 to 1 for each request."""

    shares_connection: bool = False
    """Sends further requests on a connection that is open, instead of one connection for each."""
    keeps_connection: Annotated[float, portion] = 0.0
    """Chance that an idle connection stays open."""
    tries_max: Annotated[int, between(1, 5)] = 4
    leaves_mid_flight: Annotated[float, up_to(0.2)] = 0.0
    retries_side_by_side: Annotated[float, up_to(0.1)] = 0.0
    """The same request on one to six more connections, before the first has its result."""
    asks_again: Annotated[float, up_to(0.2)] = 0.0
    """The same request once more after its result."""
    replays: Annotated[float, up_to(0.1)] = 0.0
    """An old preimage for a new request."""
    guesses: Annotated[float, up_to(0.1)] = 0.0
    """A preimage that no device issued."""
    asks_absent: Annotated[float, up_to(0.1)] = 0.0
    """A recipient that does not exist."""
    bursts: Annotated[float, up_to(0.05)] = 0.0
    """Up to 48 requests at once."""
    outstanding_max: int = 8
    """Requests of one sender under way at once."""


@dataclass(frozen=True, slots=True)
class FaultRates:
    """What goes wrong with links and relays, per simulated hour of the whole scenario."""

    stalls: float = 0.0
    """Of connections of clients."""
    breaks: float = 0.0
    link_stalls: float = 0.0
    """Of links between relays."""
    link_cuts: float = 0.0
    """Nothing passes any more, and neither side is notified."""
    link_breaks: float = 0.0
    partitions: float = 0.0
    """The relays fall into two parts for a while."""
    crashes: float = 0.0
    stops: float = 0.0


def _draw_host(rng: random.Random) -> WorldSettings:
    return WorldSettings(turn_delay_us=rng.choice((0, 0, 50, 2_000)))


def _draw_hidden(rng: random.Random, drawn: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(node for node in range(1, drawn["relays"]) if rng.random() < 1 / 8)


def _draw_faults(rng: random.Random, drawn: Mapping[str, Any]) -> FaultRates:
    """Draw rates of the whole scenario; more relays have more links to break, up to a point."""
    links = min(drawn["relays"], LINKS_MAX)
    between_relays = {"link_stalls": 30.0 * links, "link_cuts": 30.0 * links, "link_breaks": 60.0 * links}
    return FaultRates(
        **draw_rates(rng, stalls=120.0, breaks=240.0, **between_relays, partitions=60.0, crashes=60.0, stops=40.0)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BhumiPlan(Plan):
    """One seed's scenario."""

    relays: int
    topology: Annotated[str, one_of(*TOPOLOGIES)]
    """Which relays have which among their configured peers, see ``topology``."""
    hidden: Annotated[tuple[int, ...], _draw_hidden] = ()
    """Relays that advertise no address; no device goes there."""
    devices: Annotated[int, between(5, 40)]
    senders: Annotated[int, between(1, 6)]
    asks_per_hour: Annotated[float, between(300.0, 3_000.0)]
    """Requests of all senders together."""
    lookups_per_hour: Annotated[float, between(1_000.0, 6_000.0)] = 0.0
    clocks_off_ms: Annotated[int, one_of(0, 1_500, CLOCK_OFF_MAX_MS)] = 0
    """How far the clocks of relays and devices are off at most, in either direction."""
    dials_private: Annotated[bool, odds(1 / 4)] = False
    requires_binding: Annotated[bool, odds(1 / 4)] = False
    """Whether relays demand a proof of identity that is bound to them."""
    link: Annotated[LinkSettings, drawn_by(draw_link)]
    """Between clients and relays."""
    trunk: Annotated[LinkSettings, drawn_by(draw_link)]
    """Between relays."""
    host: Annotated[WorldSettings, drawn_by(_draw_host)] = field(default_factory=WorldSettings)
    device: Annotated[DeviceBehaviour, each_of(DeviceBehaviour)]
    faults: Annotated[FaultRates, _draw_faults] = FaultRates()
    hostiles: Annotated[tuple[str, ...], some_of(PRESENCE_TRICKS, (0, 0, 1, 2, 3))] = ()
    """Tricks of hostile clients, see ``hostile``."""
    hostile_relays: Annotated[tuple[str, ...], some_of(RELAY_TRICKS, (0, 0, 1, 1, 2))] = ()
    """Tricks of byzantine relays, see ``hostile_relay``."""
    gossip: bool = True
    """Whether relays have keys, pass records on and answer WHERE, and devices assert presence; what follows is the same
    in all plans that have it."""
    cuts: float = 0.0
    """Of connections of clients, per simulated hour: nothing passes any more, and neither side is notified."""
    core_device: CoreDeviceBehaviour = CoreDeviceBehaviour()
    sender: SenderBehaviour = SenderBehaviour()
    relay: BhumiSettings = field(default_factory=BhumiSettings)
    """Settings that all relays have in common."""
    request_bytes: tuple[int, int] = (24, 24)
    """Smallest and largest body of a request."""
    answer_bytes: tuple[int, int] = (0, 0)
    """Smallest and largest padding of an answer."""
    envelope: bool = False
    """Whether payloads are sealed; costs a millisecond of real time per exchange."""

    def describe(self) -> str:
        """Return one line with every choice, without what is the same in all plans with gossip."""
        line = Plan.describe(self)  # a class with slots has no super() of its own
        return line.partition(" gossip=")[0] if self.gossip else line

    @property
    def is_faultless(self) -> bool:
        """Whether nothing goes wrong: no adversary, no failing link, and devices leave in good order only."""
        return (
            self.faults == FaultRates() and not self.hostiles and not self.hostile_relays and not self.device.vanishes
        )


def draw_plan(rng: random.Random) -> BhumiPlan:
    """Draw a plan of relays that gossip and devices that move."""
    relays = rng.choice(RELAYS)
    is_faultless = rng.random() < FAULTLESS
    plan = draw(BhumiPlan, rng, relays=relays)
    return _without_faults(plan) if is_faultless else plan


def draw_large_plan(rng: random.Random) -> BhumiPlan:
    """Draw a plan of 50 relays and 500 devices that move."""
    plan = draw_plan(rng)
    device = replace(plan.device, moves=max(plan.device.moves, LARGE_MOVES))
    return replace(
        plan,
        relays=LARGE_RELAYS,
        topology="random",
        hidden=tuple(node for node in plan.hidden if node < LARGE_RELAYS),
        devices=LARGE_DEVICES,
        senders=LARGE_SENDERS,
        lookups_per_hour=LARGE_LOOKUPS,
        device=device,
    )


def draw_core_plan(rng: random.Random) -> BhumiPlan:
    """Draw a plan of one relay without gossip, whose clients do everything that the core protocol lets them do."""
    sizes = (1, rng.choice((16, 64, 256, 1_024, 8_192)))
    link = draw_link(rng, throughputs=(0, 0, 100_000, 1_000_000), windows=WINDOWS)
    return BhumiPlan(
        relays=1,
        topology="line",
        devices=rng.randint(1, 8),
        senders=rng.randint(1, 10),
        asks_per_hour=rng.uniform(300.0, 2_500.0),
        link=link,
        trunk=link,
        host=_draw_host(rng),
        device=DeviceBehaviour(
            moves=0.0,
            vanishes=chance(rng, 20.0),
            think_us=rng.choice((1_000, 30_000, 800_000)),
            away_us=rng.choice((200_000, 2_000_000, 60_000_000)),
            spares=rng.choice((1, 8, 32)),
        ),
        faults=FaultRates(**draw_rates(rng, stalls=60.0, breaks=120.0, crashes=4.0, stops=4.0)),
        hostiles=tuple(rng.choice(TRICKS) for _ in range(rng.choice((0, 0, 1, 2, 4)))),
        gossip=False,
        cuts=chance(rng, 30.0),
        core_device=draw(CoreDeviceBehaviour, rng),
        sender=draw(SenderBehaviour, rng, shares_connection=True, outstanding_max=64),
        relay=BhumiSettings(
            deliver_layout=rng.choice(("seed", "preimage")),
            ack_timeout_ms=rng.choice((5_000, 30_000, 30_000)),
            response_ttl_ms=rng.choice((60_000, 300_000, 300_000)),
        ),
        request_bytes=sizes,
        answer_bytes=sizes,
        envelope=rng.random() < 1 / 16,
    )


def _without_faults(plan: BhumiPlan) -> BhumiPlan:
    device = replace(plan.device, vanishes=0.0)
    return replace(plan, device=device, faults=FaultRates(), hostiles=(), hostile_relays=())
