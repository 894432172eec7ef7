"""One simulated LPRP client at one host: the client machine, its socket, and its proof-of-work searches.

Each simulated client has one for each host. A restart replaces the machine; the data that the application stored on
disk survives.
"""

import random
from collections.abc import Callable
from typing import Any, Final

from waystation.core.effects import Address
from waystation.core.instant import MICROSECONDS_PER_MS
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.client.clock import PacketClock
from waystation.protocols.lprp.client.events import Event, WorkOver, WorkWanted
from waystation.protocols.lprp.client.machine import LprpClient
from waystation.protocols.lprp.client.seen_packets import SeenPackets
from waystation.protocols.lprp.client.settings import ClientSettings
from waystation.protocols.lprp.messages import Kind
from waystation.protocols.lprp.work import search
from waystation.sim.chance import fork, spread
from waystation.sim.driver import DatagramDriver
from waystation.sim.lprp.context import LprpContext, host_address
from waystation.sim.world import WALL_START_US

__all__ = ["HostSession"]

_SEARCH_COUNT: Final = 1 << 20


class HostSession:
    """One client machine at one host, over all its lives."""

    def __init__(
        self,
        context: LprpContext,
        rng: random.Random,
        key_pair: KeyPair,
        host: int,
        clock: PacketClock,
        seen_packets: SeenPackets,
        on_event: Callable[["HostSession", Event], None],
    ) -> None:
        """Make a session; ``open`` begins the first life.

        Args:
            context: Shared by all actors.
            rng: Source of the machine's entropy.
            key_pair: The client's.
            host: Number of the host.
            clock: The client's; it is on the disk.
            seen_packets: The client's; they are on the disk.
            on_event: Gets what the machine reports, and the session.
        """
        self.host = host
        self.known_whitelist: frozenset[bytes] | None = None
        """What the host agreed to last; on the disk."""
        self.bits: dict[Kind, int] = {}
        """On the disk."""
        self.lease_until_ms: int | None = None
        """On the disk."""
        self.driver: DatagramDriver[LprpClient] | None = None
        """Of this life; None between two."""
        self.is_refused = False
        """Whether the last thing received about the lease is that it was not to be had."""
        self.life = 0
        """How often it was opened."""
        self._context = context
        self._rng = rng
        self._key_pair = key_pair
        self._clock = clock
        self._seen = seen_packets
        self._on_event = on_event
        self._offset_ms = 0
        self._searches: dict[bytes, int] = {}

    @property
    def machine(self) -> LprpClient | None:
        """The machine of this life; None between two."""
        return self.driver.machine if self.driver is not None else None

    def open(self, address: Address, offset_ms: int) -> LprpClient:
        """Begin a life with what is on the disk, and return its machine."""
        context, plan, now = self._context, self._context.plan, self._context.schedule.now
        settings = ClientSettings(
            byte_order=plan.byte_order,
            heartbeat_ms=plan.heartbeat_ms,
            lease_ms=plan.lease_ms,
            work_first_bits=max(1, plan.base_bits - 1),
            work_step_bits=2,
        )
        self.life += 1
        machine = context.make_client(
            self._key_pair,
            context.host_keys[self.host],
            fork(self._rng),
            settings=settings,
            clock=self._clock,
            seen=self._seen,
            bits=self.bits,
            known_whitelist=self.known_whitelist,
        )
        self._offset_ms = offset_ms
        machine.set_wall(now, self._wall_us())
        addresses = (address, host_address(self.host))
        self.driver = DatagramDriver(context.schedule, context.network, addresses, machine, self._on_turn, context.made)
        return machine

    def close(self) -> None:
        """End this life; whatever the machine knew is gone."""
        driver, self.driver = self.driver, None
        for number in self._searches.values():
            self._context.schedule.cancel(number)
        self._searches.clear()
        if driver is not None:
            driver.close()

    def step(self, offset_ms: int) -> None:
        """Set the clock so much ahead of the right one."""
        self._offset_ms = offset_ms
        if self.machine is not None:
            self.machine.set_wall(self._context.schedule.now, self._wall_us())
            self.settle()

    def settle(self) -> None:
        """Carry out what the machine wants, and pass on what it reports."""
        if self.driver is not None:
            self.driver.settle()

    def later(self, delay_us: int, act: Callable[[LprpClient], Any]) -> None:
        """Let ``act`` happen to the machine after a while, unless its life is over by then."""
        machine = self.machine

        def happen() -> None:
            if machine is not None and machine is self.machine:
                act(machine)
                self.settle()

        self._context.schedule.after(delay_us, happen)

    def _on_turn(self) -> None:
        machine = self.machine
        if machine is None:
            return
        for event in machine.take_events():
            if isinstance(event, WorkWanted):
                self._work(event)
            elif isinstance(event, WorkOver):
                self._stop(event.challenge_signature)
            else:
                self._on_event(self, event)
        if self.machine is machine:
            self.bits = dict(machine.bits)

    def _wall_us(self) -> int:
        return WALL_START_US + self._context.schedule.now + self._offset_ms * MICROSECONDS_PER_MS

    # Work

    def _work(self, wanted: WorkWanted) -> None:
        signature, context = wanted.challenge_signature, self._context
        self._stop(signature)
        took_us = spread(self._rng, context.plan.solve_us)
        self._searches[signature] = context.schedule.after(took_us, lambda: self._found(wanted))

    def _stop(self, signature: bytes) -> None:
        number = self._searches.pop(signature, None)
        if number is not None:
            self._context.schedule.cancel(number)

    def _found(self, wanted: WorkWanted) -> None:
        context, machine = self._context, self.machine
        self._searches.pop(wanted.challenge_signature, None)
        if machine is None:
            return
        now = context.schedule.now
        if context.in_fault_phase and self._rng.random() < context.plan.client.gives_up_work:
            machine.work_stopped(wanted.challenge_signature, now)
        else:
            counter = search(wanted.challenge, wanted.bits, wanted.start, _SEARCH_COUNT)
            if counter is None:
                machine.work_stopped(wanted.challenge_signature, now)
            else:
                machine.work_found(wanted.challenge_signature, counter, now)
        self.settle()
