"""Collects the expected results of a workload as plain dictionaries while its events are generated.

Tests and ``waystation pipeline generate`` compare or print the document. The generator of an event also records its
meaning. The pipeline's rules are not used.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from waystation.sim.workload.graphs import articulation_points, components

__all__ = ["Actor", "SegmentTruth", "Truth"]


class Actor(NamedTuple):
    """Somebody who must be found."""

    rule: str
    protocol: str
    actor_kind: str
    """``peer`` or ``source``."""
    node_id: str
    ref: str
    """Hexadecimal."""
    first_us: int
    last_us: int
    n: int


class SegmentTruth(NamedTuple):
    """What one file is."""

    path: str
    shipment: int
    thing: str
    """``journal`` or ``archive``."""
    state: str
    """``complete``, ``unsealed``, ``torn`` or ``foreign``."""
    oddities: tuple[str, ...]
    """Out of ``copied`` (has a copy), ``copy`` (is one), ``late``, ``empty``, ``shuffled``, ``lines_twice``, ``mixed``,
    ``open``."""
    lines_good: int
    lines_bad: int
    lines_twice: int
    """Of the good ones, how many are there for the second time."""
    rows_promised: int | None
    rows_acknowledged: int
    """Rows that the node took for written, first and last line included."""
    rows_lost: int
    """Of these, how many the tear took."""


class Truth:
    """What is known so far; ``document`` returns it as JSON takes it."""

    def __init__(self, node_ids: Iterable[str]) -> None:
        self.node_ids = list(node_ids)
        self.kinds: dict[str, Counter[str]] = {node_id: Counter() for node_id in self.node_ids}
        self.deliveries: dict[tuple[int, str, str], list[int]] = defaultdict(_nothing)
        self.verdicts: dict[tuple[int, str, str, str], list[int]] = defaultdict(_nothing)
        self.archived: dict[str, dict[str, list[str]]] = {node_id: {} for node_id in self.node_ids}
        self.bad_signatures: list[str] = []
        self.connections: dict[str, Counter[str]] = {node_id: Counter() for node_id in self.node_ids}
        self.relays: dict[str, dict[str, Any]] = {}
        self.actors: list[Actor] = []
        self.bsp: list[dict[str, Any]] = []
        self.links: dict[int, set[tuple[str, str]]] = {}
        self.lookups: dict[tuple[int, str, str], int] = {}
        self.dropped: dict[str, dict[str, list[str]]] = {}
        self.capacity: dict[tuple[str, str], dict[str, int]] = {}
        self.minutes: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.growth: dict[str, int] = {}
        self.segments: list[SegmentTruth] = []
        self.canaries: list[dict[str, str]] = []
        self.smuggled: Counter[str] = Counter()
        self.rejections: Counter[str] = Counter()

    def delivered(self, hour: int, protocol: str, outcome: str, n: int, size_bytes: int) -> None:
        """Count attempts that began in an hour and ended in an outcome."""
        entry = self.deliveries[hour, protocol, outcome]
        entry[0] += n
        entry[1] += size_bytes

    def judged(self, hour: int, verdict: str, detail: str | None, n: int, size_bytes: int) -> None:
        """Count packets of Strata that got a verdict in an hour."""
        entry = self.verdicts[hour, "strata", verdict, detail or ""]
        entry[0] += n
        entry[1] += size_bytes

    def capacity_day(self, node_id: str, day: str) -> dict[str, int]:
        """Return what is counted of a node and UTC date, to count on."""
        return self.capacity.setdefault((node_id, day), dict.fromkeys(_CAPACITY, 0))

    def worked(self, facts: dict[str, int], bits: int) -> None:
        """Count a proof of work that was accepted, in what ``capacity_day`` returned."""
        facts["pow_accepted"] += 1
        facts["pow_work"] += 1 << bits

    def document(self, about: dict[str, Any]) -> dict[str, Any]:
        """Return everything as objects, lists, texts and numbers; hours are Unix seconds."""
        return {
            **about,
            "counts": {
                "events": {node: dict(sorted(kinds.items())) for node, kinds in self.kinds.items()},
                "deliveries": _rows(self.deliveries, ("hour", "protocol", "outcome")),
                "packets": _rows(self.verdicts, ("hour", "protocol", "verdict", "detail")),
                "archived": {node: dict(sorted(days.items())) for node, days in self.archived.items()},
                "bad_signatures": sorted(self.bad_signatures),
                "connections": {node: dict(sorted(counts.items())) for node, counts in self.connections.items()},
            },
            "relays": self.relays,
            "actors": [actor._asdict() for actor in self.actors],
            "bsp": self.bsp,
            "mesh": [self._mesh_hour(hour) for hour in sorted({*self.links, *(key[0] for key in self.lookups)})],
            "consistency": {
                node: {day: sorted(ids) for day, ids in sorted(days.items())} for node, days in self.dropped.items()
            },
            "capacity": {
                "days": [
                    {"node_id": node, "day": day, **facts, "messages_p99": _p99(self.minutes[node, day])}
                    for (node, day), facts in sorted(self.capacity.items())
                ],
                "growth_bytes_day": self.growth,
            },
            "segments": [
                {**segment._asdict(), "oddities": list(segment.oddities)} for segment in sorted(self.segments)
            ],
            "canaries": self.canaries,
            "smuggled": dict(sorted(self.smuggled.items())),
            "rejections": dict(sorted(self.rejections.items())),
        }

    def _mesh_hour(self, hour: int) -> dict[str, Any]:
        links = sorted(self.links.get(hour, ()))
        looked = [(server, result, n) for (at, server, result), n in sorted(self.lookups.items()) if at == hour]
        return {
            "hour": hour,
            "links": [list(link) for link in links],
            "components": components(links),
            "articulation": articulation_points(links),
            "lookups": [{"server": server, "result": result, "n": n} for server, result, n in looked],
        }


_CAPACITY: Final = (
    *("samples", "peak_connections", "messages", "bytes_in", "bytes_out", "cpu_us"),
    *("memory_bytes", "store_bytes", "pow_accepted", "pow_turned_down", "pow_work"),
)


def _nothing() -> list[int]:
    """Return a number and a size of things that have not occurred yet."""
    return [0, 0]


def _p99(values: list[int]) -> int | None:
    """Return the smallest of the values that 99 of 100 do not exceed; None without one."""
    return sorted(values)[(len(values) * 99 + 99) // 100 - 1] if values else None


def _rows(counts: dict[Any, list[int]], names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{**dict(zip(names, key, strict=True)), "n": n, "bytes": size} for key, (n, size) in sorted(counts.items())]
