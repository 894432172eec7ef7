"""The random plan of one BSP simulation: devices, their connections and groups, faults, and hostile peers."""

import random
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_MS
from waystation.sim.net.datagram import DatagramSettings
from waystation.sim.net.link import LinkSettings
from waystation.sim.plan import Plan, draw_datagrams, draw_rates

__all__ = ["HOSTILE_KINDS", "BspFaults", "BspPlan", "GroupPlan", "draw_bsp_plan"]

WRITES_PER_HOUR: Final = (1_000, 8_000)
LATE_US: Final = 20_000_000
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

    cuts: float = 0.0
    """A connection lets nothing through for a while, and no device is notified."""
    ends: float = 0.0
    """A connection ends, with all that is under way, and comes back after a while."""
    crashes: float = 0.0
    """A device loses all that is not on its disk."""
    quarrels: float = 0.0
    """Two devices do not share a group for a while."""
    deletions: float = 0.0
    """A device deletes a message that every member has."""


@dataclass(frozen=True, slots=True)
class BspPlan(Plan):
    """One seed's network."""

    modes: tuple[str, ...]
    """How each device hands messages over; as many as there are devices."""
    connections: tuple[tuple[int, int], ...]
    """Pairs of devices; all of them are joined somehow."""
    groups: tuple[GroupPlan, ...]
    writes_per_hour: float
    body_bytes_max: int
    net: DatagramSettings
    wired: bool
    """Whether everybody speaks on byte streams, with all that ``BspMachine`` does, instead of datagrams."""
    bytes_per_second: int
    """Throughput of a byte stream; 0 is without limit."""
    commit_us: int
    """How long a disk takes, in microseconds; 0 is no time at all."""
    announces_crash: bool
    """Whether the others notice when a device crashes."""
    renews: bool
    """Whether every connection is made anew when the fault phase ends."""
    probes: bool
    """Whether everybody writes once more then; without it, only a device's own timers bring the rest."""
    faults: BspFaults
    hostiles: tuple[str, ...]
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
    return BspPlan(
        modes=tuple(rng.choice(MODES) for _ in range(count)),
        connections=connections,
        groups=tuple(_draw_group(rng, count, connections) for _ in range(rng.choice((1, 2, 2, 3)))),
        writes_per_hour=rng.uniform(*WRITES_PER_HOUR),
        body_bytes_max=rng.choice((40, 300, 4_000)),
        net=_draw_net(rng),
        wired=rng.random() < 1 / 2,
        bytes_per_second=rng.choice((0, 0, 20_000, 1_000_000)),
        commit_us=rng.choice((0, 0, 2_000, 300_000)),
        announces_crash=rng.random() < 1 / 2,
        renews=rng.random() < 1 / 2,
        probes=rng.random() < 1 / 2,
        faults=_draw_faults(rng),
        hostiles=tuple(rng.choice(HOSTILE_KINDS) for _ in range(rng.choice((0, 1, 1, 2, 3)))),
    )


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


def _draw_net(rng: random.Random) -> DatagramSettings:
    ms = MICROSECONDS_PER_MS
    latencies, jitters, reorders = (1, 20, 100, 400), (0, 5, 500), (50, 2_000)
    return draw_datagrams(
        rng, [each * ms for each in latencies], [each * ms for each in jitters], [each * ms for each in reorders]
    )


def _draw_faults(rng: random.Random) -> BspFaults:
    return BspFaults(**draw_rates(rng, cuts=400.0, ends=400.0, crashes=300.0, quarrels=200.0, deletions=600.0))
