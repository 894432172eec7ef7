"""Generates delivery and connection events of Bhumi, LPRP and MERK, including the irregularities of honest clients.

The generator plays it for each slot (a short span of time): events go to ``stage``, what they mean to ``truth``.
Several retries share one outcome. A lost answer is requested again and served from the cache. Recipients may be
offline. A capability may be used twice after a lost acknowledgement. Work in progress when a node is killed stays
unfinished.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from waystation.core.facts import Outcome
from waystation.journal.events import DeliveryAccepted, DeliveryFinished, PeerIdentified, PeerLeft
from waystation.sim.workload.plan import HOUR_US, MINUTE_US, Plan
from waystation.sim.workload.stage import Stage

__all__ = ["BHUMI", "LPRP", "MERK", "UNFINISHED", "Connections", "Deliveries", "Habit"]

UNFINISHED: Final = "unfinished"
"""What truth calls the outcome of an attempt that has none."""

_LATENCY_MAX_US: Final = 6 * HOUR_US
_BYTES: Final = (64, 256, 1_024, 4_096)
_RETRIES: Final = (1, 1, 1, 1, 1, 1, 1, 2, 2, 3)


class Habit(NamedTuple):
    """How attempts of one protocol go."""

    protocol: str
    answered: tuple[tuple[float, Outcome, float], ...]
    """Up to which draw, what outcome, after how many microseconds on average."""
    at_once: tuple[tuple[float, Outcome], ...]
    """Up to which draw, what outcome known at once."""
    reported_twice: float
    """Share of answered attempts whose acceptance has an event of its own."""
    gathered_max: int
    """How many attempts one event may stand for, of those known at once."""


BHUMI: Final = Habit(
    "bhumi",
    ((0.78, Outcome.OK, 45_000), (0.81, Outcome.TIMEOUT, 30e6), (0.83, Outcome.GONE, 4e6)),
    ((0.92, Outcome.OFFLINE), (0.96, Outcome.CACHED), (0.985, Outcome.BAD_CAPABILITY), (1.0, Outcome.REFUSED)),
    0.75,
    1,
)
LPRP: Final = Habit(
    "lprp",
    ((0.93, Outcome.OK, 9e8), (0.95, Outcome.GONE, 3e9)),
    ((0.99, Outcome.REFUSED), (1.0, Outcome.OFFLINE)),
    1.0,
    1,
)
MERK: Final = Habit("merk", (), ((0.95, Outcome.OK), (0.99, Outcome.OFFLINE), (1.0, Outcome.REFUSED)), 0.0, 6)


class Deliveries:
    """Attempts of one protocol at every node."""

    def __init__(self, plan: Plan, habit: Habit, attempts: float, recipients: int) -> None:
        """Prepare ``attempts`` a node and slot, to so many recipients of whom a few get most."""
        self._habit = habit
        self._rng = plan.stream(habit.protocol)
        self._attempts = round(attempts)
        self._people = [self._rng.randbytes(32) for _ in range(recipients)]
        # A node's run has one name for all protocols, and each counts from 0: the protocol distinguishes them.
        runs = plan.stream("runs")
        self._boots = [runs.randbytes(8) for _ in plan.nodes]
        self._numbers = [0] * len(plan.nodes)
        self._references: dict[tuple[int, int], list[bytes]] = {}

    def references(self, plan: Plan, node: int, week: int) -> list[bytes]:
        """Return what a node calls the recipients in a week."""
        if (node, week) not in self._references:
            named = plan.nodes[node].reference_once
            self._references[node, week] = [named(week, person) for person in self._people]
        return self._references[node, week]

    def play(self, stage: Stage) -> None:
        """Let a slot's attempts happen."""
        for node in range(len(stage.plan.nodes)):
            self._play_node(stage, node)

    def _play_node(self, stage: Stage, node: int) -> None:
        habit, random, boot = self._habit, self._rng.random, self._boots[node]
        people = self.references(stage.plan, node, stage.plan.week_of(stage.begin_us))
        answered_below = habit.answered[-1][0] if habit.answered else 0.0
        begin_us, slot_us, count = stage.begin_us, stage.plan.slot_us, len(people)
        append, protocol, most = stage.out[node].append, habit.protocol, habit.gathered_max
        for number in range(self._numbers[node], self._numbers[node] + self._attempts):
            at_us = begin_us + int(random() * slot_us)
            attempt = boot + number.to_bytes(8, "big")
            person = people[int(random() ** 2 * count)]
            draw, size = random(), _BYTES[int(random() * 4)]
            if draw < answered_below:
                self._answer(stage, node, at_us, attempt, person, draw, size)
                continue
            outcome = next(each for below, each in habit.at_once if draw < below)
            tries = 1 + int(random() * most)
            carried = size * tries if outcome in _CARRIES else 0
            append(DeliveryFinished(at_us, protocol, attempt, person, outcome, None, carried, tries))
            stage.truth.delivered(stage.hour(node, at_us), protocol, outcome.value, tries, carried)
        self._numbers[node] += self._attempts

    def _answer(
        self, stage: Stage, node: int, at_us: int, attempt: bytes, person: bytes, draw: float, size: int
    ) -> None:
        habit, random = self._habit, self._rng.random
        outcome, mean_us = next((each, mean_us) for below, each, mean_us in habit.answered if draw < below)
        # A long tail, as real latencies have, without the logarithms of a real distribution.
        latency_us = min(1 + int(mean_us * (0.3 + random()) / (0.05 + random())), _LATENCY_MAX_US)
        is_reported = random() < habit.reported_twice
        reply = size // 2 if outcome is Outcome.OK else 0
        tries = _RETRIES[int(random() * 10)]
        carried = reply if is_reported else size + reply
        hour, count = stage.hour(node, at_us), stage.truth.delivered
        if is_reported:
            stage.out[node].append(DeliveryAccepted(at_us, habit.protocol, attempt, person, size))
        ends_us = at_us + latency_us
        finished = DeliveryFinished(ends_us, habit.protocol, attempt, person, outcome, latency_us, carried, tries)
        if ends_us < stage.end_us:
            stage.out[node].append(finished)
            count(hour, habit.protocol, outcome.value, 1, size + reply)
            return
        done = partial(count, hour, habit.protocol, outcome.value, 1, size + reply)
        lost = partial(count, hour, habit.protocol, UNFINISHED, 1, size) if is_reported else _nothing
        stage.later(node, finished, done, lost)


class Connections:
    """Identified connections of one protocol: most end in good order, some outlive the node they were made to."""

    def __init__(self, plan: Plan, protocol: str, connections: float, people: Sequence[bytes]) -> None:
        """Prepare so many new connections a node and slot."""
        self._protocol = protocol
        self._rng = plan.stream(f"{protocol} connections")
        self._connections = round(connections)
        self._people = people

    def play(self, stage: Stage) -> None:
        """Let a slot's connections begin."""
        rng, plan = self._rng, stage.plan
        for node in plan.nodes:
            counts = stage.truth.connections[node.node_id]
            for _ in range(self._connections):
                at_us = stage.begin_us + int(rng.random() * plan.slot_us)
                left_us = at_us + 1 + int(rng.expovariate(1.0) * 40 * MINUTE_US)
                conn, person = rng.randbytes(8), self._people[int(rng.random() * len(self._people))]
                reason, received = rng.choice(_REASONS), rng.randrange(100, 1_000_000)
                peer = node.reference(plan.week_of(at_us), person)
                stage.out[node.index].append(PeerIdentified(at_us, self._protocol, conn, peer))
                counts[f"{self._protocol}_opened"] += 1
                peer = node.reference(plan.week_of(left_us), person)
                left = PeerLeft(left_us, self._protocol, conn, peer, reason, received, received // 3)
                stage.later(node.index, left, partial(counts.update, [f"{self._protocol}_closed"]), _nothing)


def _nothing() -> None:
    """What was not recorded leaves no trace."""


_CARRIES: Final = frozenset({Outcome.OK, Outcome.CACHED})
_REASONS: Final = ("closed", "closed", "closed", "idle_timeout", "replaced")
