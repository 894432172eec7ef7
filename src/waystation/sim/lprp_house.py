"""One host of a simulated LPRP town: its store, its lives, its clock, and everything that comes in and goes out."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from waystation.core.effects import Address, Datagram
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_MS
from waystation.core.records import Change, Record, Store
from waystation.crypto.signing import KeyPair
from waystation.engine.node import DatagramRelay
from waystation.journal.events import Event
from waystation.protocols.lprp.relay import LprpRelay
from waystation.protocols.lprp.settings import LprpSettings
from waystation.sim import lprp_observations as seen
from waystation.sim.chance import fork
from waystation.sim.lprp_commons import PROTOCOL, LprpCommons, Tapped, host_address
from waystation.sim.lprp_packets import is_fresh_request, read_packet
from waystation.sim.trace import Notes
from waystation.sim.world import WALL_START_US, World, make_store

__all__ = ["House", "MakeLprpRelay", "WatchedStore"]

EPOCH_BYTES: Final = 8
KEPT_MAX: Final = 4_000


class MakeLprpRelay(Protocol):
    """Makes a relay; ``LprpRelay`` itself, or a broken one in tests of the invariants."""

    def __call__(
        self,
        settings: LprpSettings,
        key_pair: KeyPair,
        store: Store,
        *,
        rate_limits: bool,
        admits: Callable[[PublicKey], bool],
    ) -> LprpRelay:
        """Return a fresh relay over what the store holds."""


class WatchedStore:
    """A store that can be asked whether something was ever committed, whatever the layout of its rows."""

    def __init__(self, store: Store) -> None:
        """Stand in front of ``store``."""
        self._store = store
        self._written: deque[bytes] = deque(maxlen=KEPT_MAX)
        self.packets = store.packets

    def commit(self, changes: Sequence[Change]) -> None:
        """Write, and remember what."""
        self._store.commit(changes)
        self._written += [change.value for change in changes if isinstance(change, Record) and change.value]

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value kept for ``key``, or None."""
        return self._store.get(table, key)

    def get_many(self, table: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values kept for those of ``keys`` that have one."""
        return self._store.get_many(table, keys)

    def scan(self, table: str, start: bytes = b"", count_max: int = 1_000) -> Any:
        """Yield pairs in key order."""
        return self._store.scan(table, start, count_max)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def has_written(self, data: bytes) -> bool:
        """Return whether ``data`` stood in one of the last few thousand values that were committed."""
        return any(data in value for value in reversed(self._written))


class House:
    """One host."""

    def __init__(
        self,
        commons: LprpCommons,
        rng: random.Random,
        trace: Notes,
        number: int,
        make_relay: MakeLprpRelay,
        on_event: Callable[[Event], None],
    ) -> None:
        """Start it.

        Args:
            commons: The town; gets the host's key.
            rng: Source of its key and of its world's entropy.
            trace: Gets its lines.
            number: Its number in the town.
            make_relay: Makes the relay of each life.
            on_event: Gets what it journals.
        """
        self.number = number
        self._commons = commons
        self.key_pair = KeyPair.from_seed(rng.randbytes(32))
        commons.host_keys.append(self.key_pair.public)
        self._make_relay = make_relay
        self._offset_ms = 0
        self._waiting: list[Datagram] = []
        self._store = WatchedStore(make_store(rng.randbytes(EPOCH_BYTES)))
        self._relay: LprpRelay
        self._life = 0
        self.address = host_address(number)
        self.world: World
        self.world = World(
            commons.schedule,
            fork(rng),
            trace,
            self._make_relays,
            store=self._store,
            settings=commons.plan.host,
            on_event=on_event,
            on_datagram=self._say,
        )
        commons.network.bind(self.address, self._hear)

    @property
    def wall_ms(self) -> int:
        """The host's clock."""
        return self._commons.wall_ms(self._offset_ms)

    def crash(self, down_us: int) -> None:
        """Kill the node; it is back later with what its store has."""
        self._waiting.clear()
        self.world.crash(down_us)

    def stop(self, down_us: int) -> None:
        """End the node in good order."""
        self._waiting.clear()
        self.world.stop(down_us)

    def step(self, step_ms: int) -> None:
        """Set the clock so much ahead, or back."""
        self._commons.observe(seen.Clocked(self.number, self.wall_ms, step_ms))
        self._offset_ms += step_ms
        if self.world.is_up:
            self._set_wall()
            self.world.plan_turn()

    def right(self) -> None:
        """Set the clock right."""
        if self._offset_ms:
            self.step(-self._offset_ms)

    def measure(self, phase: str) -> None:
        """Observe how much there is of everything, if the node runs."""
        sizes = self.world.sizes().get(PROTOCOL)
        if sizes is not None:
            self._commons.observe(seen.Measured(self.number, self.wall_ms, sizes, self._views(), phase))

    # Lives

    def _make_relays(self, _entropy: random.Random, admits: Callable[[PublicKey], bool]) -> dict[str, DatagramRelay]:
        commons, plan = self._commons, self._commons.plan
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
        self._relay = self._make_relay(
            settings, self.key_pair, self._store, rate_limits=plan.rate_limits, admits=admits
        )
        self._life += 1
        self._set_wall()
        commons.observe(seen.HostBegan(self.number, self._life, self.wall_ms, self._views()))
        return {PROTOCOL: self._relay}

    def _set_wall(self) -> None:
        now = self._commons.schedule.now
        self._relay.set_wall(now, WALL_START_US + now + self._offset_ms * MICROSECONDS_PER_MS)

    def _views(self) -> dict[bytes, dict[str, Any]]:
        return {bytes.fromhex(view["key"]): view for view in self._relay.tenants(self._commons.schedule.now)}

    # What goes in and out

    def _hear(self, data: bytes, address: Address) -> None:
        """Take a datagram from the network, alone or with those that come soon after it."""
        gather_us = self._commons.plan.gather_us
        self._waiting.append((data, address))
        if len(self._waiting) == 1:
            self._commons.schedule.after(gather_us, self._read) if gather_us else self._read()

    def _read(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting or not self.world.is_up:
            return
        self._commons.observe(seen.Sized(self.number, self._relay.sizes()))
        for data, address in waiting:
            self._observe_heard(data, address)
        self.world.receive_datagrams(PROTOCOL, waiting)

    def _observe_heard(self, data: bytes, address: Address) -> None:
        packet, wall_ms = read_packet(data), self.wall_ms
        if packet is not None and not is_fresh_request(packet, wall_ms):
            packet = None
        is_signed = packet is not None and packet.is_signed_by(packet.sender)
        self._commons.observe(seen.Heard(self.number, address, len(data), packet, is_signed, wall_ms))
        if packet is not None and is_signed:
            self._commons.requests.append(Tapped(self.number, address, packet))

    def _say(self, address: Address, data: bytes) -> None:
        packet = read_packet(data)
        is_signed = packet is not None and packet.is_signed_by(self.key_pair.public)
        is_stored = packet is not None and packet.command == 0x202 and self._store.has_written(packet.reference)
        self._commons.observe(seen.Said(self.number, address, packet, len(data), is_signed, is_stored, self.wall_ms))
        if packet is not None:
            self._commons.answers.append(Tapped(self.number, address, packet))
        self._commons.network.send(self.address, address, data)
