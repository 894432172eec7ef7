"""Generates MERK mesh events: links between nodes, their ends, look-up results, and the day on which the mesh splits.

The generator plays it. All nodes but the last form a ring; the last is linked only to the first, so losing the first
isolates it. Both ends report the end of a link, unless one of them was killed at that moment.
"""

from typing import Final

from waystation.journal.events import MeshLinkEnded, MeshLookup
from waystation.sim.workload.plan import DAY_US, HOUR_US, MINUTE_US, SECOND_US, Plan
from waystation.sim.workload.stage import Stage

__all__ = ["Mesh", "links_of"]

_SHARE: Final = 0.05
_LIFE_US: Final = (20 * MINUTE_US, 5 * HOUR_US)
_MARGIN_US: Final = 10 * SECOND_US  # no link begins or ends so near to a full hour: its two ends would see two hours
_RESULTS: Final = ("found",) * 8 + ("absent",) * 3 + ("timeout",)
_APART: Final = ("found", "absent", "absent", "timeout")


def links_of(nodes: int) -> list[tuple[int, int]]:
    """Return who is linked with whom, by index."""
    if nodes == 1:
        return []
    ring = nodes - 1
    pairs = (
        {(min(each, (each + 1) % ring), max(each, (each + 1) % ring)) for each in range(ring)} if ring > 1 else set()
    )
    return sorted({*pairs, (0, nodes - 1)})


class _Link:
    def __init__(self, pair: tuple[int, int], from_us: int, until_us: int) -> None:
        self.pair, self.from_us, self.until_us = pair, from_us, until_us


class Mesh:
    """Links and look-ups between all nodes."""

    def __init__(self, plan: Plan) -> None:
        self._rng = plan.stream("mesh")
        self._lookups = round(plan.slot_events * _SHARE)
        self._people = [self._rng.randbytes(32) for _ in range(200)]
        hours = plan.param("mesh_partition", "hours")
        day = min(plan.param("mesh_partition", "day") or 0, plan.days - 1)
        # Half an hour after noon: away from the hours' edges, and from those of most slots.
        self._split_us = plan.start_us + day * DAY_US + 12 * HOUR_US + 30 * MINUTE_US if hours else plan.end_us
        self._heal_us = min(self._split_us + (hours or 0) * HOUR_US, plan.end_us)
        self._streams = {pair: plan.stream(f"link {pair}") for pair in links_of(len(plan.nodes))}
        self._links = [self._begin(plan, pair, plan.start_us + _MARGIN_US) for pair in self._streams]
        self.expected = self._lookups + 2 * plan.slot_us / sum(_LIFE_US) * 2
        """About how many events a node has of these in a slot."""

    def play(self, stage: Stage) -> None:
        """Let a slot's links end and begin again, and look for clients."""
        for index in range(len(self._links)):
            while self._links[index].until_us < stage.end_us:
                self._links[index] = self._end(stage, self._links[index])
        for node in range(len(stage.plan.nodes)):
            self._look_up(stage, node)

    def _begin(self, plan: Plan, pair: tuple[int, int], from_us: int) -> _Link:
        from_us = _off_the_hour(from_us)
        if from_us >= plan.end_us - 3 * _MARGIN_US:
            return _never(plan, pair)
        until_us = _off_the_hour(from_us + self._streams[pair].randrange(*_LIFE_US))
        until_us = min(until_us, plan.end_us - _MARGIN_US, *self._kills_after(plan, pair, from_us))
        if self._is_cut(plan, pair):
            if from_us < self._split_us <= until_us:
                until_us = self._split_us
            elif self._split_us <= from_us < self._heal_us:
                return self._begin(plan, pair, self._heal_us) if self._heal_us < plan.end_us else _never(plan, pair)
        return _Link(pair, from_us, until_us)

    def _kills_after(self, plan: Plan, pair: tuple[int, int], at_us: int) -> list[int]:
        ends = (plan.start_us + (slot + 1) * plan.slot_us - _MARGIN_US for node, slot in plan.kills if node in pair)
        return [end_us for end_us in ends if end_us > at_us]

    def _is_cut(self, plan: Plan, pair: tuple[int, int]) -> bool:
        # The first half of the ring keeps the tail, so that each part still hangs together.
        last, half = len(plan.nodes) - 1, (len(plan.nodes) - 1) // 2
        one, other = (node < half or node == last for node in pair)
        return one != other

    def _end(self, stage: Stage, link: _Link) -> _Link:
        plan, rng = stage.plan, self._streams[link.pair]
        sent, received = rng.randrange(10_000), rng.randrange(10_000)
        last = link.until_us >= stage.end_us - _MARGIN_US
        lasted_us = link.until_us - link.from_us
        for node, other in (link.pair, link.pair[::-1]):
            out, into = (sent, received) if node == link.pair[0] else (received, sent)
            # A killed node reports nothing, nor does the one that still runs when the workload ends.
            if last and ((node, stage.slot) in plan.kills or self._runs_on(plan, stage.slot, node)):
                continue
            by, peer = plan.nodes[node], plan.nodes[other]
            named = by.reference(plan.week_of(link.until_us), peer.key_pair.public)
            counts = (int(node == link.pair[0]), lasted_us, out, into, out * 300, into * 300)
            stage.out[node].append(MeshLinkEnded(link.until_us, "merk", named, peer.node_id, *counts))
            self._note(stage, node, link)
        if last and stage.slot == plan.slots - 1:
            return _never(plan, link.pair)
        return self._begin(plan, link.pair, link.until_us + 2 * _MARGIN_US)

    def _note(self, stage: Stage, node: int, link: _Link) -> None:
        plan, truth = stage.plan, stage.truth
        one, other = sorted(plan.nodes[each].node_id for each in link.pair)
        for hour in range(stage.hour(node, link.from_us), stage.hour(node, link.until_us - 1) + 1, 3_600):
            truth.links.setdefault(hour, set()).add((one, other))

    def _runs_on(self, plan: Plan, slot: int, node: int) -> bool:
        return slot == plan.slots - 1 and node == len(plan.nodes) - 1

    def _look_up(self, stage: Stage, node: int) -> None:
        rng, plan = self._rng, stage.plan
        by, neighbours = plan.nodes[node], max(1, sum(node in pair for pair in self._streams))
        for _ in range(self._lookups):
            at_us = stage.begin_us + int(rng.random() * plan.slot_us)
            person, result, apart = rng.choice(self._people), rng.choice(_RESULTS), rng.choice(_APART)
            first_us = rng.randrange(500, 90_000)
            if self._split_us <= at_us < self._heal_us:
                result = apart
            found = int(result == "found")
            named = by.reference(plan.week_of(at_us), person)
            latency_us = first_us if found else None
            stage.out[node].append(MeshLookup(at_us, "merk", named, neighbours, found, latency_us, result))
            key = (stage.hour(node, at_us), by.node_id, result)
            stage.truth.lookups[key] = stage.truth.lookups.get(key, 0) + 1


def _off_the_hour(at_us: int) -> int:
    within = at_us % HOUR_US
    if within < _MARGIN_US:
        return at_us + _MARGIN_US
    return at_us + 2 * _MARGIN_US if within > HOUR_US - _MARGIN_US else at_us


def _never(plan: Plan, pair: tuple[int, int]) -> _Link:
    return _Link(pair, plan.end_us, plan.end_us)
