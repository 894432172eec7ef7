"""The Strata scenario: one or two relays, publishers, readers, hostile peers and link faults over ``sim.scenario``.

``sim.run`` makes it from schedule, generator and trace, and drives the phases of its base class, which calls
``_arrive``, ``_plan_faults`` and ``_heal``. What the actors see goes to ``strata_invariants``, which raise where a law
is broken. Each relay runs in a ``World`` of its own on the shared clock. The second relay reads from the first, and in
some plans the first also from the second; some plans add a hostile relay as an upstream.
"""

import random
from collections.abc import Callable, Sequence
from typing import Final

from waystation.core.dids import encode_did
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair
from waystation.protocols.strata.client.machine import StrataClient
from waystation.protocols.strata.relay.machine import StrataRelay
from waystation.sim.chance import fork
from waystation.sim.invariants import Watch
from waystation.sim.net.link import End, Port, Stream
from waystation.sim.scenario import Scenario
from waystation.sim.site import draw_key_pair
from waystation.sim.strata.context import PROTOCOL, StrataContext
from waystation.sim.strata.hostile import Hostile, HostileUpstream
from waystation.sim.strata.invariants import strata_invariants
from waystation.sim.strata.plan import StrataPlan, draw_strata_plan
from waystation.sim.strata.publisher import Publisher
from waystation.sim.strata.reader import Reader
from waystation.sim.strata.relay_site import PINGS_US, RelaySite
from waystation.sim.trace import Named

__all__ = ["StrataScenario"]

STALL_US: Final = 20 * MICROSECONDS_PER_SECOND
DOWN_US: Final = 3 * MICROSECONDS_PER_SECOND
EMPTY_US: Final = 150 * MICROSECONDS_PER_SECOND  # longer than any timer of a connection


class StrataScenario(Scenario[StrataPlan, StrataContext, RelaySite]):
    """One network drawn from one generator."""

    reads_packets = True

    draw_plan = staticmethod(draw_strata_plan)
    make_relay: type[StrataRelay] = StrataRelay
    make_client: type[StrataClient] = StrataClient

    def _build(self, rng: random.Random) -> None:
        plan = self.plan
        self._context = context = StrataContext(self._schedule, plan, self._observe, self.make_client)
        forger_rng, forger_id = fork(rng), encode_did(draw_key_pair(rng).public)
        self._forger = HostileUpstream(context, forger_rng, forger_id) if plan.hostile_upstream else None
        keys = [draw_key_pair(rng) for _ in range(plan.relays)]
        context.relay_ids += [encode_did(key.public) for key in keys]
        self._upstreams = [(1 if plan.mutual else None) if relay == 0 else 0 for relay in range(plan.relays)]
        self._sites = [self._make_site(relay, key, fork(rng), forger_id) for relay, key in enumerate(keys)]
        for relay, key in enumerate(keys):
            context.know_key(context.relay_ids[relay], key)
            context.worlds.append(self._sites[relay].world)
            context.oks.append([])
        self._publishers = [
            Publisher(context, fork(rng), f"10.1.0.{number}", self._rng.randrange(plan.relays))
            for number in range(plan.publishers)
        ]
        authors = [did for publisher in self._publishers for did in publisher.dids]
        self._readers = [
            Reader(context, fork(rng), f"10.2.0.{number}", number, self._rng.randrange(plan.relays), authors)
            for number in range(plan.readers)
        ]
        self._hostiles = [
            Hostile(context, fork(rng), f"10.3.0.{number}", kind) for number, kind in enumerate(plan.hostiles)
        ]
        # Actors come before invariants: who they are is part of these.
        descending = [reader.is_descending for reader in self._readers]
        self._watch = Watch(strata_invariants(context.relay_ids, self._upstreams, descending))
        self._note_plan()

    def _make_site(self, relay: int, key: KeyPair, rng: random.Random, forger_id: str) -> RelaySite:
        trace, ways = Named(self._trace, f"r{relay}"), self._ways_of(relay, forger_id)
        return RelaySite(self._context, rng, trace, relay, key, self.make_relay, ways, self._on_event)

    def _ways_of(self, relay: int, forger_id: str) -> dict[str, Callable[[End], Port]]:
        """Return how a relay reaches each of its upstreams, by DID."""
        context, upstream = self._context, self._upstreams[relay]
        ways: dict[str, Callable[[End], Port]] = {}
        if self._forger is not None and relay == self.plan.relays - 1:
            ways[forger_id] = self._forger.reach
        if upstream is not None:
            host, link = f"10.9.0.{relay}", self.plan.link
            ways[context.relay_ids[upstream]] = lambda end: context.worlds[upstream].dial(PROTOCOL, host, end, link)
        return ways

    # Phases

    def probe(self) -> None:
        """Let every publisher write once more, and every reader read to the end."""
        for publisher in self._publishers:
            publisher.probe()
        for reader in self._readers:
            reader.probe()

    def leave(self) -> int:
        """See what every actor has, and let them go; return after how many microseconds nothing may be left."""
        for site in self._sites:
            site.show(final=True)
        for reader in self._readers:
            reader.look()
        for actor in self._counting():
            actor.leave()
        for site in self._sites:
            site.close()
        self._is_measuring = False
        return EMPTY_US

    def _arrive(self) -> None:
        for actor in self._counting():
            self._within(MICROSECONDS_PER_SECOND, actor.start)
        for hostile in self._hostiles:
            self._within(20 * MICROSECONDS_PER_SECOND, hostile.come)

    def _plan_faults(self) -> None:
        faults = self.plan.faults
        often, lasting = self._recurring.often, self._recurring.duration
        often(faults.stalls, lambda: self._on_any_stream(lambda each: each.stall(lasting(STALL_US))))
        often(faults.cuts, lambda: self._on_any_stream(self._cut))
        often(faults.breaks, lambda: self._on_any_stream(lambda each: each.break_off()))
        often(faults.crashes, lambda: self._any_site().crash(lasting(DOWN_US)))
        often(faults.stops, lambda: self._any_site().stop(lasting(DOWN_US)))

    def _heal(self) -> None:
        for hostile in self._hostiles:
            hostile.leave()
        for world in self._context.worlds:
            for stream in world.streams():
                if stream.faulted:
                    stream.break_off()
        for publisher in self._publishers:
            publisher.quiesce()
        for reader in self._readers:
            reader.come()

    def _counting(self) -> Sequence[Publisher | Reader]:
        return [*self._publishers, *self._readers]

    # Faults

    def _on_any_stream(self, act: Callable[[Stream], None]) -> None:
        self._on_any(self._any_site().world.streams(), act)

    def _cut(self, stream: Stream) -> None:
        """Cut a stream; the pings of both sides find out."""
        stream.cut()
        self._schedule.after(PINGS_US, stream.break_off)
