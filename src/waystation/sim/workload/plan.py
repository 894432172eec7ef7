"""Plans a workload before any event: the nodes, the time span and its slots, and which node is killed when.

The generator (``workload.generator``) makes it from a seed. Each consumer draws from its own named random stream.
Adding a scenario therefore leaves the honest load unchanged, event by event.
"""

import hashlib
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from waystation.core.errors import LocalError
from waystation.core.ids import node_id_of
from waystation.crypto.hashing import keyed_reference
from waystation.crypto.signing import KeyPair
from waystation.sim.workload.scenarios import DEFAULTS, Parameters, parameters_of

__all__ = ["DAY_US", "HOUR_US", "MINUTE_US", "SECOND_US", "START_US", "WEEK_DAYS", "NodePlan", "Plan", "make_plan"]

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US
START_US: Final = 1_779_667_200_000_000
"""2026-05-25 00:00 UTC, a Monday."""
WEEK_DAYS: Final = 7
"""Days for which a node keeps one reference key."""

_NODES_MAX: Final = 64
_DAYS_MAX: Final = 35
_SEGMENT_EVENTS: Final = 1_500  # events that are worth a file of their own
_SLOT_HOURS: Final = (1, 2, 3, 4, 6, 8, 12, 24)
_SAMPLE_MINUTES: Final = (1, 5, 15, 60)
_SAMPLES_SHARE: Final = 0.12  # of all events, before samples become rarer than one a minute
_KILL_EVERY_DAYS: Final = 4


@dataclass(slots=True)
class NodePlan:
    """One node: its key, its clock, and its reference keys by week."""

    index: int
    key_pair: KeyPair
    skew_us: int
    """By how much its clock is ahead."""
    node_id: str = field(init=False)
    _references: dict[tuple[int, bytes], bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.node_id = node_id_of(self.key_pair.public)

    def reference(self, week: int, identity: bytes) -> bytes:
        """Return what the node calls somebody in a week, and remember it."""
        known = self._references.get((week, identity))
        if known is None:
            known = self._references[week, identity] = self.reference_once(week, identity)
        return known

    def reference_once(self, week: int, identity: bytes) -> bytes:
        """Return the same of what will hardly come again."""
        key = hashlib.sha256(b"week %d of " % week + self.key_pair.seed).digest()
        return keyed_reference(key, identity)


@dataclass(frozen=True, slots=True)
class Plan:
    """The frame of one workload; times are microseconds UTC."""

    seed: int
    nodes: tuple[NodePlan, ...]
    days: int
    events: int
    scenarios: Mapping[str, Parameters]
    start_us: int
    slot_us: int
    sample_us: int
    """From one sample of a node to the next."""
    kills: frozenset[tuple[int, int]]
    """Node and slot at whose end the node is killed."""
    signed_per_day: int
    """Packets that are signed in a day, for all nodes together."""

    @property
    def end_us(self) -> int:
        """The first moment after the workload."""
        return self.start_us + self.days * DAY_US

    @property
    def slots(self) -> int:
        """How many pieces the time is cut into."""
        return self.days * DAY_US // self.slot_us

    @property
    def slot_events(self) -> float:
        """Events of one node in one slot, about."""
        return self.events / (self.slots * len(self.nodes))

    def stream(self, name: str) -> random.Random:
        """Return the generator that belongs to a name."""
        return random.Random(f"{self.seed}/{name}")  # noqa: S311 - a workload must be repeatable

    def week_of(self, at_us: int) -> int:
        """Return which reference key nodes use at a moment."""
        return (at_us - self.start_us) // (WEEK_DAYS * DAY_US)

    def is_quiet(self, at_us: int, margin_us: int = 40 * MINUTE_US) -> bool:
        """Return whether what begins now might be cut in two, by the end or by a new reference key."""
        later = at_us + margin_us
        return later >= self.end_us or self.week_of(at_us) != self.week_of(later)

    def param(self, scenario: str, name: str) -> int | None:
        """Return a parameter of a scenario, None when it is not played."""
        given = self.scenarios.get(scenario)
        return None if given is None else given[name]


def make_plan(
    seed: int,
    nodes: int,
    days: int,
    events: int,
    scenarios: Iterable[str] | Mapping[str, Mapping[str, int]],
    start_us: int,
    signed_per_day: int,
) -> Plan:
    """Return the frame of a workload.

    Raises:
        LocalError: A number is out of range, or a scenario or parameter is unknown.
    """
    if not (1 <= nodes <= _NODES_MAX and 1 <= days <= _DAYS_MAX and events >= 1 and signed_per_day >= 0):
        raise LocalError(f"a workload has 1 to {_NODES_MAX} nodes, 1 to {_DAYS_MAX} days and at least one event")
    if start_us % DAY_US:
        raise LocalError("a workload begins at midnight UTC")
    played = parameters_of(scenarios)
    slot_us = _slot_us(nodes, days, events)
    skewed = 1 % nodes if "clock_skew" in played else -1
    skew_us = played.get("clock_skew", DEFAULTS["clock_skew"])["seconds"] * SECOND_US
    everyone = tuple(_node(seed, index, skew_us if index == skewed else 0) for index in range(nodes))
    minutes = (each for each in _SAMPLE_MINUTES if nodes * days * 1_440 // each <= events * _SAMPLES_SHARE / 2)
    return Plan(
        seed,
        everyone,
        days,
        events,
        played,
        start_us,
        slot_us,
        next(minutes, _SAMPLE_MINUTES[-1]) * MINUTE_US,
        _kills(seed, nodes, days, days * DAY_US // slot_us),
        signed_per_day,
    )


def _slot_us(nodes: int, days: int, events: int) -> int:
    per_hour = events / (nodes * days * 24)
    return next((hours for hours in _SLOT_HOURS if per_hour * hours >= _SEGMENT_EVENTS), _SLOT_HOURS[-1]) * HOUR_US


def _node(seed: int, index: int, skew_us: int) -> NodePlan:
    return NodePlan(index, KeyPair.from_seed(hashlib.sha256(f"{seed}/node/{index}".encode()).digest()), skew_us)


def _kills(seed: int, nodes: int, days: int, slots: int) -> frozenset[tuple[int, int]]:
    rng = random.Random(f"{seed}/kills")  # noqa: S311 - a workload must be repeatable
    times = max(1, days // _KILL_EVERY_DAYS)
    return frozenset((node, rng.randrange(slots - 1)) for node in range(nodes) for _ in range(times) if slots > 1)
