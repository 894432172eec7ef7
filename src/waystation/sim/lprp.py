"""An LPRP town: two or three hosts, tenants and senders on one faulty network, and parties that mean no good.

Each host is a ``World`` of its own on the common clock; everything goes through one ``Network``, where any address can
be forged. ``LprpTown`` is the scenario that ``run`` drives.
"""

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.journal.events import Event
from waystation.protocols.lprp.client import LprpClient
from waystation.protocols.lprp.relay import LprpRelay
from waystation.sim import lprp_observations as seen
from waystation.sim.chance import Trouble, fork
from waystation.sim.datagram import DatagramSettings
from waystation.sim.invariants import Invariant, Watch
from waystation.sim.lprp_books import Books
from waystation.sim.lprp_commons import LprpCommons, MakeClient
from waystation.sim.lprp_hostile import Liar, make_hostile
from waystation.sim.lprp_house import House, MakeLprpRelay
from waystation.sim.lprp_laws import Bookkeeping, Bounded, FairRefusal, LeaseKept, Liveness, Whitelists
from waystation.sim.lprp_mail_laws import DeliveredOnce, Honest, OnlySent, PromiseKept, TrueOutcome
from waystation.sim.lprp_person import Person
from waystation.sim.lprp_plan import LprpPlan, draw_lprp_plan
from waystation.sim.lprp_wire_laws import Answered, Earned, Mailed, Worked
from waystation.sim.schedule import Schedule
from waystation.sim.trace import Named, Trace, canonical

__all__ = ["LprpTown", "lprp_invariants"]

SIZES_EVERY_US: Final = MICROSECONDS_PER_SECOND
DOWN_US: Final = 3 * MICROSECONDS_PER_SECOND
CUT_US: Final = 10 * MICROSECONDS_PER_SECOND
EMPTY_US: Final = 2_400 * MICROSECONDS_PER_SECOND  # a challenge and what is kept of it live twice 2**19 ms
GRACE_US: Final = 5_000
QUIET: Final = DatagramSettings()
_TRACED_BY_HOSTS: Final = (seen.Heard, seen.Said, seen.Measured, seen.HostBegan)


def lprp_invariants(plan: LprpPlan, hosts: Sequence[bytes], tenants: Honest) -> list[Invariant]:
    """Return one checker of each law for a town; the books are written first.

    Args:
        plan: What happens in it.
        hosts: Keys of the hosts.
        tenants: Honest tenants, with their hosts; may grow later.
    """
    host = plan.host
    grace_us = 3 * host.verify_delay_us + 2 * host.turn_delay_us + 2 * host.commit_delay_us + GRACE_US
    books = Books(hosts, plan.lease_ms, grace_us)
    return [
        Bookkeeping(books),
        Answered(),
        Earned(books),
        Mailed(books),
        Worked(books, plan.base_bits, exact=not plan.adaptive),
        Whitelists(books),
        LeaseKept(books),
        FairRefusal(books),
        PromiseKept(tenants),
        DeliveredOnce(),
        OnlySent(),
        TrueOutcome(),
        Bounded(),
        Liveness(),
    ]


class LprpTown:
    """One world drawn from one generator."""

    def __init__(
        self,
        schedule: Schedule,
        rng: random.Random,
        trace: Trace,
        *,
        make_relay: MakeLprpRelay = LprpRelay,
        make_client: MakeClient = LprpClient,
        plan: LprpPlan | None = None,
    ) -> None:
        """Build the town; nothing happens before ``start``.

        Args:
            schedule: The clock.
            rng: Everything drawn comes from here.
            trace: Gets a line for everything that happens.
            make_relay: Makes the relay of each life of a host.
            make_client: Makes the clients of people.
            plan: What happens; drawn when None.
        """
        self.plan = plan = plan or draw_lprp_plan(fork(rng))
        self._schedule = schedule
        self._trace = trace
        self._rng = fork(rng)
        self._phase = "trouble"
        self._watch = Watch([])  # hosts come before laws: their keys are part of the laws
        self._commons = commons = LprpCommons(schedule, fork(rng), plan, self._observe, make_client)
        self._trouble = Trouble(schedule, self._rng, lambda: self._commons.troubled)
        self._houses = [
            House(commons, fork(rng), Named(trace, f"h{host}"), host, make_relay, self._on_event)
            for host in range(plan.hosts)
        ]
        self._people = [self._make_person(fork(rng), number) for number in range(plan.tenants + plan.senders)]
        addresses = [address for person in self._people for address in person.addresses()]
        self._hostiles = [
            make_hostile(kind, commons, fork(rng), number, addresses) for number, kind in enumerate(plan.hostiles)
        ]
        for hostile in self._hostiles:
            if isinstance(hostile, Liar):
                hostile.host_pairs = [house.key_pair for house in self._houses]
        self._watch = Watch(lprp_invariants(plan, commons.host_keys, commons.tenants))
        trace.note(schedule.now, f"plan {plan.describe()}")

    def _make_person(self, rng: random.Random, number: int) -> Person:
        """Make a tenant of one host, or of two, or somebody who only writes."""
        hosts = range(self.plan.hosts)
        homes = sorted(self._rng.sample(hosts, self._rng.choice((1, 1, 2)))) if number < self.plan.tenants else []
        return Person(self._commons, rng, number, homes)

    # Phases

    def start(self) -> None:
        """Let everybody come and the trouble begin."""
        keys = [person.key for person in self._people]
        for person in self._people:
            self._schedule.after(self._rng.randrange(MICROSECONDS_PER_SECOND), partial(person.start, keys))
        for hostile in self._hostiles:
            self._schedule.after(self._rng.randrange(10 * MICROSECONDS_PER_SECOND), hostile.come)
        faults = self.plan.faults
        often, lasting = self._trouble.often, self._trouble.duration
        often(faults.cuts, lambda: self._cut(lasting(CUT_US)))
        often(faults.crashes, lambda: self._any_house().crash(lasting(DOWN_US)))
        often(faults.stops, lambda: self._any_house().stop(lasting(DOWN_US)))
        often(faults.host_steps, lambda: self._any_house().step(self._step_ms()))
        often(faults.person_steps, lambda: self._rng.choice(self._people).step(self._step_ms()))
        self._measure()

    def calm(self) -> None:
        """End the trouble: no more faults, no more bad habits; clocks are right and whoever is away comes home."""
        self._commons.troubled = False
        self._commons.network.calm(QUIET)
        for house in self._houses:
            house.right()
        for person in self._people:
            person.calm()

    def probe(self) -> None:
        """Let everybody write once more to everybody who has a lease."""
        for person in self._people:
            person.probe()

    def leave(self) -> int:
        """See that all mail has arrived, and let everybody go; return after which time nothing may be left."""
        for person in self._people:
            person.leave()
        for house in self._houses:
            house.measure("healed")
        for what in self._commons.hopes.values():
            self._observe(seen.LeftHanging(f"{what} never arrived"))
        self._phase = ""
        return EMPTY_US

    def finish(self) -> None:
        """Look at what is left."""
        for house in self._houses:
            house.measure("settled")

    def outcomes(self) -> dict[str, int]:
        """Return what senders were told and applications kept, counted."""
        total: Counter[str] = Counter()
        for person in self._people:
            total.update(person.outcomes)
        return dict(sorted(total.items()))

    # Observing

    def _observe(self, observation: Any) -> None:
        now = self._schedule.now
        if not isinstance(observation, _TRACED_BY_HOSTS):
            self._trace.note(now, canonical(observation))
        self._watch.observe(observation, now)

    def _on_event(self, event: Event) -> None:
        """Trace what a host journals."""
        self._trace.note(self._schedule.now, canonical(event))

    def _measure(self) -> None:
        if self._phase:
            for house in self._houses:
                house.measure(self._phase)
            self._schedule.after(SIZES_EVERY_US, self._measure)

    # Trouble

    def _any_house(self) -> House:
        return self._rng.choice(self._houses)

    def _step_ms(self) -> int:
        return self._rng.randint(-self.plan.faults.step_ms, self.plan.faults.step_ms)

    def _cut(self, duration_us: int) -> None:
        """Let nobody reach a host, or somebody reach nobody, for a while."""
        network, rng = self._commons.network, self._rng
        person = rng.choice(self._people)
        addresses = [self._any_house().address] if rng.random() < 1 / 3 else person.addresses()
        for address in addresses:
            network.cut(address)
            self._schedule.after(duration_us, partial(network.heal, address))
