"""A Strata town: one or two relays, publishers, readers, hostile peers, and what happens to their links.

Each relay is a ``World`` of its own on the common clock. The second relay reads the first, and in some plans the first
reads the second as well; a hostile relay may stand beside them. ``StrataTown`` is the scenario that ``run`` drives.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Protocol

from waystation.core.dids import encode_did
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.core.packets import PacketQuery, PacketReader
from waystation.core.records import Store
from waystation.crypto.signing import KeyPair
from waystation.engine.node import Relay
from waystation.journal.events import Event
from waystation.protocols.strata.client import StrataClient
from waystation.protocols.strata.relay import StrataRelay
from waystation.protocols.strata.settings import StrataSettings
from waystation.sim import strata_observations as seen
from waystation.sim.chance import Trouble, fork
from waystation.sim.invariants import Watch
from waystation.sim.link import End, Port
from waystation.sim.schedule import Schedule
from waystation.sim.strata_commons import PROTOCOL, MakeClient, StrataCommons
from waystation.sim.strata_hostile import Hostile, HostileUpstream
from waystation.sim.strata_invariants import strata_invariants
from waystation.sim.strata_plan import StrataPlan, draw_strata_plan
from waystation.sim.strata_publisher import Publisher
from waystation.sim.strata_reader import Reader
from waystation.sim.trace import Named, Trace, canonical
from waystation.sim.world import WALL_START_US, World, make_store

__all__ = ["MakeStrataRelay", "StrataTown"]

SIZES_EVERY_US: Final = 10 * MICROSECONDS_PER_SECOND
STALL_US: Final = 20 * MICROSECONDS_PER_SECOND
DOWN_US: Final = 3 * MICROSECONDS_PER_SECOND
PINGS_US: Final = 50 * MICROSECONDS_PER_SECOND  # a WebSocket that answers no ping ends (specs/strata.md 13.3)
RETRY_FIRST_US: Final = MICROSECONDS_PER_SECOND
RETRY_MAX_US: Final = 16 * MICROSECONDS_PER_SECOND  # a server waits up to a minute; here links heal sooner
EMPTY_US: Final = 150 * MICROSECONDS_PER_SECOND  # longer than any timer of a connection
ROWS_MAX: Final = 1_000
EPOCH_BYTES: Final = 8


class MakeStrataRelay(Protocol):
    """Makes a relay; ``StrataRelay`` itself, or a broken one in tests of the invariants."""

    def __call__(
        self,
        settings: StrataSettings,
        key_pair: KeyPair,
        store: Store,
        rng: random.Random,
        *,
        rate_limits: bool,
        admits: Callable[[PublicKey], bool],
    ) -> StrataRelay:
        """Return a fresh relay over what the store holds."""


class StrataTown:
    """One world drawn from one generator."""

    def __init__(
        self,
        schedule: Schedule,
        rng: random.Random,
        trace: Trace,
        *,
        make_relay: MakeStrataRelay = StrataRelay,
        make_client: MakeClient = StrataClient,
        plan: StrataPlan | None = None,
    ) -> None:
        """Build the town; nothing happens before ``start``.

        Args:
            schedule: The clock.
            rng: Everything drawn comes from here.
            trace: Gets a line for everything that happens.
            make_relay: Makes the relays of each life.
            make_client: Makes the clients of publishers and readers.
            plan: What happens; drawn when None.
        """
        self.plan = plan = plan or draw_strata_plan(fork(rng))
        self._schedule = schedule
        self.trace = trace
        self._rng = fork(rng)
        self._is_measuring = True
        self._watch = Watch([])  # people come before laws: who they are is part of the laws
        self._commons = commons = StrataCommons(schedule, plan, self._observe, make_client)
        self._trouble = Trouble(schedule, self._rng, lambda: self._commons.troubled)
        forger_rng, forger_id = fork(rng), encode_did(KeyPair.from_seed(rng.randbytes(32)).public)
        self._forger = HostileUpstream(commons, forger_rng, forger_id) if plan.hostile_upstream else None
        keys = [KeyPair.from_seed(rng.randbytes(32)) for _ in range(plan.relays)]
        commons.relay_ids += [encode_did(key.public) for key in keys]
        self._upstreams = [(1 if plan.mutual else None) if relay == 0 else 0 for relay in range(plan.relays)]
        self._houses = [
            _House(self, commons, fork(rng), relay, key, make_relay, self._ways_of(relay, forger_id))
            for relay, key in enumerate(keys)
        ]
        for relay, key in enumerate(keys):
            commons.know_key(commons.relay_ids[relay], key)
            commons.worlds.append(self._houses[relay].world)
            commons.oks.append([])
        self._publishers = [
            Publisher(commons, fork(rng), f"10.1.0.{number}", self._rng.randrange(plan.relays))
            for number in range(plan.publishers)
        ]
        authors = [did for publisher in self._publishers for did in publisher.dids]
        self._readers = [
            Reader(commons, fork(rng), f"10.2.0.{number}", number, self._rng.randrange(plan.relays), authors)
            for number in range(plan.readers)
        ]
        self._hostiles = [
            Hostile(commons, fork(rng), f"10.3.0.{number}", kind) for number, kind in enumerate(plan.hostiles)
        ]
        descending = [reader.is_descending for reader in self._readers]
        self._watch = Watch(strata_invariants(commons.relay_ids, self._upstreams, descending))
        self.trace.note(schedule.now, f"plan {plan.describe()}")

    # Phases

    def start(self) -> None:
        """Let everybody come and the trouble begin."""
        for actor in self._people():
            self._schedule.after(self._rng.randrange(MICROSECONDS_PER_SECOND), actor.start)
        for hostile in self._hostiles:
            self._schedule.after(self._rng.randrange(20 * MICROSECONDS_PER_SECOND), hostile.come)
        faults = self.plan.faults
        often, lasting = self._trouble.often, self._trouble.duration
        often(faults.stalls, lambda: self._on_any_stream(lambda each: each.stall(lasting(STALL_US))))
        often(faults.cuts, lambda: self._on_any_stream(self._cut))
        often(faults.breaks, lambda: self._on_any_stream(lambda each: each.break_off()))
        often(faults.crashes, lambda: self._any_world().crash(lasting(DOWN_US)))
        often(faults.stops, lambda: self._any_world().stop(lasting(DOWN_US)))
        self._measure()

    def calm(self) -> None:
        """End the trouble: no more faults, no more bad habits; whoever is away comes home."""
        self._commons.troubled = False
        for hostile in self._hostiles:
            hostile.leave()
        for world in self._commons.worlds:
            for stream in world.streams():
                if stream.faulted:
                    stream.break_off()
        for publisher in self._publishers:
            publisher.calm()
        for reader in self._readers:
            reader.come()

    def probe(self) -> None:
        """Let every publisher write once more, and every reader read to the end."""
        for publisher in self._publishers:
            publisher.probe()
        for reader in self._readers:
            reader.probe()

    def leave(self) -> int:
        """See what everybody has, and let them go; return after how many microseconds nothing may be left."""
        for house in self._houses:
            house.show(final=True)
        for reader in self._readers:
            reader.look()
        for actor in self._people():
            actor.leave()
        for house in self._houses:
            house.rest()
        self._is_measuring = False
        return EMPTY_US

    def finish(self) -> None:
        """Look at what is left."""
        for house in self._houses:
            house.measure(settled=True)

    def outcomes(self) -> dict[str, int]:
        """Return what publishers were told and readers got, counted."""
        total: Counter[str] = Counter()
        for actor in self._people():
            total.update(actor.outcomes)
        return dict(sorted(total.items()))

    def _people(self) -> list[Publisher | Reader]:
        return [*self._publishers, *self._readers]

    # Observing

    def _observe(self, observation: Any) -> None:
        now = self._schedule.now
        has_line = isinstance(observation, seen.Stored | seen.CaughtUp)
        self.trace.note(now, str(observation) if has_line else canonical(observation))
        self._watch.observe(observation, now)

    def on_event(self, event: Event) -> None:
        """Trace what a relay journals."""
        self.trace.note(self._schedule.now, canonical(event))

    def _measure(self) -> None:
        if self._is_measuring:
            for house in self._houses:
                house.measure(settled=False)
            self._schedule.after(SIZES_EVERY_US, self._measure)

    # Trouble

    def _any_world(self) -> World:
        return self._rng.choice(self._commons.worlds)

    def _on_any_stream(self, act: Callable[[Any], None]) -> None:
        streams = self._any_world().streams()
        if streams:
            act(self._rng.choice(streams))

    def _cut(self, stream: Any) -> None:
        """Cut a stream; the pings of both sides find out."""
        stream.cut()
        self._schedule.after(PINGS_US, stream.break_off)

    def _ways_of(self, relay: int, forger_id: str) -> dict[str, Callable[[End], Port]]:
        """Return how a relay reaches each of its upstreams, by DID."""
        commons, upstream = self._commons, self._upstreams[relay]
        ways: dict[str, Callable[[End], Port]] = {}
        if self._forger is not None and relay == self.plan.relays - 1:
            ways[forger_id] = self._forger.reach
        if upstream is not None:
            host, link = f"10.9.0.{relay}", self.plan.link
            ways[commons.relay_ids[upstream]] = lambda end: commons.worlds[upstream].dial(PROTOCOL, host, end, link)
        return ways


class _House:
    """One relay: its store, its lives, and the connections that it dials."""

    def __init__(
        self,
        town: StrataTown,
        commons: StrataCommons,
        rng: random.Random,
        number: int,
        key: KeyPair,
        make_relay: MakeStrataRelay,
        ways: dict[str, Callable[[End], Port]],
    ) -> None:
        plan, relay_id = commons.plan, commons.relay_ids[number]
        self._commons = commons
        self._rng = fork(rng)
        self._number = number
        self._ways = ways
        self._is_resting = False
        self._ports: dict[str, Port] = {}
        self._store = make_store(rng.randbytes(EPOCH_BYTES))
        self._relay: StrataRelay
        settings = StrataSettings(
            replicate_allow=[did for did in commons.relay_ids if did != relay_id],
            upstreams=[{"url": "wss://upstream/strata", "relay_id": did} for did in ways],
            public_url=f"wss://relay-{number}/strata" if plan.announces else "",
        )

        def make_relays(entropy: random.Random, admits: Callable[[PublicKey], bool]) -> dict[str, Relay]:
            now = commons.schedule.now
            self._relay = make_relay(settings, key, self._store, entropy, rate_limits=plan.rate_limits, admits=admits)
            self._relay.set_wall(now, WALL_START_US + now)
            return {PROTOCOL: self._relay}

        self.world: World
        self.world = World(
            commons.schedule,
            fork(rng),
            Named(town.trace, f"r{number}"),
            make_relays,
            store=self._store,
            settings=plan.host,
            on_event=town.on_event,
            on_life=self._on_life,
        )

    def show(self, *, final: bool) -> None:
        """Observe everything that is stored."""
        self._commons.observe(seen.Stored(self._number, tuple(_rows(self._store.packets)), final))

    def measure(self, *, settled: bool) -> None:
        """Observe how much there is of everything, if the relay runs."""
        sizes = self.world.sizes().get(PROTOCOL)
        if sizes is not None:
            self._commons.observe(seen.Sized(self._number, sizes, self.world.unsent_bytes_peak, settled))

    def rest(self) -> None:
        """Leave every upstream, and dial nobody any more."""
        self._is_resting = True
        for port in self._ports.values():
            port.stream.break_off()

    def _reach(self, did: str, end: End) -> Port:
        self._ports[did] = port = self._ways[did](end)
        return port

    def _on_life(self, life: int) -> None:
        if life > 1:
            self.show(final=False)
        for did in self._ways:
            self._dial_later(life, did, RETRY_FIRST_US)

    def _dial_later(self, life: int, did: str, wait_us: int) -> None:
        delay_us = int(wait_us * (0.5 + self._rng.random() / 2))
        self._commons.schedule.after(delay_us, lambda: self._dial(life, did, wait_us))

    def _dial(self, life: int, did: str, wait_us: int) -> None:
        schedule, world = self._commons.schedule, self.world
        if world.life != life or not world.is_up or self._is_resting:
            return
        rest_us = self._relay.upstream_rest_s(did, schedule.now) * MICROSECONDS_PER_SECOND
        if rest_us:
            schedule.after(rest_us, lambda: self._dial(life, did, wait_us))
            return
        began = schedule.now

        def over(stood: bool) -> None:
            if not stood:
                self._relay.upstream_failed(did, schedule.now)
                world.plan_turn()
            lasted = schedule.now - began >= PINGS_US
            self._dial_later(life, did, RETRY_FIRST_US if lasted else min(2 * wait_us, RETRY_MAX_US))

        world.dial_out(PROTOCOL, did, lambda end: self._reach(did, end), self._commons.plan.link, over)


def _rows(packets: PacketReader) -> list[seen.Kept]:
    """Return everything that is stored, in the order of arrival."""
    found: list[seen.Kept] = []
    query = PacketQuery(by_seq=True, rows_max=ROWS_MAX)
    while True:
        page = packets.page(query)
        found += [
            seen.Kept(
                row.packet_id,
                row.order_at,
                row.received_at,
                row.seq,
                row.canonical,
                row.author_id,
                row.content_type,
            )
            for row in page.rows
        ]
        if page.position is None:
            return found
        query = query._replace(start=page.position)
