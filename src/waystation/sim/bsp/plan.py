"""The random plan of one BSP simulation: devices, their connections and groups, faults, and hostile peers.

``sim.run`` has it drawn from the seed, ``BspScenario`` carries it out. Everything random is decided by that one seed,
so a failed run can be repeated.
"""

import random
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Final

from waystation.sim.net.datagram import DatagramSettings
from waystation.sim.net.link import LinkSettings
from waystation.sim.plan import Plan, between, draw, draw_datagrams, drawn_by, each_of, odds, one_of, some_of, up_to

__all__ = ["HOSTILE_KINDS", "BspFaults", "BspPlan", "GroupPlan", "draw_bsp_plan"]

LATE_US: Final = 20_000_000
PATHS: Final = {
    "latencies_us": (1_000, 20_000, 100_000, 400_000),
    "jitters_us": (0, 5_000, 500_000),
    "reorders_us": (50_000, 2_000_000),
}
HOSTILE_KINDS: Final = ("garbage", "intruder", "flooder", "byzantine", "poisoner", "hoarder")
MODES: Final = ("auto", "interactive", "batch")


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One group."""

    form: str
    """opaque or deps_v1."""
    members: tuple[int, ...]
    """Numbers of devices, joined by connections among themselves; the first is there from the start."""
    late_us: tuple[int, ...]
    """When each of them joins, in microseconds."""


@dataclass(frozen=True, slots=True)
class BspFaults:
    """What goes wrong in the whole network, per simulated hour."""

    cuts: Annotated[float, up_to(400.0)] = 0.0
    """A connection lets nothing through for a while, and no device is notified."""
    ends: Annotated[float, up_to(400.0)] = 0.0
    """A connection ends, with all that is under way, and comes back after a while."""
    crashes: Annotated[float, up_to(300.0)] = 0.0
    """A device loses all that is not on its disk."""
    quarrels: Annotated[float, up_to(200.0)] = 0.0
    """Two devices do not share a group for a while."""
    deletions: Annotated[float, up_to(600.0)] = 0.0
    """A device deletes a message that every member has."""


@dataclass(frozen=True, slots=True)
class BspPlan(Plan):
    """One seed's network."""

    modes: tuple[str, ...]
    """How each device hands messages over; as many as there are devices."""
    connections: tuple[tuple[int, int], ...]
    """Pairs of devices; all of them are joined somehow."""
    groups: tuple[GroupPlan, ...]
    writes_per_hour: Annotated[float, between(1_000.0, 8_000.0)]
    body_bytes_max: Annotated[int, one_of(40, 300, 4_000)]
    net: Annotated[DatagramSettings, drawn_by(draw_datagrams, **PATHS)]
    wired: Annotated[bool, odds(1 / 2)]
    """Whether everybody speaks on byte streams, with all that ``BspMachine`` does, instead of datagrams."""
    bytes_per_second: Annotated[int, one_of(0, 0, 20_000, 1_000_000)]
    """Throughput of a byte stream; 0 is without limit."""
    commit_us: Annotated[int, one_of(0, 0, 2_000, 300_000)]
    """How long a disk takes, in microseconds; 0 is no time at all."""
    announces_crash: Annotated[bool, odds(1 / 2)]
    """Whether the others notice when a device crashes."""
    renews: Annotated[bool, odds(1 / 2)]
    """Whether every connection is made anew when the fault phase ends."""
    probes: Annotated[bool, odds(1 / 2)]
    """Whether everybody writes once more then; without it, only a device's own timers bring the rest."""
    faults: Annotated[BspFaults, each_of(BspFaults)]
    hostiles: Annotated[tuple[str, ...], some_of(HOSTILE_KINDS, (0, 1, 1, 2, 3))]
    """Kinds of hostile peers, see ``hostile``."""

    @property
    def link(self) -> LinkSettings:
        """What a byte stream is like."""
        return LinkSettings(
            latency_us=self.net.latency_us,
            jitter_us=self.net.jitter_us,
            bytes_per_second=self.bytes_per_second,
            pieces=0.3,
        )


def draw_bsp_plan(rng: random.Random) -> BspPlan:
    """Draw a network."""
    count = rng.randint(2, 6)
    connections = _draw_connections(rng, count)
    modes = tuple(rng.choice(MODES) for _ in range(count))
    groups = tuple(_draw_group(rng, count, connections) for _ in range(rng.choice((1, 2, 2, 3))))
    return draw(BspPlan, rng, modes=modes, connections=connections, groups=groups)


def _draw_connections(rng: random.Random, count: int) -> tuple[tuple[int, int], ...]:
    """Draw a tree over all devices and some connections more."""
    tree = [(rng.randrange(number), number) for number in range(1, count)]
    density = rng.choice((0.0, 0.3, 1.0))
    more = [pair for pair in combinations(range(count), 2) if pair not in tree and rng.random() < density]
    return (*tree, *more)


def _draw_group(rng: random.Random, count: int, connections: tuple[tuple[int, int], ...]) -> GroupPlan:
    """Let a group grow from one device along connections."""
    members = [rng.randrange(count)]
    for _ in range(rng.randrange(count)):
        beside = [a if b in members else b for a, b in connections if (a in members) != (b in members)]
        if beside:
            members.append(rng.choice(beside))
    late_us = (0, *(rng.choice((0, rng.randrange(LATE_US))) for _ in members[1:]))
    return GroupPlan(rng.choice(("opaque", "deps_v1")), tuple(members), late_us)
