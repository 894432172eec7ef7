"""A BSP town: devices with groups in common, lines between them that fail in every way, and peers that mean no good.

``BspTown`` is the scenario that ``run`` drives, ``run_graph`` scenario 26 of bsp 10: the same town without the hostile.
"""

import random
from collections import Counter
from functools import partial
from typing import Any, Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.bsp.groups import Group
from waystation.protocols.bsp.links import Mode, Visibility
from waystation.protocols.bsp.machine import BspMachine
from waystation.sim import bsp_observations as seen
from waystation.sim.bsp_hostile import INSIDERS, Hostile, make_hostile
from waystation.sim.bsp_line import LATENCY_US, Line
from waystation.sim.bsp_party import MakeDevice, Party, make_device
from waystation.sim.bsp_plan import BspPlan, draw_bsp_plan, draw_graph_plan
from waystation.sim.bsp_records import KINDS, SeenRecord, deps_body
from waystation.sim.bsp_village import BspVillage
from waystation.sim.bsp_wired import MakeMachine
from waystation.sim.chance import Trouble, fork, spread
from waystation.sim.datagram import DatagramSettings
from waystation.sim.schedule import Schedule
from waystation.sim.trace import Trace, canonical

__all__ = ["BspTown", "run_graph"]

SIZES_EVERY_US: Final = MICROSECONDS_PER_SECOND
AWAY_US: Final = 5 * MICROSECONDS_PER_SECOND
HOUR_US: Final = 3_600 * MICROSECONDS_PER_SECOND
HEAL_US: Final = 150 * MICROSECONDS_PER_SECOND  # twice the longest interval between two copies, and some hops
QUIET_US: Final = 600 * MICROSECONDS_PER_SECOND
GRAPH_US: Final = 40 * MICROSECONDS_PER_SECOND
DEPENDENCIES_MAX: Final = 3
DELIVERED: Final = 2
QUIET: Final = DatagramSettings(latency_us=LATENCY_US, jitter_us=0)


class BspTown:
    """One world drawn from one generator."""

    def __init__(
        self,
        schedule: Schedule,
        rng: random.Random,
        trace: Trace,
        *,
        make: MakeDevice = make_device,
        make_machine: MakeMachine = BspMachine,
        plan: BspPlan | None = None,
    ) -> None:
        """Build the town; nothing happens before ``start``.

        Args:
            schedule: The clock.
            rng: Everything drawn comes from here.
            trace: Gets a line for everything that happens.
            make: Makes the device of each life of a party, where nobody is wired.
            make_machine: Makes the machine of each life, where everybody is.
            plan: What happens; drawn when None.
        """
        self.plan = plan = plan or draw_bsp_plan(fork(rng))
        self._schedule = schedule
        self._trace = trace
        self._rng = fork(rng)
        self._make_machine = make_machine
        self._troubled = True
        self._measuring = True
        self._trouble = Trouble(schedule, self._rng, lambda: self._troubled)
        self.village = BspVillage(fork(rng), schedule=schedule, sink=self._note)
        self._outcomes: Counter[str] = Counter()
        self._said_bytes = 0
        self._quarrels: set[tuple[bytes, str, str]] = set()
        trace.note(schedule.now, f"plan {plan.describe()}")
        self._parties = [self._make_party(f"d{number}", Mode(mode), make) for number, mode in enumerate(plan.modes)]
        self._members: dict[bytes, list[Party]] = {}
        self._lines = [self._make_line(f"d{one}", f"d{other}") for one, other in plan.lines]
        self._groups = [self.village.group(b"%d" % number, each.form) for number, each in enumerate(plan.groups)]
        self._all_members = {
            group.group_id: [self._parties[number] for number in each.members]
            for group, each in zip(self._groups, plan.groups, strict=True)
        }
        self._hostiles = [self._make_hostile(kind, number) for number, kind in enumerate(plan.hostiles)]

    def _make_party(self, name: str, mode: Mode, make: MakeDevice) -> Party:
        if self.plan.wired:
            return self.village.wired_party(name, mode, self.plan.commit_us, self._make_machine)
        return self.village.party(name, mode, make, self.plan.commit_us)

    def _make_line(self, one: str, other: str) -> Line:
        if self.plan.wired:
            return self.village.cable(one, other, self.plan.link)
        return self.village.line(one, other, self.plan.net)

    def _make_hostile(self, kind: str, number: int) -> Hostile:
        """Join somebody to a device; insiders share a group of which it is the first member."""
        group = self._rng.choice(self._groups)
        party = self._all_members[group.group_id][0] if kind in INSIDERS else self._rng.choice(self._parties)
        hostile = make_hostile(kind, self.village, fork(self._rng), f"h{number}", group)
        self.village.strangers[hostile.name] = hostile.take
        if self.plan.wired:
            hostile.line = self.village.back_door(party.name, hostile.name, self.plan.link)
        else:
            hostile.line = self.village.line(party.name, hostile.name, self.plan.net)
        return hostile

    # Phases

    def start(self) -> None:
        """Let everybody join and write, and the trouble begin."""
        for group, plan in zip(self._groups, self.plan.groups, strict=True):
            self._members[group.group_id] = []
            for number, late_us in zip(plan.members, plan.late_us, strict=True):
                self._schedule.after(late_us, partial(self._join, group, self._parties[number]))
        for party in self._parties:
            self._write_often(party)
        for hostile in self._hostiles:
            if hostile.kind in INSIDERS:
                party = self.village.parties[hostile.line.other(hostile.name)]
                self._schedule.after(0, partial(party.share, hostile.group.group_id, hostile.name))
            self._schedule.after(self._rng.randrange(MICROSECONDS_PER_SECOND), partial(self._bring, hostile))
        faults, often = self.plan.faults, self._trouble.often
        often(faults.cuts, self._cut)
        often(faults.ends, self._end)
        often(faults.crashes, self._crash)
        often(faults.quarrels, self._quarrel)
        often(faults.deletions, self._delete)
        self._measure()

    def calm(self) -> None:
        """End the trouble: lines are whole, everybody is up and a member, the hostile leave."""
        self._troubled = False
        for group in self._groups:
            for party in self._all_members[group.group_id]:
                self._join(group, party)
        for group_id, one, other in sorted(self._quarrels):
            self._share_between(group_id, one, other, Visibility.SHARED)
        for party in self._parties:
            if not party.is_up:
                party.start()
        for hostile in self._hostiles:
            self.village.down(hostile.line)
        for line in self._lines:
            line.heal()
            if line.is_up and self.plan.renews:
                self.village.down(line)
            if line.is_up:
                line.calm(QUIET)
            else:
                line.set_out(QUIET)
                self.village.up(line)

    def probe(self) -> None:
        """Let every member of every group write once more, if it is planned."""
        for group in self._groups if self.plan.probes else ():
            for party in self._all_members[group.group_id]:
                self._write(party, group)

    def leave(self) -> int:
        """See that all members agree; return after which time nothing more may have been said."""
        self._measuring = False
        for group in self._groups:
            self.village.stand(group, [party.name for party in self._all_members[group.group_id]])
        self._said_bytes = self.village.record_bytes()
        return QUIET_US

    def finish(self) -> None:
        """See that there was silence."""
        more = self.village.record_bytes() - self._said_bytes
        if more:
            self.village.observe(seen.LeftHanging(f"{more} bytes were said when everything had been said"))

    def outcomes(self) -> dict[str, int]:
        """Return what was written, delivered and said, counted."""
        total = Counter(self._outcomes)
        total["delivered"] = sum(sum(party.told.values()) for party in self._parties)
        total["malformed"] = sum(party.malformed for party in self._parties)
        for number, name in enumerate(KINDS):
            total[name.lower()] = self.village.records(number)
        return dict(sorted(total.items()))

    # Habits

    def _join(self, group: Group, party: Party) -> None:
        """Become a member, and share with every member at the end of a line."""
        members = self._members[group.group_id]
        if party in members:
            return
        party.join(group)
        for other in members:
            if other.name in party.lines:
                self._share_between(group.group_id, party.name, other.name, Visibility.SHARED)
        members.append(party)

    def _share_between(self, group_id: bytes, one: str, other: str, visibility: Visibility) -> None:
        self.village.parties[one].share(group_id, other, visibility)
        self.village.parties[other].share(group_id, one, visibility)

    def _write_often(self, party: Party) -> None:
        """Let somebody write at random instants, in any group that it is a member of."""

        def write() -> None:
            if self._troubled:
                groups = [group for group in self._groups if party in self._members[group.group_id]]
                if groups and party.is_up:
                    self._write(party, self._rng.choice(groups))
                self._write_often(party)

        pace_us = HOUR_US * len(self._parties) / self.plan.writes_per_hour
        self._schedule.after(1 + spread(self._rng, pace_us), write)

    def _write(self, party: Party, group: Group) -> None:
        rng = self._rng
        content = rng.randbytes(rng.randint(8, self.plan.body_bytes_max))
        body = content if group.format == "opaque" else deps_body(self._heads(party, group), content)
        party.add(group, self._schedule.now // 1_000, body)
        self._outcomes["written"] += 1

    def _heads(self, party: Party, group: Group) -> list[bytes]:
        """Draw what to depend on, most likely what came last."""
        ids = [each.message_id for each in party.device.messages(group.group_id) if each.state == DELIVERED]
        return self._rng.sample(ids[-8:], min(len(ids), self._rng.randint(0, DEPENDENCIES_MAX)))

    def _bring(self, hostile: Hostile) -> None:
        hostile.come(lambda: self._troubled)

    # Trouble

    def _cut(self) -> None:
        line = self._rng.choice(self._lines)
        line.cut()
        self._schedule.after(self._trouble.duration(AWAY_US), line.heal)

    def _end(self) -> None:
        line = self._rng.choice(self._lines)
        if line.is_up:
            self.village.down(line)
            self._schedule.after(self._trouble.duration(AWAY_US), partial(self._come_back, line))

    def _come_back(self, line: Line) -> None:
        if self._troubled and not line.is_up:
            self.village.up(line)

    def _crash(self) -> None:
        party = self._rng.choice(self._parties)
        if not party.is_up:
            return
        party.crash()
        self._trace.note(self._schedule.now, f"{party.name} crashes")
        lines = [line for line in self._lines if party.name in line.names and line.is_up]
        for line in lines if self.plan.tells_crash else ():
            self.village.down(line)
        self._schedule.after(self._trouble.duration(AWAY_US), partial(self._restart, party, lines))

    def _restart(self, party: Party, lines: list[Line]) -> None:
        if self._troubled and not party.is_up:
            party.start()
            for line in lines:
                self._come_back(line)

    def _quarrel(self) -> None:
        """Let two members share no more, for a while."""
        group_id = self._rng.choice(self._groups).group_id
        members = self._members[group_id]
        pairs = [
            (one.name, other.name) for one in members for other in members if one is not other
            and other.name in one.lines and (group_id, one.name, other.name) not in self._quarrels
        ]  # fmt: skip
        if not pairs:
            return
        one, other = self._rng.choice(pairs)
        self._quarrels.add((group_id, one, other))
        self._share_between(group_id, one, other, Visibility.INVISIBLE)
        self._schedule.after(self._trouble.duration(AWAY_US), partial(self._make_up, group_id, one, other))

    def _make_up(self, group_id: bytes, one: str, other: str) -> None:
        if self._troubled:
            self._quarrels.discard((group_id, one, other))
            self._share_between(group_id, one, other, Visibility.SHARED)

    def _delete(self) -> None:
        """Let somebody delete a message that every member has; others may still be told of it."""
        group_id = self._rng.choice(self._groups).group_id
        members = self._all_members[group_id]
        if len(self._members[group_id]) < len(members) or not all(member.is_up for member in members):
            return
        held = [set(self._delivered(member, group_id)) for member in members]
        common = [each for each in self._delivered(members[0], group_id) if all(each in ids for ids in held)]
        if common:
            party, message_id = self._rng.choice(members), self._rng.choice(common)
            party.delete(group_id, message_id)
            self._outcomes["deleted"] += 1

    def _delivered(self, party: Party, group_id: bytes) -> list[bytes]:
        return [each.message_id for each in party.device.messages(group_id) if each.state == DELIVERED]

    # Observing

    def _measure(self) -> None:
        if self._measuring:
            for party in self._parties:
                if party.is_up:
                    self.village.observe(seen.Sized(party.name, party.device.sizes()))
            self._schedule.after(SIZES_EVERY_US, self._measure)

    def _note(self, observation: Any) -> None:
        """Trace what has happened."""
        now = self._schedule.now
        match observation:
            case seen.Heard(party, peer, record):
                self._trace.note(now, f"{party} hears {peer} {_show(record)}")
            case seen.Said(party, peer, record):
                self._trace.note(now, f"{party} tells {peer} {_show(record)}")
            case seen.Began(party, states):
                self._trace.note(now, f"{party} begins with {len(states)} messages")
            case seen.Stood(group_id, sets):
                sizes = " ".join(f"{name}={len(states)}" for name, states in sets.items())
                self._trace.note(now, f"stands {group_id.hex()[:16]} {sizes}")
            case _:
                self._trace.note(now, canonical(observation))


def run_graph(seed: int, *, make: MakeDevice = make_device) -> dict[str, int]:
    """Run one seed of scenario 26: random graph, joins, cuts, modes and loss, then healing, agreement and silence.

    Returns what was done, counted.

    Raises:
        ViolationError: A law is broken.
    """
    rng = random.Random(f"bsp graph/{seed}")  # noqa: S311 - a simulation must be repeatable
    schedule = Schedule()
    town = BspTown(schedule, rng, Trace(), make=make, plan=draw_graph_plan(fork(rng)))
    town.start()
    schedule.run(Instant(GRAPH_US))
    town.calm()
    schedule.run(Instant(schedule.now + HEAL_US))
    town.probe()
    schedule.run(Instant(schedule.now + HEAL_US))
    schedule.run(Instant(schedule.now + town.leave()))
    town.finish()
    return town.outcomes()


def _show(record: SeenRecord) -> str:
    """Return one record in a few characters."""
    return f"{KINDS[record.kind]} {len(record.ids)} {record.ids[0].hex()[:16]} {len(record.data)}B"
