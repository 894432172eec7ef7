"""The BSP scenario: devices that share groups, connections with every kind of fault, and hostile peers.

``sim.run`` makes it and drives its phases: faults, then a quiet time in which all members of a group must end up with
the same messages. Devices are real ones on ``BspNetwork``.
"""

import random
from collections import Counter
from functools import partial
from typing import Any, Final

from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.links import Mode, Visibility
from waystation.protocols.bsp.stream.machine import BspMachine
from waystation.sim.bsp import observations as seen
from waystation.sim.bsp.connection import PLAIN, Connection
from waystation.sim.bsp.host import Host, make_device
from waystation.sim.bsp.hostile import HOSTILES, INSIDERS, Hostile
from waystation.sim.bsp.invariants import bsp_invariants
from waystation.sim.bsp.network import BspNetwork
from waystation.sim.bsp.plan import BspPlan, draw_bsp_plan
from waystation.sim.bsp.records import KINDS, SeenRecord, deps_body
from waystation.sim.bsp.stream_host import MakeMachine
from waystation.sim.chance import HOUR_US, Recurring, fork
from waystation.sim.context import Context
from waystation.sim.invariants import Watch
from waystation.sim.observations import Unfulfilled
from waystation.sim.scenario import Scenario

__all__ = ["BspScenario"]

AWAY_US: Final = 5 * MICROSECONDS_PER_SECOND
QUIET_US: Final = 600 * MICROSECONDS_PER_SECOND
DEPENDENCIES_MAX: Final = 3
DELIVERED: Final = 2


class BspScenario(Scenario[BspPlan, Context[BspPlan], Host]):
    """One network drawn from one generator."""

    sizes_every_us = MICROSECONDS_PER_SECOND

    draw_plan = staticmethod(draw_bsp_plan)
    make = staticmethod(make_device)
    """Makes the device of each life of a host, where none is wired."""
    make_machine: MakeMachine = BspMachine
    """Makes the machine of each life, where all are."""

    def _build(self, rng: random.Random) -> None:
        plan = self.plan
        self._watch = Watch(bsp_invariants())
        self._context = Context(self._schedule, plan, self._observe)
        self.network = BspNetwork(fork(rng), schedule=self._schedule, observe=self._observe)
        self._outcomes: Counter[str] = Counter()
        self._sent_bytes = 0
        self._quarrels: set[tuple[bytes, str, str]] = set()
        self._note_plan()
        self._hosts = [self._make_host(f"d{number}", Mode(mode)) for number, mode in enumerate(plan.modes)]
        self._sites = self._hosts
        self._members: dict[bytes, list[Host]] = {}
        self._connections = [self._make_connection(f"d{one}", f"d{other}") for one, other in plan.connections]
        self._groups = [self.network.group(b"%d" % number, each.form) for number, each in enumerate(plan.groups)]
        self._all_members = {
            group.group_id: [self._hosts[number] for number in each.members]
            for group, each in zip(self._groups, plan.groups, strict=True)
        }
        self._hostiles = [self._make_hostile(kind, number) for number, kind in enumerate(plan.hostiles)]

    def _make_host(self, name: str, mode: Mode) -> Host:
        if self.plan.wired:
            return self.network.stream_host(name, mode, self.plan.commit_us, self.make_machine)
        return self.network.host(name, mode, self.make, self.plan.commit_us)

    def _make_connection(self, one: str, other: str) -> Connection:
        if self.plan.wired:
            return self.network.stream_connection(one, other, self.plan.link)
        return self.network.connection(one, other, self.plan.net)

    def _make_hostile(self, kind: str, number: int) -> Hostile:
        """Join somebody to a device; insiders share a group of which it is the first member."""
        group = self._rng.choice(self._groups)
        host = self._all_members[group.group_id][0] if kind in INSIDERS else self._rng.choice(self._hosts)
        hostile = HOSTILES[kind](self.network, fork(self._rng), f"h{number}", group)
        self.network.adversaries[hostile.name] = hostile.take
        if self.plan.wired:
            hostile.connection = self.network.hostile_connection(host.name, hostile.name, self.plan.link)
        else:
            hostile.connection = self.network.connection(host.name, hostile.name, self.plan.net)
        return hostile

    # Phases

    def probe(self) -> None:
        """Let every member of every group write once more, if it is planned."""
        for group in self._groups if self.plan.probes else ():
            for host in self._all_members[group.group_id]:
                self._write(host, group)

    def leave(self) -> int:
        """See that all members agree; return after which time nothing more may have been sent."""
        self._is_measuring = False
        for group in self._groups:
            self.network.stand(group, [host.name for host in self._all_members[group.group_id]])
        self._sent_bytes = self.network.record_bytes()
        return QUIET_US

    def finish(self) -> None:
        """See that there was silence."""
        more = self.network.record_bytes() - self._sent_bytes
        if more:
            self.network.observe(Unfulfilled(f"{more} bytes were sent when everything had been sent"))

    def outcomes(self) -> dict[str, int]:
        """Return what was written, delivered and sent, counted."""
        total = Counter(self._outcomes)
        total["delivered"] = sum(sum(host.reported.values()) for host in self._hosts)
        total["malformed"] = sum(host.malformed for host in self._hosts)
        for number, name in enumerate(KINDS):
            total[name.lower()] = self.network.records(number)
        return dict(sorted(total.items()))

    def _arrive(self) -> None:
        for group, plan in zip(self._groups, self.plan.groups, strict=True):
            self._members[group.group_id] = []
            for number, late_us in zip(plan.members, plan.late_us, strict=True):
                self._schedule.after(late_us, partial(self._join, group, self._hosts[number]))
        for host in self._hosts:
            self._write_often(host)
        for hostile in self._hostiles:
            if hostile.kind in INSIDERS:
                host = self.network.hosts[hostile.connection.other(hostile.name)]
                self._schedule.after(0, partial(host.share, hostile.group.group_id, hostile.name))
            self._within(MICROSECONDS_PER_SECOND, partial(hostile.come, lambda: self._context.in_fault_phase))

    def _plan_faults(self) -> None:
        faults, often = self.plan.faults, self._recurring.often
        often(faults.cuts, self._cut)
        often(faults.ends, self._end)
        often(faults.crashes, self._crash)
        often(faults.quarrels, self._quarrel)
        often(faults.deletions, self._delete)

    def _heal(self) -> None:
        for group in self._groups:
            for host in self._all_members[group.group_id]:
                self._join(group, host)
        for group_id, one, other in sorted(self._quarrels):
            self._share_between(group_id, one, other, Visibility.SHARED)
        for host in self._hosts:
            if not host.is_up:
                host.start()
        for hostile in self._hostiles:
            self.network.down(hostile.connection)
        for connection in self._connections:
            connection.heal()
            if connection.is_up and self.plan.renews:
                self.network.down(connection)
            if connection.is_up:
                connection.change_to(PLAIN)
            else:
                connection.set_out(PLAIN)
                self.network.up(connection)

    # Behaviour

    def _join(self, group: Group, host: Host) -> None:
        """Become a member, and share with every member at the end of a connection."""
        members = self._members[group.group_id]
        if host in members:
            return
        host.join(group)
        for other in members:
            if other.name in host.connections:
                self._share_between(group.group_id, host.name, other.name, Visibility.SHARED)
        members.append(host)

    def _share_between(self, group_id: bytes, one: str, other: str, visibility: Visibility) -> None:
        self.network.hosts[one].share(group_id, other, visibility)
        self.network.hosts[other].share(group_id, one, visibility)

    def _write_often(self, host: Host) -> None:
        """Let a host write at random instants, in any group that it is a member of."""

        def write() -> None:
            groups = [group for group in self._groups if host in self._members[group.group_id]]
            if groups and host.is_up:
                self._write(host, self._rng.choice(groups))

        pace_us = HOUR_US * len(self._hosts) / self.plan.writes_per_hour
        recurring = Recurring(self._schedule, self._rng, lambda: self._context.in_fault_phase, least_us=1)
        recurring.every(pace_us, write)

    def _write(self, host: Host, group: Group) -> None:
        rng = self._rng
        content = rng.randbytes(rng.randint(8, self.plan.body_bytes_max))
        body = content if group.format == "opaque" else deps_body(self._heads(host, group), content)
        host.add(group, self._schedule.now // 1_000, body)
        self._outcomes["written"] += 1

    def _heads(self, host: Host, group: Group) -> list[bytes]:
        """Draw what to depend on, most likely what came last."""
        ids = self._delivered(host, group.group_id)
        return self._rng.sample(ids[-8:], min(len(ids), self._rng.randint(0, DEPENDENCIES_MAX)))

    # Faults

    def _cut(self) -> None:
        connection = self._rng.choice(self._connections)
        connection.cut()
        self._schedule.after(self._recurring.duration(AWAY_US), connection.heal)

    def _end(self) -> None:
        connection = self._rng.choice(self._connections)
        if connection.is_up:
            self.network.down(connection)
            self._schedule.after(self._recurring.duration(AWAY_US), partial(self._come_back, connection))

    def _come_back(self, connection: Connection) -> None:
        if self._context.in_fault_phase and not connection.is_up:
            self.network.up(connection)

    def _crash(self) -> None:
        host = self._rng.choice(self._hosts)
        if host.is_up:
            self._crash_host(host, self._recurring.duration(AWAY_US))

    def _crash_site(self, index: int, down_us: int) -> None:
        if self._hosts[index].is_up:
            self._crash_host(self._hosts[index], down_us)

    def _crash_host(self, host: Host, down_us: int) -> None:
        host.crash()
        self._trace.note(self._schedule.now, f"{host.name} crashes")
        connections = [
            connection for connection in self._connections if host.name in connection.names and connection.is_up
        ]
        for connection in connections if self.plan.announces_crash else ():
            self.network.down(connection)
        self._schedule.after(down_us, partial(self._restart, host, connections))

    def _restart(self, host: Host, connections: list[Connection]) -> None:
        if self._context.in_fault_phase and not host.is_up:
            host.start()
            for connection in connections:
                self._come_back(connection)

    def _quarrel(self) -> None:
        """Let two members share no more, for a while."""
        group_id = self._rng.choice(self._groups).group_id
        members = self._members[group_id]
        pairs = [
            (one.name, other.name) for one in members for other in members if one is not other
            and other.name in one.connections and (group_id, one.name, other.name) not in self._quarrels
        ]  # fmt: skip
        if not pairs:
            return
        one, other = self._rng.choice(pairs)
        self._quarrels.add((group_id, one, other))
        self._share_between(group_id, one, other, Visibility.INVISIBLE)
        self._schedule.after(self._recurring.duration(AWAY_US), partial(self._make_up, group_id, one, other))

    def _make_up(self, group_id: bytes, one: str, other: str) -> None:
        if self._context.in_fault_phase:
            self._quarrels.discard((group_id, one, other))
            self._share_between(group_id, one, other, Visibility.SHARED)

    def _delete(self) -> None:
        """Let somebody delete a message that every member has; others may still receive it."""
        group_id = self._rng.choice(self._groups).group_id
        members = self._all_members[group_id]
        if len(self._members[group_id]) < len(members) or not all(member.is_up for member in members):
            return
        held = [set(self._delivered(member, group_id)) for member in members]
        common = [each for each in self._delivered(members[0], group_id) if all(each in ids for ids in held)]
        if common:
            host, message_id = self._rng.choice(members), self._rng.choice(common)
            host.delete(group_id, message_id)
            self._outcomes["deleted"] += 1

    def _delivered(self, host: Host, group_id: bytes) -> list[bytes]:
        return [each.message_id for each in host.device.messages(group_id) if each.state == DELIVERED]

    # Observing

    def _line_of(self, observation: Any) -> str:
        match observation:
            case seen.Received(host, peer, record):
                return f"{host} receives {peer} {_show(record)}"
            case seen.Sent(host, peer, record):
                return f"{host} sends {peer} {_show(record)}"
            case seen.Started(host, states):
                return f"{host} begins with {len(states)} messages"
            case seen.Compared(group_id, sets):
                sizes = " ".join(f"{name}={len(states)}" for name, states in sets.items())
                return f"stands {group_id.hex()[:16]} {sizes}"
            case _:
                return super()._line_of(observation)


def _show(record: SeenRecord) -> str:
    """Return one record in a few characters."""
    return f"{KINDS[record.kind]} {len(record.ids)} {record.ids[0].hex()[:16]} {len(record.data)}B"
