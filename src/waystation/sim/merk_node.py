"""One node of a simulated MERK mesh: its store, its lives, and the connections that it dials."""

import random
from collections.abc import Callable
from typing import Final, Protocol

from waystation.core.effects import Dial
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.records import Store
from waystation.crypto.signing import KeyPair
from waystation.engine.node import Relay
from waystation.journal.events import Event
from waystation.protocols.merk.relay import MerkRelay
from waystation.protocols.merk.settings import MerkSettings
from waystation.sim import merk_observations as seen
from waystation.sim.chance import fork
from waystation.sim.link import End, Port, Stream
from waystation.sim.merk_bunches import Bunches
from waystation.sim.merk_commons import PINGS_US, PROTOCOL, MerkCommons, Site
from waystation.sim.merk_whereabouts import Strand
from waystation.sim.trace import Notes
from waystation.sim.world import WALL_START_US, World, make_store

__all__ = ["HOSTILE_NODE", "PRIVATE_PREFIXES", "House", "MakeMerkRelay", "Trunk"]

NO_ANSWER_US: Final = 3 * MICROSECONDS_PER_SECOND  # until a dial that meets nobody is given up
EPOCH_BYTES: Final = 8
HOSTILE_NODE: Final = -1  # all of them, in the model of who is where
PRIVATE_PREFIXES: Final = ("ws://10.", "ws://127.", "ws://192.168.", "ws://169.254.", "ws://[::1]", "ws://localhost")


class MakeMerkRelay(Protocol):
    """Makes a relay; ``MerkRelay`` itself, or a broken one in tests of the invariants."""

    def __call__(
        self,
        settings: MerkSettings,
        key_pair: KeyPair,
        store: Store,
        rng: random.Random,
        *,
        rate_limits: bool,
        admits: Callable[[PublicKey], bool],
    ) -> MerkRelay:
        """Return a fresh relay over what the store holds."""


class House:
    """One node; what it dials reaches other houses through the addresses in the commons."""

    is_thief = False

    def __init__(
        self,
        commons: MerkCommons,
        rng: random.Random,
        trace: Notes,
        number: int,
        settings: MerkSettings,
        make_relay: MakeMerkRelay,
        on_event: Callable[[Event], None],
    ) -> None:
        """Start a node.

        Args:
            commons: The world.
            rng: Everything drawn comes from here.
            trace: Gets a line for every input and effect.
            number: Its place in the mesh.
            settings: Of its relay.
            make_relay: Makes the relay of each life.
            on_event: Gets every journal event.
        """
        self._commons = commons
        self.number = number
        self.settings = settings
        self.key_pair = KeyPair.from_seed(rng.randbytes(32))
        self._blocked: dict[int, Instant] = {}
        self._trunks: list[Trunk] = []
        self._is_resting = False
        self._store = make_store(rng.randbytes(EPOCH_BYTES))
        self.relay: MerkRelay

        def make_relays(entropy: random.Random, admits: Callable[[PublicKey], bool]) -> dict[str, Relay]:
            now = commons.schedule.now
            rate_limits = commons.plan.rate_limits
            self.relay = make_relay(
                settings, self.key_pair, self._store, entropy, rate_limits=rate_limits, admits=admits
            )
            self.relay.set_wall(now, WALL_START_US + now)
            return {PROTOCOL: Bunches(self.relay) if commons.plan.bunches else self.relay}

        self.world = World(
            commons.schedule,
            fork(rng),
            trace,
            make_relays,
            store=self._store,
            settings=commons.plan.host,
            on_event=on_event,
            on_life=lambda _life: self._wake_up(),
            dialler=self._dial,
        )

    def is_there(self, caller: int) -> bool:
        """Return whether a connection from another node gets through."""
        return self.world.is_up and not self._is_blocked(caller)

    def reach(self, caller: int, end: End) -> Port:
        """Return the port of a new connection from another node."""
        return self.world.dial(PROTOCOL, f"10.9.0.{caller}", end, self._commons.plan.trunk)

    def part(self, other: "House", duration_us: int) -> None:
        """Let this node and another one not reach each other for a while; what they have stays half-open."""
        until = Instant(self._commons.schedule.now + duration_us)
        self._blocked[other.number] = other._blocked[self.number] = until  # noqa: SLF001 - the same class
        for trunk in self.trunks_to(other) + other.trunks_to(self):
            trunk.lose()

    def trunks_to(self, other: "House") -> "list[Trunk]":
        """Return the connections to another node that this one has dialled and that are not over."""
        return [trunk for trunk in self.trunks() if trunk.other == other.number]

    def trunks(self) -> "list[Trunk]":
        """Return all connections that this node has dialled and that are not over."""
        self._trunks = [trunk for trunk in self._trunks if not trunk.stream.is_over]
        return list(self._trunks)

    def heal(self) -> None:
        """Let every node be reached again."""
        self._blocked.clear()

    def crash(self, down_us: int) -> None:
        """Kill the node."""
        self._end(lambda: self.world.crash(down_us))

    def stop(self, down_us: int) -> None:
        """End the node in good order."""
        self._end(lambda: self.world.stop(down_us))

    def measure(self, *, settled: bool) -> None:
        """Observe how much there is of everything, if the relay runs."""
        sizes = self.world.sizes().get(PROTOCOL)
        if sizes is not None:
            commons, peers_count = self._commons, len(self.settings.peers)
            self._commons.observe(
                seen.Sized(
                    self.number,
                    sizes,
                    self.world.unsent_bytes_peak,
                    self.settings.max_frame_bytes,
                    peers_count,
                    commons.targets_count,
                    settled,
                )
            )

    def linked_keys(self) -> set[str]:
        """Return the keys, in hexadecimal, of the nodes that the relay says it is linked with."""
        return {str(node["key"]) for node in self.relay.mesh(self._commons.schedule.now)["nodes"]}

    def rest(self) -> None:
        """Leave every other node, and dial nobody any more."""
        self._is_resting = True
        for trunk in self.trunks():
            trunk.stream.break_off()

    def _wake_up(self) -> None:
        """Let a life begin with a turn, as the server does: there are nodes to dial before anybody comes."""

        def begin() -> None:
            self.world.plan_turn()  # there is no world yet when its first life begins

        self._commons.schedule.after(0, begin)

    def _end(self, act: Callable[[], None]) -> None:
        if self.world.is_up:
            self._commons.where.node_down(self.number)
            act()

    def _is_blocked(self, other: int) -> bool:
        return self._blocked.get(other, Instant(0)) > self._commons.schedule.now

    def _dial(self, world: World, protocol: str, dial: Dial) -> None:
        """Carry a ``Dial`` out, as far as the world lets it."""
        commons = self._commons
        commons.observe(
            seen.Dialled(
                self.number,
                world.life,
                dial.url,
                dial.only_public,
                is_configured=dial.url in self.settings.peers,
                is_private_allowed=self.settings.allow_private_peers,
                is_from_client=dial.url in commons.named_by_clients,
            )
        )
        site = commons.sites.get(dial.url)
        is_guarded = dial.only_public and dial.url.startswith(PRIVATE_PREFIXES)
        if site is None or is_guarded or self._is_resting or not site.is_there(self.number):
            self._fail_later(world, protocol, dial.name)
            return
        trunk = Trunk(commons, site)

        def reach(end: End) -> Port:
            port = site.reach(self.number, end)
            trunk.join(self.number, port.stream)
            self._trunks.append(trunk)
            return port

        def over(stood: bool) -> None:
            trunk.over()
            if not stood:
                world.dial_failed(protocol, dial.name)

        world.dial_out(protocol, dial.name, reach, commons.plan.trunk, over)

    def _fail_later(self, world: World, protocol: str, name: str) -> None:
        life = world.life

        def fail() -> None:
            if world.life == life:
                world.dial_failed(protocol, name)

        self._commons.schedule.after(NO_ANSWER_US, fail)


class Trunk:
    """A connection between two nodes."""

    def __init__(self, commons: MerkCommons, site: Site) -> None:
        """Begin one to ``site``."""
        self._commons = commons
        self.other = site.number
        self._is_thief = site.is_thief
        self.stream: Stream
        self._strand: Strand

    def join(self, node: int, stream: Stream) -> None:
        """Take the stream that ``node`` has dialled."""
        other = HOSTILE_NODE if self.other is None else self.other
        self.stream = stream
        is_honest = self.other is not None
        self._strand = self._commons.where.trunk(node, other, stream, is_honest=is_honest, is_thief=self._is_thief)

    def over(self) -> None:
        """The side that dialled knows that it ended."""
        self._strand.over(self._commons.schedule.now)

    def lose(self) -> None:
        """Let nothing pass any more; both sides find out when no ping is answered."""
        schedule = self._commons.schedule
        until = Instant(schedule.now + PINGS_US)
        self._strand.disturb(until)
        self.stream.cut()
        schedule.at(until, self.break_off)

    def hold_up(self, duration_us: int) -> None:
        """Let nothing arrive for a while."""
        self._strand.disturb(Instant(self._commons.schedule.now + duration_us))
        self.stream.stall(duration_us)

    def break_off(self) -> None:
        """Reset it for both sides."""
        self._strand.over(self._commons.schedule.now)
        self.stream.break_off()
