"""A simulated BSP network: devices, connections and one clock, with all observations checked by the invariants.

The scenarios of bsp 10 are a few calls on a ``BspNetwork``; ``BspScenario`` lets a random plan make such calls.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any, Final

from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.protocols.bsp.device.groups import Group
from waystation.protocols.bsp.device.links import LinkTerms, Mode
from waystation.protocols.bsp.stream.machine import BspMachine
from waystation.sim.bsp import observations as seen
from waystation.sim.bsp.connection import CONNECTION_TERMS, PLAIN, Connection, Take, Tally
from waystation.sim.bsp.host import SEED, Host, MakeDevice, make_device
from waystation.sim.bsp.hostile_connection import HostileConnection
from waystation.sim.bsp.invariants import bsp_invariants
from waystation.sim.bsp.stream_host import MakeMachine, StreamConnection, StreamHost
from waystation.sim.chance import fork
from waystation.sim.invariants import Watch
from waystation.sim.net.datagram import DatagramSettings
from waystation.sim.net.link import LinkSettings
from waystation.sim.schedule import Schedule

__all__ = ["BspNetwork"]

_CLIENT_ID: Final = bytes(range(32))


class BspNetwork:
    """One world of devices."""

    def __init__(
        self,
        rng: random.Random | None = None,
        *,
        schedule: Schedule | None = None,
        observe: Callable[[Any], None] | None = None,
    ) -> None:
        """Begin with nobody in it.

        Args:
            rng: Everything drawn comes from here.
            schedule: The clock, when somebody else has one already.
            observe: Gets every observation in the place of the invariants.
        """
        self.schedule = Schedule() if schedule is None else schedule
        self._rng = random.Random(0) if rng is None else rng  # noqa: S311 - a simulation must be repeatable
        self._watch = Watch(bsp_invariants())
        self._observe = observe or (lambda observation: self._watch.observe(observation, self.schedule.now))
        self.groups_of: dict[bytes, bytes] = {}
        self.hosts: dict[str, Host] = {}
        self.adversaries: dict[str, Take] = {}
        """Who is no device, and what takes their mail."""
        self.connections: list[Connection] = []
        self.groups: dict[bytes, Group] = {}

    # Building

    def host(self, name: str, mode: Mode = Mode.AUTO, make: MakeDevice = make_device, commit_us: int = 0) -> Host:
        """Let a device come."""
        host = self.hosts[name] = Host(self, name, mode, make, commit_us)
        return host

    def stream_host(
        self, name: str, mode: Mode = Mode.AUTO, commit_us: int = 0, make_machine: MakeMachine = BspMachine
    ) -> StreamHost:
        """Let a device come that speaks on byte streams."""
        host = self.hosts[name] = StreamHost(self, name, mode, commit_us, fork(self._rng), make_machine)
        return host

    def connection(
        self, one: str, other: str, settings: DatagramSettings = PLAIN, terms: LinkTerms = CONNECTION_TERMS
    ) -> Connection:
        """Join two that know each other from now on."""
        connection = Connection(
            self.schedule, fork(self._rng), settings, {one: self._take(one), other: self._take(other)}, terms
        )
        self._lay(connection)
        return connection

    def stream_connection(self, one: str, other: str, link: LinkSettings) -> StreamConnection:
        """Join two wired hosts that know each other from now on; the first dials."""
        dialler, acceptor = (self._wired(name) for name in (one, other))
        stream_connection = StreamConnection(self.schedule, fork(self._rng), link, dialler, acceptor)
        self._lay(stream_connection)
        return stream_connection

    def hostile_connection(self, host: str, name: str, link: LinkSettings) -> HostileConnection:
        """Connect an adversary that knows its key to a host on byte streams."""
        connection = HostileConnection(
            self.schedule, fork(self._rng), link, self._wired(host), name, self.adversaries[name]
        )
        self._lay(connection)
        connection.come()
        return connection

    def _wired(self, name: str) -> StreamHost:
        host = self.hosts[name]
        assert isinstance(host, StreamHost)
        return host

    def _lay(self, connection: Connection) -> None:
        self.connections.append(connection)
        for name in connection.names:
            if name in self.hosts:
                self.hosts[name].meet(connection.other(name))
                self.hosts[name].connections.setdefault(connection.other(name), []).append(connection)
        self.up(connection)

    def up(self, connection: Connection) -> None:
        """Notify both devices of a connection: a new connection."""
        connection.is_up = True
        for host in self._ends(connection):
            if host.is_up:
                host.link_up(connection)

    def down(self, connection: Connection) -> None:
        """End a connection for both devices; what is under way is lost."""
        connection.is_up = False
        connection.set_out()
        for host in self._ends(connection):
            host.link_down(connection)

    def group(self, descriptor: bytes = b"", form: str = "opaque") -> Group:
        """Return a group that nobody is a member of yet."""
        group = SEED.group(_CLIENT_ID, descriptor, form)
        self.groups[group.group_id] = group
        return group

    def gather(self, group: Group, names: Iterable[str] | None = None) -> None:
        """Let devices be members, and every two of them that have a connection share the group."""
        members = list(self.hosts if names is None else names)
        for name in members:
            self.hosts[name].join(group)
        for one, other in combinations(members, 2):
            if other in self.hosts[one].connections:
                self.hosts[one].share(group.group_id, other)
                self.hosts[other].share(group.group_id, one)

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
        self._observe(observation)

    def last_ms(self, message_ids: Sequence[bytes], names: Iterable[str]) -> int | None:
        """Return when the last of these devices had the last of these messages, or None as long as one lacks one."""
        times = [self.hosts[name].delivered_at.get(each) for name in names for each in message_ids]
        arrived = [at for at in times if at is not None]
        return max(arrived) // MICROSECONDS_PER_MS if len(arrived) == len(times) else None

    def record_bytes(self) -> int:
        """Return what was written on all connections, in both directions."""
        return sum(tally.record_bytes for tally in self._tallies())

    def records(self, kind: int) -> int:
        """Return how many records of a type were written on all connections."""
        return sum(tally.by_kind[kind] for tally in self._tallies())

    def quiet_since_ms(self) -> int:
        """Return when the last record was written."""
        return max(tally.last_at for tally in self._tallies()) // MICROSECONDS_PER_MS

    def _tallies(self) -> list[Tally]:
        return [tally for connection in self.connections for tally in connection.tallies.values()]

    def stand(self, group: Group, names: Iterable[str] | None = None) -> None:
        """Let the laws compare what the members of a group have; they have had the time to agree."""
        members = [self.hosts[name] for name in names or self.hosts]
        states = {
            host.name: {
                each: state for each, state in host.states().items() if self.groups_of.get(each) == group.group_id
            }
            for host in members
        }
        self.observe(seen.Compared(group.group_id, states))

    def _ends(self, connection: Connection) -> list[Host]:
        return [self.hosts[name] for name in connection.names if name in self.hosts]

    def _take(self, name: str) -> Take:
        return self.hosts[name].take if name in self.hosts else self.adversaries[name]
