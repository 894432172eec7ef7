"""The Bhumi scenario: relays with or without gossip, devices, senders, look-ups, adversaries, and link faults.

``sim.run`` makes it from a plan. Each relay runs in its own ``World`` on the shared clock. A dial reaches the other
relay's world unless the two are partitioned. ``run`` drives ``BhumiScenario`` through its phases.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_MS, MICROSECONDS_PER_SECOND
from waystation.crypto.hashing import keyed_reference
from waystation.journal.events import Event
from waystation.protocols.bhumi.client.device import DeviceClient
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.sim.bhumi import observations as seen
from waystation.sim.bhumi.context import ROUND_US, BhumiContext, address_of
from waystation.sim.bhumi.device import Device
from waystation.sim.bhumi.hostile import HostileClient
from waystation.sim.bhumi.hostile_relay import HostileRelay
from waystation.sim.bhumi.invariants import bhumi_invariants
from waystation.sim.bhumi.lookups import Searcher
from waystation.sim.bhumi.plan import BhumiPlan, draw_core_plan, draw_large_plan, draw_plan
from waystation.sim.bhumi.sender import Sender
from waystation.sim.bhumi.site import BhumiSite
from waystation.sim.chance import fork
from waystation.sim.invariants import Watch
from waystation.sim.net.link import Stream
from waystation.sim.scenario import Counting, Scenario
from waystation.sim.site import NodeLink
from waystation.sim.topology import edges_of
from waystation.sim.trace import Named

__all__ = ["BhumiScenario", "core_scenario", "large_scenario"]

ARRIVE_US: Final = MICROSECONDS_PER_SECOND
HOSTILE_ARRIVE_US: Final = 10 * MICROSECONDS_PER_SECOND
STALL_US: Final = 8 * MICROSECONDS_PER_SECOND
CORE_STALL_US: Final = 20 * MICROSECONDS_PER_SECOND
PART_US: Final = 30 * MICROSECONDS_PER_SECOND
DOWN_US: Final = 3 * MICROSECONDS_PER_SECOND
LOOKS_PER_RELAY: Final = 2
TIMERS_US: Final = 150 * MICROSECONDS_PER_SECOND  # longer than any timer of a connection
ADVERTS_US: Final = 3_900 * MICROSECONDS_PER_SECOND  # longer than an advert lives by the clock that is off the most


class BhumiScenario(Scenario[BhumiPlan, BhumiContext, BhumiSite]):
    """One network drawn from one generator."""

    untraced = (
        seen.RecordReceived,
        seen.RecordSent,
        seen.FrameSent,
        seen.QueryReceived,
        seen.QueryAnswered,
        seen.AnswerArrived,
        seen.Connected,
        seen.Journalled,
        seen.NodeSized,
        seen.Participants,
    )

    draw_plan = staticmethod(draw_plan)
    make_relay: type[BhumiRelay] = BhumiRelay
    make_device: type[DeviceClient] = DeviceClient
    device_kind: type[Device] = Device

    def _build(self, rng: random.Random) -> None:
        plan = self.plan
        self._watch = Watch(bhumi_invariants(plan.relay.response_ttl_ms))
        self._context = context = BhumiContext(self._schedule, plan, fork(rng), self._observe)
        self._edges = edges_of(plan.topology, plan.relays, fork(rng))
        self._sites = [self._make_site(fork(rng), node) for node in range(plan.relays)]
        for site in self._sites:
            context.add_relay(site.world, site.key_pair.public, site)
        self._devices = [
            self.device_kind(context, fork(rng), f"10.1.{number // 200}.{number % 200}", self.make_device)
            for number in range(plan.devices)
        ]
        identities = [device.identity for device in self._devices]
        self._senders = [
            Sender(context, fork(rng), f"10.2.0.{number}", self._devices) for number in range(plan.senders)
        ]
        self._searcher = Searcher(context, fork(rng), "10.2.1.0", identities)
        self._clients: list[Device | Sender] = [*self._devices, *self._senders]
        self._hostile_clients = [
            HostileClient(context, fork(rng), f"10.3.0.{number}", kind, identities)
            for number, kind in enumerate(plan.hostiles)
        ]
        self._hostile_relays = [
            HostileRelay(context, fork(rng), place, kind) for place, kind in enumerate(plan.hostile_relays)
        ]
        self._hostiles: list[HostileClient | HostileRelay] = [*self._hostile_clients, *self._hostile_relays]
        self._note_plan()

    # Phases

    def probe(self) -> None:
        """Let every sender find one more device, and look devices up at every relay."""
        for sender in self._senders:
            sender.probe()
        for node in range(self.plan.relays if self.plan.gossip else 0):
            for _ in range(LOOKS_PER_RELAY):
                self._searcher.look(node, self._rng.choice(self._devices).identity)

    def leave(self) -> int:
        """Observe who did not get what is due, and let every client go; return after which time nothing may be left."""
        right, wrong = self._searcher.outcomes["lookups_right"], self._searcher.outcomes["lookups_wrong"]
        self._observe(seen.Tallied(right + wrong, right, self.plan.is_faultless))
        self._context.report_pending()
        for client in self._clients:
            client.leave()
        for site in self._sites:
            site.close()
        self._is_measuring = False
        return ADVERTS_US if self.plan.gossip else self.plan.relay.response_ttl_ms * MICROSECONDS_PER_MS + TIMERS_US

    def _arrive(self) -> None:
        self._name_participants()
        for device in self._devices:
            self._within(ARRIVE_US, device.start)
        for sender in self._senders:
            sender.start()
        if self.plan.lookups_per_hour > 0:
            self._schedule.after(ROUND_US, self._searcher.start)
        for hostile in self._hostiles:
            self._within(HOSTILE_ARRIVE_US, hostile.come)

    def _plan_faults(self) -> None:
        faults = self.plan.faults
        stall_us = STALL_US if self.plan.gossip else CORE_STALL_US
        often, lasting = self._recurring.often, self._recurring.duration
        often(faults.stalls, lambda: self._on_any(self._streams(), lambda stream: stream.stall(lasting(stall_us))))
        often(faults.breaks, lambda: self._on_any(self._streams(), Stream.break_off))
        often(self.plan.cuts, lambda: self._on_any(self._streams(), Stream.cut))
        often(faults.link_stalls, lambda: self._on_any(self._trunks(), lambda each: each.stall(lasting(STALL_US))))
        often(faults.link_cuts, lambda: self._on_any(self._trunks(), Stream.cut))
        often(faults.link_breaks, lambda: self._on_any(self._trunks(), Stream.break_off))
        often(faults.partitions, self._part)
        often(faults.crashes, lambda: self._any_site().crash(lasting(DOWN_US)))
        often(faults.stops, lambda: self._any_site().stop(lasting(DOWN_US)))

    def _heal(self) -> None:
        """Let clients notice links that failed; relays have their own timers."""
        self._context.far_side = frozenset()
        for hostile in self._hostiles:
            hostile.leave()
        for link in self._links():
            if link.stream.faulted:
                link.stream.break_off()
        for client in self._clients:
            for driver in client.drivers():
                if driver.port.stream.is_cut:
                    driver.port.stream.give_up()
                elif driver.faulted:
                    driver.port.stream.break_off()

    def _counting(self) -> Sequence[Counting]:
        return [*self._senders, self._searcher]

    # Observing

    def _on_event(self, event: Event) -> None:
        """Trace and judge what a relay journals."""
        super()._on_event(event)
        self._observe(seen.Journalled(event))

    def _name_participants(self) -> None:
        """Let the invariants know every identity, and every address that no event may show."""
        hostiles = [each.identity for each in self._hostile_clients] + [
            each.key_pair.public for each in self._hostile_relays
        ]
        receivers = [device.identity for device in self._devices] + hostiles + self._context.keys
        senders = [sender.key_pair.public for sender in self._senders]
        keys = [site.world.recorder_key for site in self._sites]
        hidden = (*receivers, *senders, *(keyed_reference(key, sender) for key in keys for sender in senders))
        references = frozenset(keyed_reference(key, identity) for key in keys for identity in receivers)
        self._observe(seen.Participants(references, hidden, tuple(sender.host for sender in self._senders)))

    # Faults

    def _links(self) -> list[NodeLink]:
        return [link for site in self._sites for link in site.links()]

    def _streams(self) -> list[Stream]:
        """Return all connections of one relay."""
        return self._any_site().world.streams()

    def _trunks(self) -> list[Stream]:
        """Return the connections to other relays that one relay has dialled."""
        return [link.stream for link in self._any_site().links()]

    def _part(self) -> None:
        """Let the relays fall into two parts; what passes between them stalls, as TCP does, or is lost for good."""
        context = self._context
        if context.far_side:
            return
        count = self._rng.randrange(self.plan.relays)
        context.far_side = frozenset(self._rng.sample(range(self.plan.relays), count))
        duration_us, is_lost = self._recurring.duration(PART_US), self._rng.random() < 1 / 2
        for link in self._links():
            if link.other is not None and context.are_parted(link.node, link.other):
                if is_lost:
                    link.stream.cut()
                else:
                    link.stream.stall(duration_us)
        self._trace.note(self._schedule.now, f"parted {sorted(context.far_side)} for {duration_us}")
        self._schedule.after(duration_us, self._join)

    def _join(self) -> None:
        self._context.far_side = frozenset()

    # Relays

    def _make_site(self, rng: random.Random, node: int) -> BhumiSite:
        trace, settings = Named(self._trace, f"r{node}"), self._settings(node)
        return BhumiSite(self._context, rng, trace, node, settings, self.make_relay, self._on_event)

    def _settings(self, node: int) -> BhumiSettings:
        plan = self.plan
        return replace(
            plan.relay,
            peers=[address_of(other) for one, other in sorted(self._edges) if one == node],
            advertise="" if node in plan.hidden or not plan.gossip else address_of(node),
            dials_private=plan.dials_private,
            require_binding=plan.requires_binding,
        )


core_scenario = partial(BhumiScenario, draw_plan=draw_core_plan)
"""Makes a scenario of one relay without gossip."""

large_scenario = partial(BhumiScenario, draw_plan=draw_large_plan)
"""Makes a scenario of 50 relays and 500 devices that move."""
