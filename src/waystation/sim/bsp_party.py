"""A device in a simulated village: a ``BspDevice``, its store, its lines, and an owner who repeats himself at a start.

A party gathers what arrives in one instant, then takes a turn: commit, speak to whoever is stirred, tell its
application. The store answers at once unless the party was given a delay; a crash loses what is not in it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, Protocol

from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.records import Change
from waystation.crypto.signing import KeyPair
from waystation.protocols.bsp.device import BspDevice
from waystation.protocols.bsp.events import Delivered, DeviceEvent
from waystation.protocols.bsp.groups import Group
from waystation.protocols.bsp.links import Mode, Visibility
from waystation.protocols.bsp.profile import PROFILES
from waystation.protocols.bsp.refusals import MalformedError
from waystation.protocols.bsp.wire import read_all
from waystation.sim import bsp_observations as seen
from waystation.sim.bsp_line import Line
from waystation.sim.bsp_records import REQUEST, SeenRecord, read_records
from waystation.sim.invariants import ViolationError
from waystation.sim.schedule import Schedule
from waystation.sim.timer import Timer
from waystation.store.memory import MemoryStore

__all__ = ["MakeDevice", "Party", "Village", "key_of", "key_pair_of", "make_device"]

SEED: Final = PROFILES["seed"]
TURNS_MAX: Final = 10_000  # ours: of one instant; only a device that stirs itself comes near
_WALL_START_MS: Final = 1_700_000_000_000
_MESSAGES: Final = "bsp_messages"

MakeDevice = Callable[[MemoryStore, Mode], BspDevice]
"""Makes the device of each life of a party."""


def make_device(store: MemoryStore, mode: Mode) -> BspDevice:
    """Return a device of profile seed."""
    return BspDevice(SEED, store, mode=mode)


@cache
def key_pair_of(name: str) -> KeyPair:
    """Return the keys of whoever is called so."""
    return KeyPair.from_seed(name.encode().ljust(32, b"\0"))


def key_of(name: str) -> PublicKey:
    """Return the public key of whoever is called so."""
    return key_pair_of(name).public


class Village(Protocol):
    """What a party needs from where it lives."""

    schedule: Schedule
    groups_of: dict[bytes, bytes]
    """Group of every message that was ever made."""

    def observe(self, observation: Any) -> None:
        """Take what has happened."""


class Party:
    """One device."""

    def __init__(
        self, village: Village, name: str, mode: Mode = Mode.AUTO, make: MakeDevice = make_device, commit_us: int = 0
    ) -> None:
        """Start with an empty store.

        Args:
            village: Where it lives.
            name: At most 32 ASCII characters; its key follows from it.
            mode: How it hands messages over.
            make: Makes the device of each of its lives.
            commit_us: How long its disk takes, in microseconds.
        """
        self._village = village
        self._schedule = village.schedule
        self.name = name
        self.key = key_of(name)
        self.mode = mode
        self.store = MemoryStore()
        self._make = make
        self._commit_us = commit_us
        self._groups: dict[bytes, Group] = {}
        self._visible: dict[tuple[bytes, str], Visibility] = {}
        self.lines: dict[str, list[Line]] = {}
        """By peer, the newest last; those that have ended, too."""
        self._names: dict[PublicKey, str] = {}
        self._timer = Timer(self._schedule, self._on_timer)
        self._life = 0
        self._is_turning = False
        self._is_committing = False
        self.is_up = False
        self.delivered_at: dict[bytes, Instant] = {}
        """By message, the first time."""
        self.told: Counter[bytes] = Counter()
        """How often the application was told of each message."""
        self.malformed = 0
        """Records that were none."""
        self.events: list[DeviceEvent] = []
        """Everything that the application was told."""
        self.device = make(self.store, mode)
        self.start()

    # Lives

    def start(self) -> None:
        """Start from the store; the owner says again what is not kept there."""
        now = self._schedule.now
        self._life += 1
        self.is_up = True
        self._is_turning = self._is_committing = False
        device = self.device = self._make(self.store, self.mode)
        self._begin_life()
        device.set_wall(now, _WALL_START_MS * 1_000 + now)
        for group in self._groups.values():
            device.join(group, now)
        for peer in self._names:
            device.meet(peer)
        for (group_id, peer_name), visibility in self._visible.items():
            device.share(group_id, key_of(peer_name), now, visibility)
        self._village.observe(seen.Began(self.name, self.states()))
        for lines in self.lines.values():
            for line in lines:
                if line.is_up:
                    self.link_up(line)
        self.stir()

    def crash(self) -> None:
        """Lose everything but the store."""
        self._life += 1
        self.is_up = False
        self._timer.cancel()

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
        self._village.observe(seen.Shared(self.name, peer, group_id, visibility is not Visibility.INVISIBLE))
        if self.is_up:
            self.device.share(group_id, key_of(peer), self._schedule.now, visibility)
            self.stir()

    def add(self, group: Group, timestamp: int, body: bytes, *, share: bool = True) -> bytes:
        """Create a message and return its identifier."""
        message_id = self.device.add(group.group_id, timestamp, body, self._schedule.now, share=share)
        self._village.groups_of[message_id] = group.group_id
        self._village.observe(seen.Made(group.group_id, message_id, body, group.format == "deps_v1"))
        self.stir()
        return message_id

    def share_message(self, group_id: bytes, message_id: bytes) -> None:
        """Share a message that was kept back, and whatever it depends on."""
        self.device.share_message(group_id, message_id, self._schedule.now)
        self.stir()

    def delete(self, group_id: bytes, message_id: bytes) -> None:
        """Delete the body of a message."""
        self.device.delete(group_id, message_id)
        self.stir()

    def states(self) -> dict[bytes, seen.State]:
        """Return what the device shows of every message."""
        return {
            vertex.message_id: seen.State(int(vertex.state), vertex.order, vertex.body_present)
            for group_id in self._groups
            for vertex in self.device.messages(group_id)
        }

    # Lines

    def link_up(self, line: Line) -> None:
        """Tell the device of a line."""
        self._village.observe(seen.LineUp(self.name, line.other(self.name)))
        line.numbers[self.name] = self.device.link_up(key_of(line.other(self.name)), line.terms, self._schedule.now)
        self.stir()

    def link_down(self, line: Line) -> None:
        """Tell the device of the end of a line."""
        if self.is_up and self.name in line.numbers:
            self.device.link_down(line.numbers.pop(self.name), self._schedule.now)
            self.stir()

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
            self._village.observe(seen.Heard(self.name, sender, as_seen))
            self.device.hear(key_of(sender), record, self._schedule.now)
        self.stir()

    # Turns

    def stir(self) -> None:
        """See to it that a turn comes, after whatever else arrives in this instant."""
        if not self._is_turning:
            self._is_turning = True
            self._schedule.after(0, self._in_life(self._turn))

    def _in_life(self, act: Callable[[], None]) -> Callable[[], None]:
        life = self._life

        def guarded() -> None:
            if life == self._life:
                act()

        return guarded

    def _turn(self) -> None:
        self._is_turning = False
        for _ in range(TURNS_MAX):
            if not (self._commit() or self._speak()):
                break
        else:
            raise ViolationError("quiet", f"{self.name} has always more to say")
        self._tell()
        self._timer.ring_by(self.device.deadline())

    def _on_timer(self) -> None:
        self.device.wake(self._schedule.now)
        self.stir()

    def _commit(self) -> bool:
        """Begin a commit if there is need, and return whether one has ended."""
        if self._is_committing or not self.device.must_commit:
            return False
        self._is_committing = True
        self._save(self.device.changes(), self._on_saved)
        return not self._is_committing

    def _save(self, changes: Sequence[Change], then: Callable[[], None]) -> None:
        """Write to the disk, and call ``then`` when it has answered."""
        if not self._commit_us:
            self.store.commit(changes)
            then()
            return

        def reach_disk() -> None:
            self.store.commit(changes)
            # A crash may come between the disk and the answer.
            self._schedule.after(self._commit_us, self._in_life(then))

        self._schedule.after(self._commit_us, self._in_life(reach_disk))

    def _on_saved(self) -> None:
        self._is_committing = False
        self.device.committed(self._schedule.now)
        if self._commit_us:
            self.stir()

    def _speak(self) -> bool:
        """Say what is due, and return whether there was anything."""
        has_spoken = False
        for key in self.device.take_stirred():
            while self.device.is_due(key, self._schedule.now):
                records = self.device.speak(key, self._schedule.now)
                if not records:
                    break
                has_spoken = True
                self._say(self._names[key], b"".join(records))
        return has_spoken

    def _say(self, peer: str, data: bytes) -> None:
        line = self._line_to(peer)
        for record in read_records(data):
            self._observe_said(peer, record)
            line.carry(self.name, record)

    def _observe_said(self, peer: str, record: SeenRecord) -> None:
        unstored = () if record.kind == REQUEST else self._unstored(record)
        self._village.observe(seen.Said(self.name, peer, record, self.mode.value, unstored))

    def _line_to(self, peer: str) -> Line:
        number = self.device.link_of(key_of(peer))
        return next(line for line in self.lines[peer] if line.is_up and line.numbers.get(self.name) == number)

    def _unstored(self, record: SeenRecord) -> tuple[bytes, ...]:
        groups_of = self._village.groups_of
        return tuple(
            each
            for each in record.ids
            if each in groups_of and self.store.get(_MESSAGES, groups_of[each] + each) is None
        )

    def _tell(self) -> None:
        for event in self.device.take_events():
            self._on_event(event)

    def _on_event(self, event: DeviceEvent) -> None:
        self.events.append(event)
        if isinstance(event, Delivered):
            self.delivered_at.setdefault(event.message_id, self._schedule.now)
            self.told[event.message_id] += 1
            body = self.device.body(event.group_id, event.message_id)
            self._village.observe(seen.Told(self.name, event.group_id, event.message_id, event.order, body))
