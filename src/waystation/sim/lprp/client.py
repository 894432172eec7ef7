"""Simulated LPRP clients: they lease queues at hosts, send mail, sleep, change addresses, restart, edit whitelists.

``LprpScenario`` starts them; each drives the real client machine (``session``). A restart keeps what an application
would store: inbox, highest signed time, confirmed packets, the whitelist that the host accepted, and the end of the
lease.
"""

import random
from collections import Counter
from typing import Final

from waystation.core.effects import Address
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.client.clock import PacketClock
from waystation.protocols.lprp.client.events import (
    Event,
    LeaseGranted,
    LeaseRefused,
    PacketArrived,
    PacketDropped,
    RelayFinished,
    WhitelistAgreed,
    WhitelistFailed,
)
from waystation.protocols.lprp.client.machine import LprpClient
from waystation.protocols.lprp.client.seen_packets import SeenInMemory
from waystation.sim.chance import HOUR_US, Recurring, fork, spread
from waystation.sim.driver import DatagramDriver
from waystation.sim.lprp import observations as seen
from waystation.sim.lprp.context import LprpContext
from waystation.sim.lprp.packets import read_packet
from waystation.sim.lprp.session import HostSession
from waystation.sim.observations import Unfulfilled

__all__ = ["Client"]

BURST_MAX: Final = 12
AGAIN_US: Final = 5 * MICROSECONDS_PER_SECOND
UNKNOWN_KEYS_MAX: Final = 12


class Client:
    """One identity with a client at every host."""

    def __init__(self, context: LprpContext, rng: random.Random, number: int, homes: list[int]) -> None:
        """Make a client; ``start`` lets it come.

        Args:
            context: Shared by all actors.
            rng: Source of its behaviour.
            number: Its number in the network.
            homes: Hosts where it wants a lease.
        """
        self.homes = homes
        self._context = context
        self._rng = rng
        self._number = number
        self._moves = 0
        self._key_pair = KeyPair.from_seed(rng.randbytes(32))
        self.key: PublicKey = self._key_pair.public
        context.tenants += [(self.key, host) for host in homes]
        self._clock = PacketClock()
        self._seen = SeenInMemory()
        self.sessions = [
            HostSession(context, fork(rng), self._key_pair, host, self._clock, self._seen, self._on_event)
            for host in range(context.plan.hosts)
        ]
        self._inbox: dict[bytes, None] = {}
        self._wanted: frozenset[bytes] = frozenset()
        self._others: list[PublicKey] = []
        self._offset_ms = 0
        self._is_up = False
        self._is_asleep = False
        self._is_gone = False
        self._unreported: dict[bytes, int] = {}
        self._insisted: dict[bytes, PublicKey] = {}
        self.outcomes: Counter[str] = Counter()

    def start(self, others: list[PublicKey]) -> None:
        """Come, and begin to write to whoever has a lease."""
        plan, behaviour = self._context.plan, self._context.plan.client
        self._others = [key for key in others if key != self.key]
        if self.homes:
            self._wanted = self._draw_whitelist(plan.whitelisted)
        self._come()
        recurring = Recurring(self._context.schedule, self._rng, lambda: self._context.in_fault_phase, least_us=1)
        recurring.every(HOUR_US * (plan.tenants + plan.senders) / plan.mail_per_hour, self._write)
        recurring.often(behaviour.rebinds, self._move)
        recurring.often(behaviour.sleeps, self._sleep)
        recurring.often(behaviour.restarts, self._restart)
        recurring.often(behaviour.edits if self.homes else 0.0, self._edit)

    def quiesce(self) -> None:
        """Come home, with a clock that is right and no bad behaviour any more."""
        self._awake()
        self.step(-self._offset_ms)
        self._come()
        for session in self.sessions:
            if session.is_refused and session.machine is not None:  # by itself a client asks less and less often
                session.machine.let_go(self._context.schedule.now)
                session.machine.ask_lease(self._context.schedule.now)
                session.settle()

    def probe(self) -> None:
        """Write once more to everybody who has a lease, and have the whitelist agreed."""
        for recipient, host in self._context.tenants:
            self._insist(host, recipient)

    def leave(self) -> None:
        """Complain about what never ended, and go for good."""
        context = self._context
        if self._unreported:
            context.observe(Unfulfilled(f"person {self._number} never received what became of {len(self._unreported)}"))
        for session in self.sessions:
            machine = session.machine
            if machine is not None and session.host in self.homes:
                if machine.lease_until_ms is None or machine.is_doubted:
                    context.observe(Unfulfilled(f"person {self._number} has no lease at host {session.host}"))
                elif session.known_whitelist != self._wanted:
                    context.observe(Unfulfilled(f"whitelist of person {self._number} at host {session.host}"))
        self._is_gone = True
        self._go()

    def step(self, step_ms: int) -> None:
        """Set the clock so much ahead, or back."""
        self._offset_ms += step_ms
        for session in self.sessions:
            session.step(self._offset_ms)

    def addresses(self) -> list[Address]:
        """Return where its sessions are."""
        return [self._address(session.host) for session in self.sessions]

    def has(self, signature: bytes) -> bool:
        """Return whether the application has kept a packet."""
        return signature in self._inbox

    # Coming and going

    def _address(self, host: int) -> Address:
        """Return where the session of a host is; a router gives another port, and now and then another network."""
        return f"10.{1 + self._moves // 4}.{self._number}.{1 + self._moves % 4}", 2_000 + 100 * self._moves + host

    def _come(self) -> None:
        if self._is_up or self._is_gone:
            return
        self._is_up = True
        for session in self.sessions:
            machine = session.open(self._address(session.host), self._offset_ms)
            if session.host in self.homes:
                self._settle_in(session, machine)
            session.settle()

    def _settle_in(self, session: HostSession, machine: LprpClient) -> None:
        now, context = self._context.schedule.now, self._context
        if session.lease_until_ms is not None and session.lease_until_ms > context.wall_ms(self._offset_ms):
            machine.hold_lease(now, session.lease_until_ms)
        else:
            machine.ask_lease(now)
        machine.want_whitelist(self._wanted, now)

    def _go(self) -> None:
        """Be gone without notice; no outcome arrives for what is under way."""
        self._is_up = self._is_asleep = False
        for session in self.sessions:
            if session.machine is not None:
                session.close()
        self._unreported.clear()

    def _sleep(self) -> None:
        """Close the lid for a while."""
        if self._is_up and not self._is_asleep:
            self._is_asleep = True
            for driver in self._drivers():
                driver.suspend()
            away_us = spread(self._rng, self._context.plan.client.away_us)
            self._context.schedule.after(1 + away_us, self._awake)

    def _awake(self) -> None:
        if self._is_asleep:
            self._is_asleep = False
            for driver in self._drivers():
                driver.resume()

    def _restart(self) -> None:
        if self._is_up and not self._is_asleep:
            self._go()
            away_us = spread(self._rng, self._context.plan.client.away_us)
            self._context.schedule.after(1 + away_us, self._come)

    def _move(self) -> None:
        """Get another address; the old one is nobody's."""
        if self._is_up:
            self._moves += 1
            for driver, session in zip(self._drivers(), self.sessions, strict=True):
                driver.move(self._address(session.host))

    def _drivers(self) -> list[DatagramDriver[LprpClient]]:
        """Return what drives the machine of each host, in their order; none while it is away."""
        return [session.driver for session in self.sessions if session.driver is not None]

    # Writing

    def _write(self) -> None:
        context, rng = self._context, self._rng
        if not self._is_up or self._is_asleep or not context.tenants:
            return
        count = rng.randint(2, BURST_MAX) if rng.random() < context.plan.client.bursts else 1
        for _ in range(count):
            recipient, host = rng.choice(context.tenants)
            self._send(host, recipient)

    def _send(self, host: int, recipient: PublicKey) -> bytes | None:
        session, rng = self.sessions[host], self._rng
        if session.machine is None:
            return None
        payload = rng.randbytes(rng.randint(0, self._context.plan.payload_bytes_max))
        ticket = session.machine.send(payload, recipient, self._context.schedule.now)
        self._unreported[ticket] = host
        self._context.observe(seen.Sending(self.key, host, ticket))
        session.settle()
        return ticket

    def _insist(self, host: int, recipient: PublicKey) -> None:
        """Send a packet that has to arrive."""
        ticket = self._send(host, recipient)
        if ticket is not None:
            self._insisted[ticket] = recipient
            self._context.pending[recipient, ticket] = f"the last packet of person {self._number} never arrived"

    def _on_finished(self, session: HostSession, ticket: bytes, outcome: str) -> None:
        """Note an outcome; whoever was refused for a lease that has just run out sends anew."""
        recipient = self._insisted.pop(ticket, None)
        self._unreported.pop(ticket, None)
        self._context.observe(seen.Finished(self.key, session.host, ticket, outcome))
        self.outcomes[outcome.lower()] += 1
        if recipient is not None and outcome == "REFUSED" and not self._is_gone:
            self._context.pending.pop((recipient, ticket), None)
            session.later(1 + spread(self._rng, AGAIN_US), lambda _machine: self._insist(session.host, recipient))

    # Whitelists

    def _draw_whitelist(self, chance: float) -> frozenset[bytes]:
        friends = {key for key in self._others if self._rng.random() < chance}
        others = {self._rng.randbytes(32) for _ in range(self._rng.randrange(UNKNOWN_KEYS_MAX))}
        return frozenset(friends | others)

    def _edit(self) -> None:
        if self._is_asleep:
            return
        self._wanted = self._draw_whitelist(self._rng.random())
        for session in self.sessions:
            if session.machine is not None and session.host in self.homes:
                now = self._context.schedule.now
                if not self._wanted and self._rng.random() < 1 / 2:
                    session.machine.clear_whitelist(now)
                session.machine.want_whitelist(self._wanted, now)
                session.settle()

    # What sessions report

    def _on_event(self, session: HostSession, event: Event) -> None:
        context = self._context
        if isinstance(event, PacketArrived):
            self._on_packet(session, event)
        elif isinstance(event, RelayFinished):
            self._on_finished(session, event.signature, event.outcome.name)
        elif isinstance(event, LeaseGranted):
            session.lease_until_ms = event.until_ms
            session.is_refused = False
            context.observe(seen.LeaseReported(self.key, session.host))
            self.outcomes["lease"] += 1
        elif isinstance(event, WhitelistAgreed):
            session.known_whitelist = event.keys
            context.observe(seen.WhitelistReported(self.key, session.host, tuple(sorted(event.keys))))
            self.outcomes["whitelist"] += 1
        elif isinstance(event, WhitelistFailed):
            self._want_again(session)
        elif isinstance(event, LeaseRefused):
            session.is_refused = True
            self.outcomes[f"lease_{event.outcome.name.lower()}"] += 1
        elif isinstance(event, PacketDropped):
            self.outcomes[f"dropped_{event.refusal.value}"] += 1

    def _want_again(self, session: HostSession) -> None:
        session.later(
            spread(self._rng, AGAIN_US),
            lambda machine: machine.want_whitelist(self._wanted, self._context.schedule.now),
        )

    def _on_packet(self, session: HostSession, event: PacketArrived) -> None:
        context, behaviour = self._context, self._context.plan.client
        packet = read_packet(event.packet.data)
        assert packet is not None
        context.observe(seen.AppGot(self.key, session.host, session.life, packet.data))
        now = context.schedule.now
        if context.in_fault_phase and self._rng.random() < behaviour.hands_back:
            context.observe(seen.HandedBack(self.key, session.host, session.life, packet.signature))
            session.later(0, lambda machine: machine.hand_back(packet.signature, now))
            return
        session.later(spread(self._rng, behaviour.keep_us), lambda machine: self._keep(machine, packet.signature))

    def _keep(self, machine: LprpClient, signature: bytes) -> None:
        context = self._context
        if signature not in self._inbox:
            self._inbox[signature] = None
            context.observe(seen.AppKept(self.key, signature))
            context.pending.pop((self.key, signature), None)
            self.outcomes["kept"] += 1
        if context.in_fault_phase and not self._is_asleep and self._rng.random() < 1 / 50:
            self._restart()  # after the disk has it, before the host knows
        else:
            context.observe(seen.Confirmed(self.key, signature))
            machine.confirm(signature, context.schedule.now)
