"""The MERK scenario: a mesh of up to twenty nodes, clients that move between them, hostile clients and nodes.

``sim.run`` makes it from a plan and drives its phases. Each node runs in its own ``World``, which takes the place of
the server, on the shared virtual clock. A node's dial reaches the world of the dialled node.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.merk.client.awaited_reads import AwaitedReads
from waystation.protocols.merk.client.machine import MerkClient
from waystation.protocols.merk.relay.machine import MerkRelay
from waystation.protocols.merk.settings import MerkSettings
from waystation.sim.chance import fork
from waystation.sim.invariants import Watch
from waystation.sim.merk import observations as seen
from waystation.sim.merk.client import Client, Connection
from waystation.sim.merk.context import MerkContext, address_of
from waystation.sim.merk.hostile import Hostile
from waystation.sim.merk.hostile_node import HostileNode
from waystation.sim.merk.invariants import merk_invariants
from waystation.sim.merk.mail import MailOwner
from waystation.sim.merk.node import MerkLink, MerkSite
from waystation.sim.merk.plan import MerkPlan, draw_merk_plan
from waystation.sim.scenario import Scenario
from waystation.sim.topology import edges_of
from waystation.sim.trace import Named

__all__ = ["MerkScenario"]

ARRIVE_US: Final = MICROSECONDS_PER_SECOND
HOSTILE_ARRIVE_US: Final = 10 * MICROSECONDS_PER_SECOND
STALL_US: Final = 8 * MICROSECONDS_PER_SECOND
PART_US: Final = 20 * MICROSECONDS_PER_SECOND
DOWN_US: Final = 3 * MICROSECONDS_PER_SECOND
FIND_US: Final = 110 * MICROSECONDS_PER_SECOND  # 8 dials of learnt addresses a minute, and what quiescing has left
STOOD_US: Final = 5 * MICROSECONDS_PER_SECOND
EMPTY_US: Final = 270 * MICROSECONDS_PER_SECOND  # longer than any timer of a relay: seen ids are kept for four minutes


class MerkScenario(Scenario[MerkPlan, MerkContext, MerkSite]):
    """One mesh drawn from one generator."""

    untraced = (seen.Remembered,)

    draw_plan = staticmethod(draw_merk_plan)
    make_relay: type[MerkRelay] = MerkRelay
    make_client: type[MerkClient] = MerkClient
    make_reads: type[AwaitedReads] = AwaitedReads

    def _build(self, rng: random.Random) -> None:
        plan = self.plan
        self._watch = Watch(merk_invariants())
        self._context = context = MerkContext(self._schedule, plan, self._observe, self.make_client, self.make_reads)
        edges = edges_of(plan.topology, plan.nodes, fork(rng))
        # A closed node accepts no connection: it must dial.
        self._edges = {(two, one) if two in plan.closed else (one, two) for one, two in edges}
        for one, two in self._edges:
            context.named[one].add(two)
            # A closed node takes nobody whose key has not answered where it dials, so it is not dialled.
            if plan.mutual and one not in plan.closed:
                context.named[two].add(one)
        self._sites = [self._make_site(fork(rng), node) for node in range(plan.nodes)]
        for site in self._sites:
            context.add_node(site.world, site.key_pair.public, site)
        self._clients = [
            Client(context, fork(rng), f"10.1.0.{number}", has_extensions=self._rng.random() < plan.client.extended)
            for number in range(plan.clients)
        ]
        self._owners = [
            MailOwner(context, fork(rng), f"10.4.0.{number}", f"10.5.0.{number}") for number in range(plan.mailboxes)
        ]
        self._hostiles: list[Hostile | HostileNode] = [
            Hostile(context, fork(rng), f"10.3.0.{number}", kind) for number, kind in enumerate(plan.hostiles)
        ]
        self._hostiles += [
            HostileNode(context, fork(rng), place, kind) for place, kind in enumerate(plan.hostile_nodes)
        ]
        self._note_plan()

    # Phases

    def probe(self) -> None:
        """Some time later, see that all nodes have found each other, and let every client write to every other."""
        self._schedule.after(FIND_US, self._probe)

    def leave(self) -> int:
        """Report what never came true, and let every actor go; return after which time nothing may be left."""
        self._context.report_pending()
        for owner in self._owners:
            owner.leave()
        for client in self._clients:
            client.leave()
        for site in self._sites:
            site.close()
        self._is_measuring = False
        return EMPTY_US

    def _arrive(self) -> None:
        for client in self._clients:
            self._within(ARRIVE_US, partial(client.start, self._clients))
        for owner in self._owners:
            self._within(ARRIVE_US, owner.start)
        for hostile in self._hostiles:
            self._within(HOSTILE_ARRIVE_US, hostile.come)

    def _plan_faults(self) -> None:
        faults = self.plan.faults
        often, lasting = self._recurring.often, self._recurring.duration
        often(faults.stalls, lambda: self._on_any_connection(lambda each: each.presence.hold_up(lasting(STALL_US))))
        often(faults.cuts, lambda: self._on_any_connection(lambda each: each.presence.lose()))
        often(faults.breaks, lambda: self._on_any_connection(lambda each: each.driver.port.stream.break_off()))
        often(faults.link_stalls, lambda: self._on_any_link(lambda each: each.presence.hold_up(lasting(STALL_US))))
        often(faults.link_cuts, self._part)
        often(faults.link_breaks, lambda: self._on_any_link(MerkLink.break_off))
        often(faults.crashes, lambda: self._any_site().crash(lasting(DOWN_US)))
        often(faults.stops, lambda: self._any_site().stop(lasting(DOWN_US)))

    def _heal(self) -> None:
        for hostile in self._hostiles:
            hostile.leave()
        for site in self._sites:
            site.heal()
            for link in site.links():
                if link.stream.faulted:
                    link.break_off()
        for owner in self._owners:
            owner.quiesce()
        for client in self._clients:
            for connection in client.connections():
                if connection.driver.faulted:
                    connection.driver.port.stream.break_off()
            client.quiesce()

    def _counting(self) -> Sequence[Client | MailOwner]:
        return [*self._clients, *self._owners]

    def _probe(self) -> None:
        for site in self._sites:
            linked = site.linked_keys()
            missing = [
                other.number
                for other in self._sites
                if self._is_expected(site.number, other.number)
                and not (self._is_linked(site.number, other.number) and other.key_pair.public.hex() in linked)
            ]
            self._observe(seen.Meshed(site.number, tuple(missing)))
            for url, is_stored in site.found():
                self._observe(seen.Remembered(site.number, url, is_stored))
        for client in self._clients:
            client.probe([other for other in self._clients if self._is_within_reach(client.node, other.node)])

    def _is_expected(self, one: int, other: int) -> bool:
        """Return whether two nodes must find each other: one of them can be dialled and would accept."""
        if one == other:
            return False
        if (one, other) in self._edges or (other, one) in self._edges:
            return True
        hidden, closed = self.plan.hidden, self.plan.closed
        return not (one in closed or other in closed or (one in hidden and other in hidden))

    def _is_linked(self, one: int, other: int) -> bool:
        return self._context.presences.is_linked(one, other, Instant(self._schedule.now - STOOD_US))

    def _is_within_reach(self, one: int | None, other: int | None) -> bool:
        return one is not None and other is not None and self._is_linked(one, other)

    # Faults

    def _on_any_connection(self, act: Callable[[Connection], object]) -> None:
        self._on_any(self._rng.choice(self._clients).connections(), act)

    def _on_any_link(self, act: Callable[[MerkLink], None]) -> None:
        self._on_any(self._any_site().links(), act)

    def _part(self) -> None:
        one, other = self._any_site(), self._any_site()
        if one is not other:
            one.part(other, self._recurring.duration(PART_US))

    def _make_site(self, rng: random.Random, node: int) -> MerkSite:
        trace, settings = Named(self._trace, f"n{node}"), self._settings(node)
        return MerkSite(self._context, rng, trace, node, settings, self.make_relay, self._on_event)

    def _settings(self, node: int) -> MerkSettings:
        plan, context = self.plan, self._context
        return MerkSettings(
            max_frame_bytes=plan.max_frame_bytes,
            peers=[address_of(other) for other in sorted(context.named[node])],
            accept_peers=node not in plan.closed,
            allow_private_peers=plan.allows_private,
            public_url="" if node in plan.hidden else address_of(node),
        )
