"""A MERK mesh: up to twenty nodes, clients that move between them, hostile clients and nodes, and their links.

Each node is a ``World`` of its own on the common clock; what its relay wants dialled reaches the other worlds.
``MerkTown`` is the scenario that ``run`` drives.
"""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.journal.events import Event
from waystation.protocols.merk.client import MerkClient
from waystation.protocols.merk.relay import MerkRelay
from waystation.protocols.merk.settings import MerkSettings
from waystation.sim import merk_observations as seen
from waystation.sim.chance import Trouble, fork
from waystation.sim.invariants import Watch
from waystation.sim.merk_client import Client
from waystation.sim.merk_commons import MakeClient, MerkCommons, address_of
from waystation.sim.merk_hostile import Hostile
from waystation.sim.merk_hostile_node import HostileNode
from waystation.sim.merk_invariants import merk_invariants
from waystation.sim.merk_line import Line
from waystation.sim.merk_node import House, MakeMerkRelay, Trunk
from waystation.sim.merk_plan import MerkPlan, draw_merk_plan, edges_of
from waystation.sim.schedule import Schedule
from waystation.sim.trace import Named, Trace, canonical

__all__ = ["MerkTown"]

COME_US: Final = MICROSECONDS_PER_SECOND
HOSTILE_COME_US: Final = 10 * MICROSECONDS_PER_SECOND
SIZES_EVERY_US: Final = 10 * MICROSECONDS_PER_SECOND
STALL_US: Final = 8 * MICROSECONDS_PER_SECOND
PART_US: Final = 20 * MICROSECONDS_PER_SECOND
DOWN_US: Final = 3 * MICROSECONDS_PER_SECOND
FIND_US: Final = 110 * MICROSECONDS_PER_SECOND  # 8 dials of learnt addresses a minute, and what the calm has left
STOOD_US: Final = 5 * MICROSECONDS_PER_SECOND
EMPTY_US: Final = 270 * MICROSECONDS_PER_SECOND  # longer than any timer of a relay: seen ids are kept for four minutes


class MerkTown:
    """One world drawn from one generator."""

    def __init__(
        self,
        schedule: Schedule,
        rng: random.Random,
        trace: Trace,
        *,
        make_relay: MakeMerkRelay = MerkRelay,
        make_client: MakeClient = MerkClient,
        plan: MerkPlan | None = None,
    ) -> None:
        """Build the town; nothing happens before ``start``.

        Args:
            schedule: The clock.
            rng: Everything drawn comes from here.
            trace: Gets a line for everything that happens.
            make_relay: Makes the relays of each life.
            make_client: Makes the clients' machines.
            plan: What happens; drawn when None.
        """
        self.plan = plan = plan or draw_merk_plan(fork(rng))
        self._schedule = schedule
        self._trace = trace
        self._rng = fork(rng)
        self._is_measuring = True
        self._watch = Watch(merk_invariants())
        self._commons = commons = MerkCommons(schedule, plan, self._observe, make_client)
        self._trouble = Trouble(schedule, self._rng, lambda: self._commons.troubled)
        edges = edges_of(plan.topology, plan.nodes, fork(rng))
        # Nobody gets into a closed node: it must dial.
        self._edges = {(two, one) if two in plan.closed else (one, two) for one, two in edges}
        self._houses = [
            House(commons, fork(rng), Named(trace, f"n{node}"), node, self._settings(node), make_relay, self._on_event)
            for node in range(plan.nodes)
        ]
        for house in self._houses:
            commons.add_node(house.world, house.key_pair.public, house)
        self._clients = [
            Client(commons, fork(rng), f"10.1.0.{number}", has_extensions=self._rng.random() < plan.client.extended)
            for number in range(plan.clients)
        ]
        self._hostiles: list[Hostile | HostileNode] = [
            Hostile(commons, fork(rng), f"10.3.0.{number}", kind) for number, kind in enumerate(plan.hostiles)
        ]
        self._hostiles += [
            HostileNode(commons, fork(rng), place, kind) for place, kind in enumerate(plan.hostile_nodes)
        ]
        trace.note(schedule.now, f"plan {plan.describe()}")

    # Phases

    def start(self) -> None:
        """Let everybody come and the trouble begin."""
        for client in self._clients:
            self._schedule.after(self._rng.randrange(COME_US), partial(client.start, self._clients))
        for hostile in self._hostiles:
            self._schedule.after(self._rng.randrange(HOSTILE_COME_US), hostile.come)
        faults = self.plan.faults
        often, lasting = self._trouble.often, self._trouble.duration
        often(faults.stalls, lambda: self._on_any_line(self._hold_up))
        often(faults.cuts, lambda: self._on_any_line(Client.lose))
        often(faults.breaks, lambda: self._on_any_line(lambda _who, line: line.port.stream.break_off()))
        often(faults.link_stalls, lambda: self._on_any_trunk(lambda each: each.hold_up(lasting(STALL_US))))
        often(faults.link_cuts, self._part)
        often(faults.link_breaks, lambda: self._on_any_trunk(Trunk.break_off))
        often(faults.crashes, lambda: self._rng.choice(self._houses).crash(lasting(DOWN_US)))
        often(faults.stops, lambda: self._rng.choice(self._houses).stop(lasting(DOWN_US)))
        self._measure()

    def calm(self) -> None:
        """End the trouble: no more faults, no more bad habits; whoever is away comes home."""
        self._commons.troubled = False
        for hostile in self._hostiles:
            hostile.leave()
        for house in self._houses:
            house.heal()
            for trunk in house.trunks():
                if trunk.stream.faulted:
                    trunk.break_off()
        for client in self._clients:
            for line in client.lines():
                if line.port.stream.faulted:
                    line.port.stream.break_off()
            client.calm()

    def probe(self) -> None:
        """Some time later, see that all nodes have found each other, and let everybody write to everybody."""
        self._schedule.after(FIND_US, self._probe)

    def leave(self) -> int:
        """Hear who did not get what is due, and let everybody go; return after which time nothing may be left."""
        for what in self._commons.hopes.values():
            self._observe(seen.LeftHanging(what))
        for client in self._clients:
            client.leave()
        for house in self._houses:
            house.rest()
        self._is_measuring = False
        return EMPTY_US

    def finish(self) -> None:
        """Look at what is left."""
        for house in self._houses:
            house.measure(settled=True)

    def outcomes(self) -> dict[str, int]:
        """Return what senders were told and readers got, counted."""
        total: Counter[str] = Counter()
        for client in self._clients:
            total.update(client.outcomes)
        return dict(sorted(total.items()))

    def _probe(self) -> None:
        for house in self._houses:
            linked = house.linked_keys()
            missing = [
                other.number
                for other in self._houses
                if self._is_expected(house.number, other.number)
                and not (self._stands(house.number, other.number) and other.key_pair.public.hex() in linked)
            ]
            self._observe(seen.Meshed(house.number, tuple(missing)))
        for client in self._clients:
            client.probe([other for other in self._clients if self._is_within_reach(client.node, other.node)])

    def _is_expected(self, one: int, other: int) -> bool:
        """Return whether two nodes must find each other: one of them can be dialled and would be let in."""
        if one == other:
            return False
        if (one, other) in self._edges or (other, one) in self._edges:
            return True
        hidden, closed = self.plan.hidden, self.plan.closed
        return not (one in closed or other in closed or (one in hidden and other in hidden))

    def _stands(self, one: int, other: int) -> bool:
        return self._commons.where.is_linked(one, other, Instant(self._schedule.now - STOOD_US))

    def _is_within_reach(self, one: int | None, other: int | None) -> bool:
        return one is not None and other is not None and self._stands(one, other)

    # Observing

    def _observe(self, observation: Any) -> None:
        now = self._schedule.now
        has_line = isinstance(observation, seen.Meshed)
        self._trace.note(now, str(observation) if has_line else canonical(observation))
        self._watch.observe(observation, now)

    def _on_event(self, event: Event) -> None:
        """Trace what a relay journals."""
        self._trace.note(self._schedule.now, canonical(event))

    def _measure(self) -> None:
        if self._is_measuring:
            for house in self._houses:
                house.measure(settled=False)
            self._schedule.after(SIZES_EVERY_US, self._measure)

    # Trouble

    def _on_any_line(self, act: Callable[[Client, Line], None]) -> None:
        client = self._rng.choice(self._clients)
        lines = client.lines()
        if lines:
            act(client, self._rng.choice(lines))

    def _hold_up(self, client: Client, line: Line) -> None:
        client.hold_up(line, self._trouble.duration(STALL_US))

    def _on_any_trunk(self, act: Callable[[Trunk], None]) -> None:
        trunks = self._rng.choice(self._houses).trunks()
        if trunks:
            act(self._rng.choice(trunks))

    def _part(self) -> None:
        one, other = self._rng.choice(self._houses), self._rng.choice(self._houses)
        if one is not other:
            one.part(other, self._trouble.duration(PART_US))

    def _settings(self, node: int) -> MerkSettings:
        plan = self.plan
        return MerkSettings(
            max_frame_bytes=plan.max_frame_bytes,
            peers=[address_of(other) for one, other in sorted(self._edges) if one == node],
            accept_peers=node not in plan.closed,
            allow_private_peers=plan.allows_private,
            public_url="" if node in plan.hidden else address_of(node),
        )
