"""What one seed of an open Bhumi world does: relays and their graph, devices that move, links, clocks, faults, enemies.

Swarm testing as in ``plan``: kinds of trouble are switched off before rates are drawn for the rest. A quarter of all
worlds have no trouble at all: only there can be said how many look-ups must be right.
"""

import random
from dataclasses import dataclass, fields, replace
from typing import Final

from waystation.sim.link import LinkSettings
from waystation.sim.world import WorldSettings

__all__ = [
    "HOSTILE_CLIENTS",
    "HOSTILE_RELAYS",
    "LARGE_EVERY",
    "OpenDeviceHabits",
    "OpenFaults",
    "OpenPlan",
    "draw_large_plan",
    "draw_open_plan",
]

KIND_STAYS: Final = 0.6  # chance that a kind of trouble takes part in a plan
QUIET: Final = 0.25  # chance that nothing goes wrong in a world
CLOCK_OFF_MAX_MS: Final = 60_000  # so that two clocks differ by what a relay tolerates at most
RELAYS: Final = (2, 3, 4, 5, 6, 8, 8, 12)
DEVICES: Final = (5, 40)
LARGE_EVERY: Final = 50  # of so many seeds one is a world of 50 relays and 500 devices
LARGE_RELAYS: Final = 50
LARGE_DEVICES: Final = 500
LARGE_SENDERS: Final = 20
LARGE_MOVES: Final = 20.0
LARGE_LOOKUPS: Final = 40_000.0
TOPOLOGIES: Final = ("line", "ring", "star", "random")
LINKS_MAX: Final = 6
HOSTILE_CLIENTS: Final = ("impostor", "carrier", "prophet", "rover", "nosy", "eager", "whisperer")
HOSTILE_RELAYS: Final = (
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


@dataclass(frozen=True, slots=True)
class OpenDeviceHabits:
    """How devices behave; rates per device and simulated hour, times in microseconds."""

    moves: float = 20.0
    """Goes to another relay in good order."""
    vanishes: float = 0.0
    """Loses its connection without a word and comes back, here or elsewhere."""
    think_us: int = 30_000
    """Mean time from request to answer."""
    away_us: int = 2_000_000
    """Mean time until a device without connection comes back."""
    ttl_s: int = 600
    """Of the presences that it signs."""
    spares: int = 4
    """Preimages on offer."""


@dataclass(frozen=True, slots=True)
class OpenFaults:
    """What goes wrong with links and relays, per simulated hour of the whole world."""

    stalls: float = 0.0
    """Of connections of devices."""
    breaks: float = 0.0
    link_stalls: float = 0.0
    """Of links between relays."""
    link_cuts: float = 0.0
    """Nothing passes any more, and nobody is told."""
    link_breaks: float = 0.0
    partitions: float = 0.0
    """The relays fall into two parts for a while."""
    crashes: float = 0.0
    stops: float = 0.0


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """One seed's world."""

    relays: int
    topology: str
    """Who has whom among its configured peers, see ``merk_plan.edges_of``."""
    hidden: tuple[int, ...]
    """Relays that tell nobody their address; no device goes there."""
    devices: int
    senders: int
    asks_per_hour: float
    """Requests of all senders together."""
    lookups_per_hour: float
    clocks_off_ms: int
    """How far the clocks of relays and devices are off at most, in either direction."""
    dials_private: bool
    requires_binding: bool
    """Whether relays demand a proof of identity that is bound to them."""
    link: LinkSettings
    """Between clients and relays."""
    trunk: LinkSettings
    """Between relays."""
    host: WorldSettings
    device: OpenDeviceHabits
    faults: OpenFaults
    hostiles: tuple[str, ...]
    """Kinds of hostile clients, see ``bhumi_open_hostile``."""
    hostile_relays: tuple[str, ...]
    """Kinds of hostile relays, see ``bhumi_open_hostile_relay``."""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing goes wrong: nobody is hostile, no link fails, and devices leave in good order only."""
        return (
            self.faults == OpenFaults() and not self.hostiles and not self.hostile_relays and not self.device.vanishes
        )

    def describe(self) -> str:
        """Return one line with every choice."""
        return " ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


def draw_open_plan(rng: random.Random) -> OpenPlan:
    """Draw a plan."""
    relays = rng.choice(RELAYS)
    is_quiet = rng.random() < QUIET
    plan = OpenPlan(
        relays=relays,
        topology=rng.choice(TOPOLOGIES),
        hidden=tuple(node for node in range(1, relays) if rng.random() < 1 / 8),
        devices=rng.randint(*DEVICES),
        senders=rng.randint(1, 6),
        asks_per_hour=rng.uniform(300.0, 3_000.0),
        lookups_per_hour=rng.uniform(1_000.0, 6_000.0),
        clocks_off_ms=rng.choice((0, 1_500, CLOCK_OFF_MAX_MS)),
        dials_private=rng.random() < 1 / 4,
        requires_binding=rng.random() < 1 / 4,
        link=_draw_link(rng),
        trunk=_draw_link(rng),
        host=WorldSettings(turn_delay_us=rng.choice((0, 0, 50, 2_000))),
        device=_draw_device(rng),
        faults=_draw_faults(rng, relays),
        hostiles=tuple(rng.choice(HOSTILE_CLIENTS) for _ in range(rng.choice((0, 0, 1, 2, 3)))),
        hostile_relays=tuple(rng.choice(HOSTILE_RELAYS) for _ in range(rng.choice((0, 0, 1, 1, 2)))),
    )
    return _without_trouble(plan) if is_quiet else plan


def draw_large_plan(rng: random.Random) -> OpenPlan:
    """Draw a plan of 50 relays and 500 devices that move."""
    plan = draw_open_plan(rng)
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


def _without_trouble(plan: OpenPlan) -> OpenPlan:
    device = replace(plan.device, vanishes=0.0)
    return replace(plan, device=device, faults=OpenFaults(), hostiles=(), hostile_relays=())


def _chance(rng: random.Random, most: float) -> float:
    """Return 0 for a kind that does not take part, or up to ``most``."""
    return rng.uniform(0.0, most) if rng.random() < KIND_STAYS else 0.0


def _draw_link(rng: random.Random) -> LinkSettings:
    """Draw a link on which a burst of gossip passes within the 10 s that a relay waits for one frame."""
    return LinkSettings(
        latency_us=rng.choice((100, 5_000, 20_000, 150_000)),
        jitter_us=rng.choice((0, 100, 5_000)),
        bytes_per_second=rng.choice((0, 0, 200_000, 1_000_000)),
        pieces=rng.choice((0.0, 0.1, 0.5)),
    )


def _draw_device(rng: random.Random) -> OpenDeviceHabits:
    return OpenDeviceHabits(
        moves=rng.choice((0.0, 20.0, 20.0, 60.0)),
        vanishes=_chance(rng, 40.0),
        think_us=rng.choice((1_000, 30_000, 800_000, 12_000_000)),
        away_us=rng.choice((200_000, 2_000_000, 20_000_000)),
        ttl_s=rng.choice((300, 600, 600)),
        spares=rng.choice((1, 4, 16)),
    )


def _draw_faults(rng: random.Random, relays: int) -> OpenFaults:
    """Draw rates of the whole world; more relays have more links to break, up to a point."""
    links = min(relays, LINKS_MAX)
    return OpenFaults(
        stalls=_chance(rng, 120.0),
        breaks=_chance(rng, 240.0),
        link_stalls=_chance(rng, 30.0 * links),
        link_cuts=_chance(rng, 30.0 * links),
        link_breaks=_chance(rng, 60.0 * links),
        partitions=_chance(rng, 60.0),
        crashes=_chance(rng, 60.0),
        stops=_chance(rng, 40.0),
    )
