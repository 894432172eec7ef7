"""The simulated host of one LPRP node: its store, restarts and clock, with every datagram in and out observed.

``LprpScenario`` makes one for each host. The relay itself is the real one, in a ``World`` that takes the place of the
server; what is observed goes to the invariants.
"""

import random
from collections.abc import Callable
from typing import Any

from waystation.core.effects import Address, Datagram
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS
from waystation.engine.node import DatagramRelay
from waystation.journal.events import Event
from waystation.protocols.lprp.relay.machine import LprpRelay
from waystation.protocols.lprp.settings import LprpSettings
from waystation.sim.lprp import observations as seen
from waystation.sim.lprp.context import PROTOCOL, LprpContext, Tapped, host_address
from waystation.sim.lprp.packets import is_fresh_request, read_packet
from waystation.sim.observations import Sized
from waystation.sim.site import Site, draw_key_pair, draw_store
from waystation.sim.trace import Notes
from waystation.sim.world import WALL_START_US

__all__ = ["Host"]


class Host(Site[LprpContext]):
    """One host."""

    def __init__(
        self,
        context: LprpContext,
        rng: random.Random,
        trace: Notes,
        number: int,
        make_relay: type[LprpRelay],
        on_event: Callable[[Event], None],
    ) -> None:
        """Start it; see ``Site``. ``make_relay`` makes the relay of each life."""
        self._make = make_relay
        self._offset_ms = 0
        self._waiting: list[Datagram] = []
        self._relay: LprpRelay
        self.address = host_address(number)
        key_pair = draw_key_pair(rng)
        context.host_pairs.append(key_pair)
        store = draw_store(rng)
        super().__init__(context, rng, trace, number, on_event, host=context.plan.host, key_pair=key_pair, store=store)
        context.network.bind(self.address, self._on_received)

    @property
    def wall_ms(self) -> int:
        """The host's clock."""
        return self._context.wall_ms(self._offset_ms)

    def crash(self, down_us: int) -> None:
        """Kill the node; it is back later with what its store has."""
        self._waiting.clear()
        super().crash(down_us)

    def stop(self, down_us: int) -> None:
        """End the node in good order."""
        self._waiting.clear()
        super().stop(down_us)

    def step(self, step_ms: int) -> None:
        """Set the clock so much ahead, or back."""
        self._context.observe(seen.Clocked(self.number, self.wall_ms, step_ms))
        self._offset_ms += step_ms
        if self.world.is_up:
            self._set_wall()
            self.world.plan_turn()

    def set_right(self) -> None:
        """Set the clock right."""
        if self._offset_ms:
            self.step(-self._offset_ms)

    def measure(self, *, settled: bool) -> None:
        """Observe how much there is of everything, if the node runs."""
        self.show("settled" if settled else "faults")

    def show(self, phase: str) -> None:
        """Observe sizes and tenants, if the node runs; ``phase`` as in ``Measured``."""
        sizes = self.world.sizes().get(PROTOCOL)
        if sizes is not None:
            self._context.observe(seen.Measured(self.number, self.wall_ms, sizes, self._views(), phase))

    # Lives

    def _on_life(self, life: int) -> None:
        """Begin without a turn: a host dials nobody."""

    def _make_relay(self, _entropy: random.Random, admits: Callable[[PublicKey], bool]) -> DatagramRelay:
        context, plan = self._context, self._context.plan
        settings = LprpSettings(
            byte_order=plan.byte_order,
            pow_base_bits_relay=plan.base_bits,
            pow_base_bits_lease=plan.base_bits,
            pow_base_bits_whitelist=plan.base_bits,
            pow_adaptive=plan.adaptive,
            retry_ms=plan.retry_ms,
            retries=plan.retries,
            lease_ms=plan.lease_ms,
            rebind_on_relay=plan.rebind_on_relay,
        )
        self._relay = self._make(settings, self.key_pair, self.store, rate_limits=plan.rate_limits, admits=admits)
        self._set_wall()
        context.observe(seen.HostStarted(self.number, self.wall_ms, self._views()))
        return self._relay

    def _set_wall(self) -> None:
        now = self._context.schedule.now
        self._relay.set_wall(now, WALL_START_US + now + self._offset_ms * MICROSECONDS_PER_MS)

    def _views(self) -> dict[bytes, dict[str, Any]]:
        return {bytes.fromhex(view["key"]): view for view in self._relay.tenants(self._context.schedule.now)}

    # What goes in and out

    def _on_received(self, data: bytes, address: Address) -> None:
        """Take a datagram from the network, alone or with those that come soon after it."""
        gather_us = self._context.plan.gather_us
        self._waiting.append((data, address))
        if len(self._waiting) == 1:
            self._context.schedule.after(gather_us, self._read) if gather_us else self._read()

    def _read(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting or not self.world.is_up:
            return
        self._context.observe(Sized(self.number, self._relay.sizes()))
        for data, address in waiting:
            self._observe_received(data, address)
        self.world.receive_datagrams(PROTOCOL, waiting)

    def _observe_received(self, data: bytes, address: Address) -> None:
        packet, wall_ms = read_packet(data), self.wall_ms
        if packet is not None and not is_fresh_request(packet, wall_ms):
            packet = None
        is_signed = packet is not None and packet.is_signed_by(packet.sender)
        self._context.observe(seen.Received(self.number, address, len(data), packet, is_signed, wall_ms))
        if packet is not None and is_signed:
            self._context.requests.append(Tapped(self.number, address, packet))

    def _on_datagram(self, address: Address, data: bytes) -> None:
        packet = read_packet(data)
        is_signed = packet is not None and packet.is_signed_by(self.key_pair.public)
        is_stored = packet is not None and packet.command == 0x202 and self.store.has_synced(packet.reference)
        self._context.observe(seen.Sent(self.number, address, packet, len(data), is_signed, is_stored, self.wall_ms))
        if packet is not None:
            self._context.answers.append(Tapped(self.number, address, packet))
        self._context.network.send(self.address, address, data)
