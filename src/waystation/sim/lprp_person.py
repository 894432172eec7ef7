"""People of a simulated LPRP town: they hold leases, write to each other, sleep, move, restart and change whitelists.

What outlives a restart is what an application keeps: its inbox, the highest time it signed, the packets it has
confirmed, the whitelist its host agreed to, and until when its lease lasts.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from waystation.core.effects import Address
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.client import LprpClient
from waystation.protocols.lprp.client_clock import PacketClock
from waystation.protocols.lprp.client_events import (
    Event,
    LeaseGranted,
    LeaseRefused,
    PacketArrived,
    PacketDropped,
    RelayFinished,
    WhitelistAgreed,
    WhitelistFailed,
)
from waystation.protocols.lprp.seen_packets import SeenInMemory
from waystation.sim import lprp_observations as seen
from waystation.sim.chance import fork, spread
from waystation.sim.lprp_commons import LprpCommons
from waystation.sim.lprp_desk import Desk
from waystation.sim.lprp_packets import read_packet

__all__ = ["Person"]

HOUR_US: Final = 3_600 * MICROSECONDS_PER_SECOND
BURST_MAX: Final = 12
AGAIN_US: Final = 5 * MICROSECONDS_PER_SECOND
STRANGERS_MAX: Final = 12


class Person:
    """One identity with a client at every host."""

    def __init__(self, commons: LprpCommons, rng: random.Random, number: int, homes: list[int]) -> None:
        """Make a person; ``start`` lets it come.

        Args:
            commons: The town.
            rng: Source of its habits.
            number: Its number in the town.
            homes: Hosts where it wants a lease.
        """
        self.homes = homes
        self._commons = commons
        self._rng = rng
        self._number = number
        self._moves = 0
        self._key_pair = KeyPair.from_seed(rng.randbytes(32))
        self.key: PublicKey = self._key_pair.public
        commons.tenants += [(self.key, host) for host in homes]
        self._clock = PacketClock()
        self._seen = SeenInMemory()
        self.desks = [
            Desk(commons, fork(rng), self._key_pair, host, self._clock, self._seen, self._on_event)
            for host in range(commons.plan.hosts)
        ]
        self._inbox: dict[bytes, None] = {}
        self._wanted: frozenset[bytes] = frozenset()
        self._people: list[PublicKey] = []
        self._offset_ms = 0
        self._is_up = False
        self._is_asleep = False
        self._is_gone = False
        self._untold: dict[bytes, int] = {}
        self._insisted: dict[bytes, PublicKey] = {}
        self.outcomes: Counter[str] = Counter()

    def start(self, people: list[PublicKey]) -> None:
        """Come, and begin to write to whoever has a lease."""
        plan, habits = self._commons.plan, self._commons.plan.person
        self._people = [key for key in people if key != self.key]
        if self.homes:
            self._wanted = self._draw_whitelist(plan.whitelisted)
        self._come()
        self._every(HOUR_US * (plan.tenants + plan.senders) / plan.mail_per_hour, self._write)
        self._now_and_then(habits.rebinds, self._move)
        self._now_and_then(habits.sleeps, self._sleep)
        self._now_and_then(habits.restarts, self._restart)
        self._now_and_then(habits.edits if self.homes else 0.0, self._edit)

    def calm(self) -> None:
        """Come home, with a clock that is right and no bad habits any more."""
        self._awake()
        self.step(-self._offset_ms)
        self._come()
        for desk in self.desks:
            if desk.is_refused and desk.machine is not None:  # by itself a client asks less and less often
                desk.machine.let_go(self._commons.schedule.now)
                desk.machine.ask_lease(self._commons.schedule.now)
                desk.settle()

    def probe(self) -> None:
        """Write once more to everybody who has a lease, and have the whitelist agreed."""
        for recipient, host in self._commons.tenants:
            self._insist(host, recipient)

    def leave(self) -> None:
        """Complain about what never ended, and go for good."""
        commons = self._commons
        if self._untold:
            commons.observe(seen.LeftHanging(f"person {self._number} never heard what became of {len(self._untold)}"))
        for desk in self.desks:
            machine = desk.machine
            if machine is not None and desk.host in self.homes:
                if machine.lease_until_ms is None or machine.is_doubted:
                    commons.observe(seen.LeftHanging(f"person {self._number} has no lease at host {desk.host}"))
                elif desk.known_whitelist != self._wanted:
                    commons.observe(seen.LeftHanging(f"whitelist of person {self._number} at host {desk.host}"))
        self._is_gone = True
        self._go()

    def step(self, step_ms: int) -> None:
        """Set the clock so much ahead, or back."""
        self._offset_ms += step_ms
        for desk in self.desks:
            desk.step(self._offset_ms)

    def addresses(self) -> list[Address]:
        """Return where its desks are."""
        return [self._address(desk.host) for desk in self.desks]

    def has(self, signature: bytes) -> bool:
        """Return whether the application has kept a packet."""
        return signature in self._inbox

    # Coming and going

    def _address(self, host: int) -> Address:
        """Return where the desk of a host is; a router gives another port, and now and then another network."""
        return f"10.{1 + self._moves // 4}.{self._number}.{1 + self._moves % 4}", 2_000 + 100 * self._moves + host

    def _come(self) -> None:
        if self._is_up or self._is_gone:
            return
        self._is_up = True
        for desk in self.desks:
            machine = desk.open(self._address(desk.host), self._offset_ms)
            if desk.host in self.homes:
                self._settle_in(desk, machine)
            desk.settle()

    def _settle_in(self, desk: Desk, machine: LprpClient) -> None:
        now, commons = self._commons.schedule.now, self._commons
        if desk.lease_until_ms is not None and desk.lease_until_ms > commons.wall_ms(self._offset_ms):
            machine.hold_lease(now, desk.lease_until_ms)
        else:
            machine.ask_lease(now)
        machine.want_whitelist(self._wanted, now)

    def _go(self) -> None:
        """Be gone, without a word to anybody; nobody hears what became of what is under way."""
        self._is_up = self._is_asleep = False
        for desk in self.desks:
            if desk.machine is not None:
                desk.close()
        self._untold.clear()

    def _sleep(self) -> None:
        """Close the lid for a while."""
        if self._is_up and not self._is_asleep:
            self._is_asleep = True
            for desk in self.desks:
                desk.close_lid()
            away_us = spread(self._rng, self._commons.plan.person.away_us)
            self._commons.schedule.after(1 + away_us, self._awake)

    def _awake(self) -> None:
        if self._is_asleep:
            self._is_asleep = False
            for desk in self.desks:
                desk.open_lid()

    def _restart(self) -> None:
        if self._is_up and not self._is_asleep:
            self._go()
            away_us = spread(self._rng, self._commons.plan.person.away_us)
            self._commons.schedule.after(1 + away_us, self._come)

    def _move(self) -> None:
        """Get another address; the old one is nobody's."""
        if self._is_up:
            self._moves += 1
            for desk in self.desks:
                desk.move(self._address(desk.host))

    # Writing

    def _write(self) -> None:
        commons, rng = self._commons, self._rng
        if not self._is_up or self._is_asleep or not commons.tenants:
            return
        count = rng.randint(2, BURST_MAX) if rng.random() < commons.plan.person.bursts else 1
        for _ in range(count):
            recipient, host = rng.choice(commons.tenants)
            self._send(host, recipient)

    def _send(self, host: int, recipient: PublicKey) -> bytes | None:
        desk, rng = self.desks[host], self._rng
        if desk.machine is None:
            return None
        payload = rng.randbytes(rng.randint(0, self._commons.plan.payload_bytes_max))
        ticket = desk.machine.send(payload, recipient, self._commons.schedule.now)
        self._untold[ticket] = host
        self._commons.observe(seen.Sending(self.key, host, ticket))
        desk.settle()
        return ticket

    def _insist(self, host: int, recipient: PublicKey) -> None:
        """Send a packet that has to arrive."""
        ticket = self._send(host, recipient)
        if ticket is not None:
            self._insisted[ticket] = recipient
            self._commons.hopes[recipient, ticket] = f"the last packet of person {self._number}"

    def _on_finished(self, desk: Desk, ticket: bytes, outcome: str) -> None:
        """Note an outcome; whoever was refused for a lease that has just run out sends anew."""
        recipient = self._insisted.pop(ticket, None)
        self._untold.pop(ticket, None)
        self._commons.observe(seen.Finished(self.key, desk.host, ticket, outcome))
        self.outcomes[outcome.lower()] += 1
        if recipient is not None and outcome == "REFUSED" and not self._is_gone:
            self._commons.hopes.pop((recipient, ticket), None)
            desk.later(1 + spread(self._rng, AGAIN_US), lambda _machine: self._insist(desk.host, recipient))

    # Whitelists

    def _draw_whitelist(self, chance: float) -> frozenset[bytes]:
        friends = {key for key in self._people if self._rng.random() < chance}
        others = {self._rng.randbytes(32) for _ in range(self._rng.randrange(STRANGERS_MAX))}
        return frozenset(friends | others)

    def _edit(self) -> None:
        if self._is_asleep:
            return
        self._wanted = self._draw_whitelist(self._rng.random())
        for desk in self.desks:
            if desk.machine is not None and desk.host in self.homes:
                now = self._commons.schedule.now
                if not self._wanted and self._rng.random() < 1 / 2:
                    desk.machine.clear_whitelist(now)
                desk.machine.want_whitelist(self._wanted, now)
                desk.settle()

    # What desks report

    def _on_event(self, desk: Desk, event: Event) -> None:
        commons = self._commons
        if isinstance(event, PacketArrived):
            self._on_packet(desk, event)
        elif isinstance(event, RelayFinished):
            self._on_finished(desk, event.signature, event.outcome.name)
        elif isinstance(event, LeaseGranted):
            desk.lease_until_ms = event.until_ms
            desk.is_refused = False
            commons.observe(seen.LeaseTold(self.key, desk.host))
            self.outcomes["lease"] += 1
        elif isinstance(event, WhitelistAgreed):
            desk.known_whitelist = event.keys
            commons.observe(seen.WhitelistTold(self.key, desk.host, tuple(sorted(event.keys))))
            self.outcomes["whitelist"] += 1
        elif isinstance(event, WhitelistFailed):
            self._want_again(desk)
        elif isinstance(event, LeaseRefused):
            desk.is_refused = True
            self.outcomes[f"lease_{event.outcome.name.lower()}"] += 1
        elif isinstance(event, PacketDropped):
            self.outcomes[f"dropped_{event.refusal.value}"] += 1

    def _want_again(self, desk: Desk) -> None:
        desk.later(
            spread(self._rng, AGAIN_US),
            lambda machine: machine.want_whitelist(self._wanted, self._commons.schedule.now),
        )

    def _on_packet(self, desk: Desk, event: PacketArrived) -> None:
        commons, habits = self._commons, self._commons.plan.person
        packet = read_packet(event.packet.data)
        assert packet is not None
        commons.observe(seen.AppGot(self.key, desk.host, desk.life, packet.data))
        now = commons.schedule.now
        if commons.troubled and self._rng.random() < habits.hands_back:
            commons.observe(seen.HandedBack(self.key, desk.host, desk.life, packet.signature))
            desk.later(0, lambda machine: machine.hand_back(packet.signature, now))
            return
        desk.later(spread(self._rng, habits.keep_us), lambda machine: self._keep(machine, packet.signature))

    def _keep(self, machine: LprpClient, signature: bytes) -> None:
        commons = self._commons
        if signature not in self._inbox:
            self._inbox[signature] = None
            commons.observe(seen.AppKept(self.key, signature))
            commons.hopes.pop((self.key, signature), None)
            self.outcomes["kept"] += 1
        if commons.troubled and not self._is_asleep and self._rng.random() < 1 / 50:
            self._restart()  # after the disk has it, before the host knows
        else:
            commons.observe(seen.Confirmed(self.key, signature))
            machine.confirm(signature, commons.schedule.now)

    # Habits

    def _every(self, mean_us: float, act: Callable[[], None]) -> None:
        """Let something happen at random instants while there is trouble."""

        def happen() -> None:
            if self._commons.troubled:
                act()
                self._every(mean_us, act)

        self._commons.schedule.after(1 + spread(self._rng, mean_us), happen)

    def _now_and_then(self, per_hour: float, act: Callable[[], None]) -> None:
        if per_hour > 0:
            self._every(HOUR_US / per_hour, act)
