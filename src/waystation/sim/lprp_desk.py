"""A person's client at one host: the machine, its socket, its timer, and the work that it wants done.

A desk loses its machine when its person restarts; what the application had on its disk is the person's.
"""

import random
from collections.abc import Callable
from typing import Any, Final

from waystation.core.effects import Address, Peer, Send
from waystation.core.instant import MICROSECONDS_PER_MS
from waystation.crypto.signing import KeyPair
from waystation.protocols.lprp.client import LprpClient
from waystation.protocols.lprp.client_clock import PacketClock
from waystation.protocols.lprp.client_events import Event, WorkOver, WorkWanted
from waystation.protocols.lprp.client_settings import ClientSettings
from waystation.protocols.lprp.messages import Kind
from waystation.protocols.lprp.seen_packets import SeenPackets
from waystation.protocols.lprp.work import search
from waystation.sim.chance import fork, spread
from waystation.sim.lprp_commons import LprpCommons, host_address
from waystation.sim.timer import Timer
from waystation.sim.world import WALL_START_US

__all__ = ["Desk"]

_PEER: Final = Peer(0)
_SEARCH_COUNT: Final = 1 << 20


class Desk:
    """One client machine at one host, over all its lives."""

    def __init__(
        self,
        commons: LprpCommons,
        rng: random.Random,
        key_pair: KeyPair,
        host: int,
        clock: PacketClock,
        seen_packets: SeenPackets,
        on_event: Callable[["Desk", Event], None],
    ) -> None:
        """Make a desk; ``open`` begins the first life.

        Args:
            commons: The town.
            rng: Source of the machine's entropy.
            key_pair: The person's.
            host: Number of the host.
            clock: The person's; it is on the disk.
            seen_packets: The person's; they are on the disk.
            on_event: Gets what the machine tells, and the desk.
        """
        self.host = host
        self.known_whitelist: frozenset[bytes] | None = None
        """What the host agreed to last; on the disk."""
        self.bits: dict[Kind, int] = {}
        """On the disk."""
        self.lease_until_ms: int | None = None
        """On the disk."""
        self.machine: LprpClient | None = None
        self.is_refused = False
        """Whether the last thing heard about the lease is that it was not to be had."""
        self.life = 0
        """How often it was opened."""
        self._commons = commons
        self._rng = rng
        self._key_pair = key_pair
        self._clock = clock
        self._seen = seen_packets
        self._on_event = on_event
        self._address: Address = ("", 0)
        self._offset_ms = 0
        self._timer = Timer(commons.schedule, self._on_timer)
        self._searches: dict[bytes, int] = {}
        self._is_asleep = False

    def open(self, address: Address, offset_ms: int) -> LprpClient:
        """Begin a life with what is on the disk, and return its machine."""
        commons, plan, now = self._commons, self._commons.plan, self._commons.schedule.now
        settings = ClientSettings(
            byte_order=plan.byte_order,
            heartbeat_ms=plan.heartbeat_ms,
            lease_ms=plan.lease_ms,
            work_first_bits=max(1, plan.base_bits - 1),
            work_step_bits=2,
        )
        self.life += 1
        self.machine = machine = commons.make_client(
            self._key_pair,
            commons.host_keys[self.host],
            fork(self._rng),
            settings=settings,
            clock=self._clock,
            seen=self._seen,
            bits=self.bits,
            known_whitelist=self.known_whitelist,
        )
        self._offset_ms = offset_ms
        machine.set_wall(now, self._wall_us())
        self.move(address)
        machine.connect(_PEER, now)
        return machine

    def close(self) -> None:
        """End this life; whatever the machine knew is gone."""
        self.machine = None
        self._is_asleep = False
        self._timer.cancel()
        for number in self._searches.values():
            self._commons.schedule.cancel(number)
        self._searches.clear()
        self._commons.network.unbind(self._address)

    def close_lid(self) -> None:
        """Hear nothing and do nothing, as a machine whose lid is closed; what it knows stays."""
        self._is_asleep = True
        self._timer.cancel()
        self._commons.network.unbind(self._address)

    def open_lid(self) -> None:
        """Go on."""
        self._is_asleep = False
        if self.machine is not None:
            self._commons.network.bind(self._address, self._hear)
            self._on_timer()

    def move(self, address: Address) -> None:
        """Have another address from now on."""
        if self.machine is None:
            return
        self._commons.network.unbind(self._address)
        self._address = address
        if not self._is_asleep:
            self._commons.network.bind(address, self._hear)

    def step(self, offset_ms: int) -> None:
        """Set the clock so much ahead of the right one."""
        self._offset_ms = offset_ms
        if self.machine is not None:
            self.machine.set_wall(self._commons.schedule.now, self._wall_us())
            self.settle()

    def settle(self) -> None:
        """Carry out what the machine wants, and pass on what it tells."""
        machine = self.machine
        if machine is None or self._is_asleep:
            return
        for effect in machine.take():
            assert isinstance(effect, Send)
            self._commons.made(effect.data)
            self._commons.network.send(self._address, host_address(self.host), effect.data)
        for event in machine.take_events():
            if isinstance(event, WorkWanted):
                self._work(event)
            elif isinstance(event, WorkOver):
                self._stop(event.challenge_signature)
            else:
                self._on_event(self, event)
        if self.machine is machine:
            self.bits = dict(machine.bits)
            self._timer.ring_by(machine.deadline())

    def later(self, delay_us: int, act: Callable[[LprpClient], Any]) -> None:
        """Let ``act`` happen to the machine after a while, unless its life is over by then."""
        machine = self.machine

        def happen() -> None:
            if machine is not None and machine is self.machine:
                act(machine)
                self.settle()

        self._commons.schedule.after(delay_us, happen)

    # What the socket and the timer report

    def _hear(self, data: bytes, address: Address) -> None:
        """Hand on what claims to come from the host, as a connected socket does."""
        if self.machine is not None and address == host_address(self.host):
            self.machine.receive(_PEER, data, self._commons.schedule.now)
            self.settle()

    def _on_timer(self) -> None:
        if self.machine is not None:
            self.machine.wake(self._commons.schedule.now)
            self.settle()

    def _wall_us(self) -> int:
        return WALL_START_US + self._commons.schedule.now + self._offset_ms * MICROSECONDS_PER_MS

    # Work

    def _work(self, wanted: WorkWanted) -> None:
        signature, commons = wanted.challenge_signature, self._commons
        self._stop(signature)
        took_us = spread(self._rng, commons.plan.solve_us)
        self._searches[signature] = commons.schedule.after(took_us, lambda: self._found(wanted))

    def _stop(self, signature: bytes) -> None:
        number = self._searches.pop(signature, None)
        if number is not None:
            self._commons.schedule.cancel(number)

    def _found(self, wanted: WorkWanted) -> None:
        commons, machine = self._commons, self.machine
        self._searches.pop(wanted.challenge_signature, None)
        if machine is None:
            return
        now = commons.schedule.now
        if commons.troubled and self._rng.random() < commons.plan.person.gives_up_work:
            machine.work_stopped(wanted.challenge_signature, now)
        else:
            counter = search(wanted.challenge, wanted.bits, wanted.start, _SEARCH_COUNT)
            if counter is None:
                machine.work_stopped(wanted.challenge_signature, now)
            else:
                machine.work_found(wanted.challenge_signature, counter, now)
        self.settle()
