"""Devices, the lines between them and one clock; the laws look on.

Scenarios of bsp 10 are a few calls on a ``BspVillage``; ``bsp.BspTown`` lets a plan do the same and worse.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any, Final

from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.protocols.bsp.groups import Group
from waystation.protocols.bsp.links import LinkTerms, Mode
from waystation.protocols.bsp.machine import BspMachine
from waystation.sim import bsp_observations as seen
from waystation.sim.bsp_laws import bsp_invariants
from waystation.sim.bsp_line import LINE_TERMS, PLAIN, Line, Take
from waystation.sim.bsp_party import SEED, MakeDevice, Party, make_device
from waystation.sim.bsp_wired import Cable, MakeMachine, WiredParty
from waystation.sim.bsp_wired_hostile import BackDoor
from waystation.sim.chance import fork
from waystation.sim.datagram import DatagramSettings
from waystation.sim.invariants import Watch
from waystation.sim.link import LinkSettings
from waystation.sim.schedule import Schedule

__all__ = ["BspVillage"]

_CLIENT_ID: Final = bytes(range(32))


class BspVillage:
    """One world of devices."""

    def __init__(
        self,
        rng: random.Random | None = None,
        *,
        schedule: Schedule | None = None,
        sink: Callable[[Any], None] | None = None,
    ) -> None:
        """Begin with nobody in it.

        Args:
            rng: Everything drawn comes from here.
            schedule: The clock, when somebody else has one already.
            sink: Gets every observation before the laws do.
        """
        self.schedule = Schedule() if schedule is None else schedule
        self._rng = random.Random(0) if rng is None else rng  # noqa: S311 - a simulation must be repeatable
        self._watch = Watch(bsp_invariants())
        self._sink = sink
        self.groups_of: dict[bytes, bytes] = {}
        self.parties: dict[str, Party] = {}
        self.strangers: dict[str, Take] = {}
        """Who is no device, and what takes their mail."""
        self.lines: list[Line] = []
        self.groups: dict[bytes, Group] = {}

    # Building

    def party(self, name: str, mode: Mode = Mode.AUTO, make: MakeDevice = make_device, commit_us: int = 0) -> Party:
        """Let a device come."""
        party = self.parties[name] = Party(self, name, mode, make, commit_us)
        return party

    def wired_party(
        self, name: str, mode: Mode = Mode.AUTO, commit_us: int = 0, make_machine: MakeMachine = BspMachine
    ) -> WiredParty:
        """Let a device come that speaks on byte streams."""
        party = self.parties[name] = WiredParty(self, name, mode, commit_us, fork(self._rng), make_machine)
        return party

    def line(self, one: str, other: str, settings: DatagramSettings = PLAIN, terms: LinkTerms = LINE_TERMS) -> Line:
        """Join two that know each other from now on."""
        line = Line(self.schedule, fork(self._rng), settings, {one: self._take(one), other: self._take(other)}, terms)
        self._lay(line)
        return line

    def cable(self, one: str, other: str, link: LinkSettings) -> Cable:
        """Join two wired parties that know each other from now on; the first dials."""
        dialler, acceptor = (self._wired(name) for name in (one, other))
        cable = Cable(self.schedule, fork(self._rng), link, dialler, acceptor)
        self._lay(cable)
        return cable

    def back_door(self, party: str, name: str, link: LinkSettings) -> BackDoor:
        """Let a stranger get at a wired party, who knows its key."""
        door = BackDoor(self.schedule, fork(self._rng), link, self._wired(party), name, self.strangers[name])
        self._lay(door)
        door.come()
        return door

    def _wired(self, name: str) -> WiredParty:
        party = self.parties[name]
        assert isinstance(party, WiredParty)
        return party

    def _lay(self, line: Line) -> None:
        self.lines.append(line)
        for name in line.names:
            if name in self.parties:
                self.parties[name].meet(line.other(name))
                self.parties[name].lines.setdefault(line.other(name), []).append(line)
        self.up(line)

    def up(self, line: Line) -> None:
        """Tell both devices of a line: a new connection."""
        line.is_up = True
        for party in self._ends(line):
            if party.is_up:
                party.link_up(line)

    def down(self, line: Line) -> None:
        """End a line for both devices; what is under way is lost."""
        line.is_up = False
        line.set_out()
        for party in self._ends(line):
            party.link_down(line)

    def group(self, descriptor: bytes = b"", form: str = "opaque") -> Group:
        """Return a group that nobody is a member of yet."""
        group = SEED.group(_CLIENT_ID, descriptor, form)
        self.groups[group.group_id] = group
        return group

    def gather(self, group: Group, names: Iterable[str] | None = None) -> None:
        """Let devices be members, and every two of them that have a line share the group."""
        members = list(self.parties if names is None else names)
        for name in members:
            self.parties[name].join(group)
        for one, other in combinations(members, 2):
            if other in self.parties[one].lines:
                self.parties[one].share(group.group_id, other)
                self.parties[other].share(group.group_id, one)

    # Time

    @property
    def now_ms(self) -> int:
        """Milliseconds since the start."""
        return self.schedule.now // MICROSECONDS_PER_MS

    def run(self, duration_ms: int) -> None:
        """Let time pass."""
        self.schedule.run(Instant(self.schedule.now + duration_ms * MICROSECONDS_PER_MS))

    # What has happened

    def observe(self, observation: Any) -> None:
        """Show something to the laws.

        Raises:
            ViolationError: One of them is broken.
        """
        if self._sink is not None:
            self._sink(observation)
        self._watch.observe(observation, self.schedule.now)

    def last_ms(self, message_ids: Sequence[bytes], names: Iterable[str]) -> int | None:
        """Return when the last of these devices had the last of these messages, or None as long as one lacks one."""
        times = [self.parties[name].delivered_at.get(each) for name in names for each in message_ids]
        arrived = [at for at in times if at is not None]
        return max(arrived) // MICROSECONDS_PER_MS if len(arrived) == len(times) else None

    def record_bytes(self) -> int:
        """Return what was written on all lines, in both directions."""
        return sum(tally.record_bytes for line in self.lines for tally in line.tallies.values())

    def records(self, kind: int) -> int:
        """Return how many records of a type were written on all lines."""
        return sum(tally.by_kind[kind] for line in self.lines for tally in line.tallies.values())

    def quiet_since_ms(self) -> int:
        """Return when the last record was written."""
        return max(tally.last_at for line in self.lines for tally in line.tallies.values()) // MICROSECONDS_PER_MS

    def stand(self, group: Group, names: Iterable[str] | None = None) -> None:
        """Let the laws compare what the members of a group have; they have had the time to agree."""
        members = [self.parties[name] for name in names or self.parties]
        states = {
            party.name: {
                each: state for each, state in party.states().items() if self.groups_of.get(each) == group.group_id
            }
            for party in members
        }
        self.observe(seen.Stood(group.group_id, states))

    def _ends(self, line: Line) -> list[Party]:
        return [self.parties[name] for name in line.names if name in self.parties]

    def _take(self, name: str) -> Take:
        return self.parties[name].take if name in self.parties else self.strangers[name]
