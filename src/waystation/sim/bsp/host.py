"""The simulated host of one BSP device: a ``BspDevice``, its store, its connections, and its owner's configuration.

``BspNetwork`` makes one for each device. Input of one instant is collected and processed in one event-loop iteration:
commit, send to each peer with pending records, report to the application. A store may commit with a delay, or refuse; a
crash loses whatever is uncommitted.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, Protocol

from waystation.core.commits import Commits
from waystation.core.errors import StoreFault
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.records import Change, Store
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device.events import Delivered
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.links import Mode, Visibility
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.profile import PROFILES
from waystation.protocols.bsp.refusals import MalformedError
from waystation.protocols.bsp.wire import read_all
from waystation.sim.bsp import observations as seen
from waystation.sim.bsp.connection import Connection
from waystation.sim.bsp.records import REQUEST, SeenRecord, read_records
from waystation.sim.disk import FaultyStore, Promises
from waystation.sim.invariants import ViolationError
from waystation.sim.observations import DiskLost, Sized
from waystation.sim.schedule import Schedule
from waystation.sim.timer import Timer
from waystation.sim.world import WALL_START_US

__all__ = ["Host", "MakeDevice", "Surroundings", "key_of", "key_pair_of", "make_device"]

SEED: Final = PROFILES["seed"]
TURNS_MAX: Final = 10_000  # ours: of one instant; only a device that stirs itself comes near
_MESSAGES: Final = "bsp_messages"

MakeDevice = Callable[[Store, Mode], BspDevice]
"""Makes the device of each life of a host."""


def make_device(store: Store, mode: Mode) -> BspDevice:
    """Return a device of profile seed."""
    return BspDevice(SEED, store, mode=mode)


@cache
def key_pair_of(name: str) -> KeyPair:
    """Return the keys of whoever is called so."""
    return KeyPair.from_seed(name.encode().ljust(32, b"\0"))


def key_of(name: str) -> PublicKey:
    """Return the public key of whoever is called so."""
    return key_pair_of(name).public


class Surroundings(Protocol):
    """What hosts and hostile peers need from where they live; ``BspNetwork`` is it."""

    schedule: Schedule
    groups: dict[bytes, Group]
    groups_of: dict[bytes, bytes]
    """Group of every message that was ever made."""

    def observe(self, observation: Any) -> None:
        """Take what has happened."""


class Host:
    """One device."""

    def __init__(
        self,
        network: Surroundings,
        name: str,
        mode: Mode = Mode.AUTO,
        make: MakeDevice = make_device,
        commit_us: int = 0,
    ) -> None:
        """Start with an empty store.

        Args:
            network: Where it lives.
            name: At most 32 ASCII characters; its key follows from it.
            mode: How it hands messages over.
            make: Makes the device of each of its lives.
            commit_us: How long its disk takes, in microseconds.
        """
        self._network = network
        self._schedule = network.schedule
        self.name = name
        self.mode = mode
        self.store = FaultyStore()
        self._promises = Promises()
        self._under_way: Sequence[Change] = ()
        """Changes that have not reached the disk."""
        self._commits = Commits()
        self._make = make
        self._commit_us = commit_us
        self._groups: dict[bytes, Group] = {}
        self._visible: dict[tuple[bytes, str], Visibility] = {}
        self.connections: dict[str, list[Connection]] = {}
        """By peer, the newest last; those that have ended, too."""
        self._names: dict[PublicKey, str] = {}
        self._timer = Timer(self._schedule, self._on_timer)
        self._life = 0
        self._is_turn_planned = False
        self.is_up = False
        self.delivered_at: dict[bytes, Instant] = {}
        """By message, the first time."""
        self.reported: Counter[bytes] = Counter()
        """How often each message was reported to the application."""
        self.malformed = 0
        """Records that were none."""
        self.device = make(self.store, mode)
        self.start()

    # Lives

    def start(self) -> None:
        """Start from the store; the owner says again what is not kept there."""
        now = self._schedule.now
        self._life += 1
        self.is_up = True
        self._is_turn_planned = False
        self._commits = Commits()
        if broken := self._promises.broken(self.store):
            raise ViolationError("kept", f"{self.name} finds {len(broken)} rows otherwise, as in {broken[0]}")
        device = self.device = self._make(self.store, self.mode)
        self._begin_life()
        device.set_wall(now, WALL_START_US + now)
        for group in self._groups.values():
            device.join(group, now)
        for peer in self._names:
            device.meet(peer)
        for (group_id, peer_name), visibility in self._visible.items():
            device.share(group_id, key_of(peer_name), now, visibility)
        self._network.observe(seen.Started(self.name, self.states()))
        for connections in self.connections.values():
            for connection in connections:
                if connection.is_up:
                    self.link_up(connection)
        self.plan_turn()

    def crash(self) -> None:
        """Lose everything but the store."""
        self._life += 1
        self.is_up = False
        self._timer.cancel()
        under_way = [self._under_way] if self._under_way else []
        self._under_way = ()
        self._promises.may_be(under_way)
        if lost := self.store.end_life(under_way, orderly=False):
            self._promises.lost(lost)
            self._network.observe(DiskLost(self.name, lost, self.store.lost_values))

    def _begin_life(self) -> None:
        """Do what a life begins with once there is a device, before it knows anybody."""

    # The owner

    def join(self, group: Group) -> None:
        """Become a member."""
        self._groups[group.group_id] = group
        if self.is_up:
            self.device.join(group, self._schedule.now)

    def meet(self, peer: str) -> None:
        """Know a peer."""
        self._names[key_of(peer)] = peer
        if self.is_up:
            self.device.meet(key_of(peer))

    def share(self, group_id: bytes, peer: str, visibility: Visibility = Visibility.SHARED) -> None:
        """Share a group with a peer from now on, or no longer."""
        self._visible[group_id, peer] = visibility
        self._network.observe(seen.Shared(self.name, peer, group_id, visibility is not Visibility.INVISIBLE))
        if self.is_up:
            self.device.share(group_id, key_of(peer), self._schedule.now, visibility)
            self.plan_turn()

    def add(self, group: Group, timestamp: int, body: bytes, *, share: bool = True) -> bytes:
        """Create a message and return its identifier."""
        message_id = self.device.add(group.group_id, timestamp, body, self._schedule.now, share=share)
        self._network.groups_of[message_id] = group.group_id
        self._network.observe(seen.Made(group.group_id, message_id, body, group.format == "deps_v1"))
        self.plan_turn()
        return message_id

    def share_message(self, group_id: bytes, message_id: bytes) -> None:
        """Share a message that was kept back, and whatever it depends on."""
        self.device.share_message(group_id, message_id, self._schedule.now)
        self.plan_turn()

    def delete(self, group_id: bytes, message_id: bytes) -> None:
        """Delete the body of a message."""
        self.device.delete(group_id, message_id)
        self.plan_turn()

    def measure(self, *, settled: bool) -> None:  # noqa: ARG002 - nothing has to become empty
        """Observe what the device holds, while it runs."""
        if self.is_up:
            self._network.observe(Sized(self.name, self.device.sizes()))

    def states(self) -> dict[bytes, seen.State]:
        """Return what the device shows of every message."""
        return {
            vertex.message_id: seen.State(int(vertex.state), vertex.order, vertex.body_present)
            for group_id in self._groups
            for vertex in self.device.messages(group_id)
        }

    # Lines

    def link_up(self, connection: Connection) -> None:
        """Notify the device of a connection."""
        self._network.observe(seen.LineUp(self.name, connection.other(self.name)))
        connection.numbers[self.name] = self.device.link_up(
            key_of(connection.other(self.name)), connection.terms, self._schedule.now
        )
        self.plan_turn()

    def link_down(self, connection: Connection) -> None:
        """Notify the device of the end of a connection."""
        if self.is_up and self.name in connection.numbers:
            self.device.link_down(connection.numbers.pop(self.name), self._schedule.now)
            self.plan_turn()

    def take(self, sender: str, data: bytes) -> None:
        """Take what arrived from a peer; what is no record is dropped."""
        if not self.is_up:
            return
        try:
            records = read_all(SEED, data)
        except MalformedError:
            self.malformed += 1
            return
        for record, as_seen in zip(records, read_records(data), strict=True):
            self._network.observe(seen.Received(self.name, sender, as_seen))
            self.device.receive(key_of(sender), record, self._schedule.now)
        self.plan_turn()

    # Turns

    def plan_turn(self) -> None:
        """See to it that a turn comes, after whatever else arrives in this instant."""
        if not self._is_turn_planned:
            self._is_turn_planned = True
            self._schedule.after(0, self._in_life(self._turn))

    def _in_life(self, act: Callable[[], None]) -> Callable[[], None]:
        life = self._life

        def guarded() -> None:
            if life == self._life:
                act()

        return guarded

    def _turn(self) -> None:
        self._is_turn_planned = False
        for _ in range(TURNS_MAX):
            if not (self._commit() or self._send_due()):
                break
        else:
            raise ViolationError("quiet", f"{self.name} has always more to say")
        for event in self.device.take_events():
            self._on_event(event)
        self._timer.ring_by(self.device.deadline())
        self._timer.ring_by(self._commits.again_at)

    def _on_timer(self) -> None:
        self.device.wake(self._schedule.now)
        self._commits.wake(self._schedule.now)
        self.plan_turn()

    def _commit(self) -> bool:
        """Begin a commit if there is need, and return whether one has ended."""
        if not self._commits.may_begin or not (self.device.must_commit or self._commits.is_refused):
            return False
        self._save(self._commits.begin(self.device.changes()).changes, self._on_saved)
        return self._commits.may_begin

    def _save(self, changes: Sequence[Change], then: Callable[[bool], None]) -> None:
        """Write to the disk, and call ``then`` when it has answered, with whether it took the changes."""
        if not self._commit_us:
            then(self._write(changes))
            return
        self._under_way = changes

        def reach_disk() -> None:
            self._under_way = ()
            is_kept = self._write(changes)
            # A crash may come between the disk and the answer.
            self._schedule.after(self._commit_us, self._in_life(lambda: then(is_kept)))

        self._schedule.after(self._commit_us, self._in_life(reach_disk))

    def _write(self, changes: Sequence[Change]) -> bool:
        """Return whether the disk took changes."""
        try:
            self.store.commit(changes)
        except StoreFault:
            return False
        self._promises.made(changes)
        return True

    def _on_saved(self, is_kept: bool) -> None:
        if is_kept:
            self._commits.committed(self._commits.ticket)
            self.device.committed(self._schedule.now)
        else:
            self._commits.not_committed(self._commits.ticket, self._schedule.now)
            self.device.not_committed()
        if self._commit_us:
            self.plan_turn()

    def _send_due(self) -> bool:
        """Say what is due, and return whether there was anything."""
        has_sent = False
        for key in self.device.take_dirty():
            while self.device.is_due(key, self._schedule.now):
                records = self.device.send_due(key, self._schedule.now)
                if not records:
                    break
                has_sent = True
                self._send_records(self._names[key], b"".join(records))
        return has_sent

    def _send_records(self, peer: str, data: bytes) -> None:
        connection = self._connection_to(peer)
        for record in read_records(data):
            self._observe_sent(peer, record)
            connection.carry(self.name, record)

    def _observe_sent(self, peer: str, record: SeenRecord) -> None:
        unstored = () if record.kind == REQUEST else self._unstored(record)
        self._network.observe(seen.Sent(self.name, peer, record, self.mode.value, unstored))

    def _connection_to(self, peer: str) -> Connection:
        number = self.device.link_of(key_of(peer))
        return next(
            connection
            for connection in self.connections[peer]
            if connection.is_up and connection.numbers.get(self.name) == number
        )

    def _unstored(self, record: SeenRecord) -> tuple[bytes, ...]:
        groups_of = self._network.groups_of
        return tuple(
            each
            for each in record.ids
            if each in groups_of and self.store.get(_MESSAGES, groups_of[each] + each) is None
        )

    def _on_event(self, event: object) -> None:
        if isinstance(event, Delivered):
            self.delivered_at.setdefault(event.message_id, self._schedule.now)
            self.reported[event.message_id] += 1
            body = self.device.body(event.group_id, event.message_id)
            self._network.observe(seen.Reported(self.name, event.group_id, event.message_id, event.order, body))
