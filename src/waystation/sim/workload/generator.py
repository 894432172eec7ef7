"""Generates a workload: synthetic journals and archives of several nodes, and what the pipeline must find in them.

``waystation pipeline generate`` makes one from a seed and sizes. It goes through time slot by slot, has each generator
add events, and yields files, so a workload may be larger than memory.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from waystation.core.errors import LocalError
from waystation.sim.workload.attackers import Attackers
from waystation.sim.workload.deliveries import BHUMI, LPRP, MERK, Connections, Deliveries
from waystation.sim.workload.groups import Groups
from waystation.sim.workload.mesh import Mesh
from waystation.sim.workload.node_events import NodeEvents
from waystation.sim.workload.packets import Packets
from waystation.sim.workload.plan import START_US, Plan, make_plan
from waystation.sim.workload.relays import Relays
from waystation.sim.workload.scenarios import HONEST
from waystation.sim.workload.stage import Stage
from waystation.sim.workload.truth import Truth
from waystation.sim.workload.writer import WorkloadFile, Writer

__all__ = ["SIGNED_PER_DAY", "Workload"]

SIGNED_PER_DAY: Final = 2_000
"""Packets that are signed in a day at most, unless the caller says otherwise: signing is what costs."""

_FORMAT: Final = 1
_LPRP_SHARE: Final = 0.12
_MERK_SHARE: Final = 0.10
_CONNECTIONS_SHARE: Final = 0.02  # of each of four protocols, two events each
_BHUMI_EVENTS: Final = 1.62  # of one attempt, on average


class Workload:
    """What nodes record in some days, file by file; the same arguments give the same bytes."""

    def __init__(
        self,
        seed: int,
        nodes: int,
        days: int,
        events: int,
        scenarios: Iterable[str] | Mapping[str, Mapping[str, int]] = HONEST,
        *,
        start_us: int = START_US,
        signed_per_day: int = SIGNED_PER_DAY,
    ) -> None:
        """Plan a workload.

        Args:
            seed: Decides everything that is left to chance.
            nodes: How many nodes, 1 to 64; silent droppers want at least 4, partitions at least 2.
            days: How many UTC dates, 1 to 35.
            events: How many events the honest load has, all nodes together, about.
            scenarios: Names, or names with parameters (``scenarios.DEFAULTS``).
            start_us: Midnight UTC of the first date.
            signed_per_day: Packets to sign in a day at most.

        Raises:
            LocalError: A number is out of range, or a scenario or parameter is unknown.
        """
        self.plan: Final[Plan] = make_plan(seed, nodes, days, events, scenarios, start_us, signed_per_day)
        self._truth: dict[str, Any] | None = None

    def files(self) -> Iterator[WorkloadFile]:
        """Yield every file once, in order of time; one slot is in memory at a time."""
        plan = self.plan
        truth = Truth(node.node_id for node in plan.nodes)
        stage, writer, topics = Stage(plan, truth), Writer(plan), _Topics(plan)
        for slot in range(plan.slots):
            stage.advance()
            topics.play(stage)
            yield from writer.write(stage)
            for node in range(len(plan.nodes)):
                if (node, slot) in plan.kills:
                    stage.kill(node)
        stage.close()
        truth.bsp = topics.groups.describe(plan)
        truth.relays = topics.relays.describe(plan)
        self._truth = truth.document(_about(plan))

    def truth(self) -> dict[str, Any]:
        """Return what is true of the workload, as JSON takes it.

        Raises:
            LocalError: ``files`` was not read to its end yet.
        """
        if self._truth is None:
            raise LocalError("the truth of a workload is known when all of its files are")
        return self._truth


class _Topic(Protocol):
    """Something that happens in every slot."""

    def play(self, stage: Stage) -> None:
        """Let it happen."""


class _Topics:
    """Everything that happens, in the order in which it is played."""

    def __init__(self, plan: Plan) -> None:
        self.groups, self.relays = Groups(plan), Relays(plan)
        node_events, mesh, packets = NodeEvents(plan), Mesh(plan), Packets(plan)
        share, rng = plan.slot_events, plan.stream("people")
        people = [rng.randbytes(32) for _ in range(max(100, plan.events // 500))]
        fixed = sum(topic.expected for topic in (self.groups, self.relays, node_events, mesh, packets))
        fixed += share * (_LPRP_SHARE + _MERK_SHARE + 8 * _CONNECTIONS_SHARE)
        # Bhumi gets what is left: it is the busiest protocol.
        bhumi = max(share - fixed, share * 0.05) / _BHUMI_EVENTS
        protocols = ("bhumi", "lprp", "merk", "bsp")
        self._all: list[_Topic] = [
            *(node_events, mesh, packets, self.groups, self.relays),
            *(Connections(plan, protocol, share * _CONNECTIONS_SHARE, people) for protocol in protocols),
            Deliveries(plan, BHUMI, bhumi, len(people)),
            Deliveries(plan, LPRP, share * _LPRP_SHARE / 1.95, len(people)),
            Deliveries(plan, MERK, share * _MERK_SHARE, len(people)),
            Attackers(plan),
        ]

    def play(self, stage: Stage) -> None:
        """Let a slot happen."""
        for topic in self._all:
            topic.play(stage)


def _about(plan: Plan) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "seed": plan.seed,
        "days": plan.days,
        "start_us": plan.start_us,
        "end_us": plan.end_us,
        "nodes": [
            {"node_id": node.node_id, "public_key": node.key_pair.public.hex(), "skew_us": node.skew_us}
            for node in plan.nodes
        ],
        "scenarios": {name: dict(given) for name, given in plan.scenarios.items()},
        "kills": [
            {"node_id": plan.nodes[node].node_id, "at_us": plan.start_us + (slot + 1) * plan.slot_us}
            for node, slot in sorted(plan.kills)
        ],
    }
