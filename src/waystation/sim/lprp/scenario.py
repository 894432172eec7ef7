"""The LPRP scenario: two or three hosts, tenants and senders on one faulty datagram network, and hostile actors.

``sim.run`` makes it from a plan and drives its phases. A ``World`` runs a real node in place of the server. Each host
runs in its own ``World`` on the shared clock. All datagrams pass through one ``Network``, where any source address can
be forged.
"""

import random
from collections.abc import Sequence
from functools import partial
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.protocols.lprp.client.machine import LprpClient
from waystation.protocols.lprp.relay.machine import LprpRelay
from waystation.sim.chance import fork
from waystation.sim.invariants import Invariant, Liveness, Watch
from waystation.sim.lprp import observations as seen
from waystation.sim.lprp.client import Client
from waystation.sim.lprp.context import LprpContext
from waystation.sim.lprp.host import Host
from waystation.sim.lprp.hostile import HOSTILES
from waystation.sim.lprp.invariants import Bookkeeping, Bounded, FairRefusal, LeaseKept, Whitelists
from waystation.sim.lprp.mail_invariants import DeliveredOnce, Honest, OnlySent, PromiseKept, TrueOutcome
from waystation.sim.lprp.model import Model
from waystation.sim.lprp.plan import LprpPlan, draw_lprp_plan
from waystation.sim.lprp.wire_invariants import Answered, Earned, Mailed, Worked
from waystation.sim.net.datagram import DatagramSettings
from waystation.sim.scenario import Scenario
from waystation.sim.trace import Named

__all__ = ["LprpScenario", "lprp_invariants"]

DOWN_US: Final = 3 * MICROSECONDS_PER_SECOND
CUT_US: Final = 10 * MICROSECONDS_PER_SECOND
EMPTY_US: Final = 2_400 * MICROSECONDS_PER_SECOND  # a challenge and what is kept of it live twice 2**19 ms
GRACE_US: Final = 5_000
QUIET: Final = DatagramSettings()


def lprp_invariants(plan: LprpPlan, hosts: Sequence[bytes], tenants: Honest) -> list[Invariant]:
    """Return one checker of each invariant; the one that keeps the model comes first.

    Args:
        plan: What happens in it.
        hosts: Keys of the hosts.
        tenants: Honest tenants, with their hosts; may grow later.
    """
    host = plan.host
    grace_us = 3 * host.verify_delay_us + 2 * host.turn_delay_us + 2 * host.commit_delay_us + GRACE_US
    model = Model(hosts, plan.lease_ms, grace_us)
    return [
        Bookkeeping(model),
        Answered(),
        Earned(model),
        Mailed(model),
        Worked(model, plan.base_bits, exact=not plan.adaptive),
        Whitelists(model),
        LeaseKept(model),
        FairRefusal(model),
        PromiseKept(tenants),
        DeliveredOnce(),
        OnlySent(),
        TrueOutcome(),
        Bounded(),
        Liveness(),
    ]


class LprpScenario(Scenario[LprpPlan, LprpContext, Host]):
    """One network drawn from one generator."""

    sizes_every_us = MICROSECONDS_PER_SECOND
    untraced = (seen.Received, seen.Sent, seen.Measured, seen.HostStarted)

    draw_plan = staticmethod(draw_lprp_plan)
    make_relay: type[LprpRelay] = LprpRelay
    make_client: type[LprpClient] = LprpClient

    def _build(self, rng: random.Random) -> None:
        plan = self.plan
        self._context = context = LprpContext(self._schedule, fork(rng), plan, self._observe, self.make_client)
        self._sites = [
            Host(context, fork(rng), Named(self._trace, f"h{host}"), host, self.make_relay, self._on_event)
            for host in range(plan.hosts)
        ]
        self._clients = [self._make_person(fork(rng), number) for number in range(plan.tenants + plan.senders)]
        addresses = [address for client in self._clients for address in client.addresses()]
        self._hostiles = [
            HOSTILES[kind](context, fork(rng), number, addresses) for number, kind in enumerate(plan.hostiles)
        ]
        # Hosts come before invariants: their keys are part of these.
        self._watch = Watch(lprp_invariants(plan, context.host_keys, context.tenants))
        self._note_plan()

    def _make_person(self, rng: random.Random, number: int) -> Client:
        """Make a tenant of one host, or of two, or a client that only sends."""
        hosts = range(self.plan.hosts)
        homes = sorted(self._rng.sample(hosts, self._rng.choice((1, 1, 2)))) if number < self.plan.tenants else []
        return Client(self._context, rng, number, homes)

    # Phases

    def probe(self) -> None:
        """Let every client send once more to every tenant."""
        for client in self._clients:
            client.probe()

    def leave(self) -> int:
        """See that all mail has arrived, and let every client go; return after which time nothing may be left."""
        for client in self._clients:
            client.leave()
        for site in self._sites:
            site.show("healed")
        self._context.report_pending()
        self._is_measuring = False
        return EMPTY_US

    def _arrive(self) -> None:
        keys = [client.key for client in self._clients]
        for client in self._clients:
            self._within(MICROSECONDS_PER_SECOND, partial(client.start, keys))
        for hostile in self._hostiles:
            self._within(10 * MICROSECONDS_PER_SECOND, hostile.come)

    def _plan_faults(self) -> None:
        faults = self.plan.faults
        often, lasting = self._recurring.often, self._recurring.duration
        often(faults.cuts, lambda: self._cut(lasting(CUT_US)))
        often(faults.crashes, lambda: self._any_site().crash(lasting(DOWN_US)))
        often(faults.stops, lambda: self._any_site().stop(lasting(DOWN_US)))
        often(faults.host_steps, lambda: self._any_site().step(self._step_ms()))
        often(faults.person_steps, lambda: self._rng.choice(self._clients).step(self._step_ms()))

    def _heal(self) -> None:
        self._context.network.change_to(QUIET)
        for site in self._sites:
            site.set_right()
        for client in self._clients:
            client.quiesce()

    def _counting(self) -> Sequence[Client]:
        return self._clients

    # Faults

    def _step_ms(self) -> int:
        return self._rng.randint(-self.plan.faults.step_ms, self.plan.faults.step_ms)

    def _cut(self, duration_us: int) -> None:
        """Let no datagram from or to a host, or a client, through for a while."""
        network, rng = self._context.network, self._rng
        client = rng.choice(self._clients)
        addresses = [self._any_site().address] if rng.random() < 1 / 3 else client.addresses()
        for address in addresses:
            network.cut(address)
            self._schedule.after(duration_us, partial(network.heal, address))
