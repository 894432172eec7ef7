"""The simulated host of one node: its key, its store, its crashes and restarts, and the connections that it dials.

Scenarios make one for each node; Bhumi, LPRP, MERK and Strata subclass it. Its ``World`` runs the real node; a crash
takes everything but the store, as ``kill -9`` does.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from waystation.core.effects import Address, Dial
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair
from waystation.engine.node import DatagramRelay, Relay
from waystation.journal.events import Event
from waystation.sim.chance import fork
from waystation.sim.context import Context, Dialable
from waystation.sim.disk import EPOCH_BYTES, FaultyStore, Row
from waystation.sim.net.link import End, LinkSettings, Port, Stream
from waystation.sim.observations import DiskLost, DiskRefused, Sized
from waystation.sim.trace import Notes
from waystation.sim.world import World, WorldSettings

__all__ = ["DiallingSite", "NodeLink", "Site", "draw_key_pair", "draw_store"]

NO_ANSWER_US: Final = 3 * MICROSECONDS_PER_SECOND  # until a dial that nothing answers is given up
KEY_BYTES: Final = 32


def draw_key_pair(rng: random.Random) -> KeyPair:
    """Draw the keys of a node or a client."""
    return KeyPair.from_seed(rng.randbytes(KEY_BYTES))


def draw_store(rng: random.Random) -> FaultyStore:
    """Return an empty store with an epoch of its own."""
    return FaultyStore(rng.randbytes(EPOCH_BYTES))


C = TypeVar("C", bound=Context[Any])


class Site(ABC, Generic[C]):
    """One node."""

    def __init__(
        self,
        context: C,
        rng: random.Random,
        trace: Notes,
        number: int,
        on_event: Callable[[Event], None],
        *,
        host: WorldSettings,
        key_pair: KeyPair,
        store: FaultyStore | None,
    ) -> None:
        """Start a node; the subclass has set before what its relay needs.

        Args:
            context: Shared by all actors.
            rng: Everything drawn comes from here.
            trace: Gets a line for every input and effect.
            number: Its place in the network.
            on_event: Gets every journal event.
            host: How its host behaves.
            key_pair: The node's.
            store: What it keeps over its lives, if anything.
        """
        self._context = context
        self.number = number
        self.key_pair = key_pair
        self.store = store if store is not None else FaultyStore()
        self.world: World
        self.world = World(
            context.schedule,
            fork(rng),
            trace,
            self._make_relays,
            store=self.store,
            settings=host,
            on_event=on_event,
            on_life=self._on_life,
            dialler=self._dial,
            on_datagram=self._on_datagram,
            on_lost=self._on_lost,
            on_refused=self._on_refused,
        )

    # What the scenario does with it

    def crash(self, down_us: int) -> None:
        """Kill the node; it is back later with what its store has."""
        self.world.crash(down_us)

    def stop(self, down_us: int) -> None:
        """End the node in good order, and start it again later."""
        self.world.stop(down_us)

    def measure(self, *, settled: bool) -> None:
        """Observe how much there is of everything, if the relay runs."""
        sizes = self.world.sizes().get(self._context.protocol)
        if sizes is not None:
            self._context.observe(Sized(self.number, sizes, self._facts(), settled))

    # What a protocol adds

    @abstractmethod
    def _make_relay(self, entropy: random.Random, admits: Callable[[PublicKey], bool]) -> Relay | DatagramRelay:
        """Return the relay of a life."""

    def _facts(self) -> dict[str, int]:
        """Return what the bounds of sizes depend on."""
        return {}

    def _on_life(self, life: int) -> None:  # noqa: ARG002 - for sites that observe their lives
        """Let a life begin with a turn, as the server does: there are nodes to dial before any client comes."""

        def begin() -> None:
            self.world.plan_turn()  # there is no world yet when its first life begins

        self._context.schedule.after(0, begin)

    def _on_lost(self, rows: frozenset[Row]) -> None:
        """Observe which rows the disk has lost."""
        self._context.observe(DiskLost(self.number, rows, self.store.lost_values))

    def _on_refused(self) -> None:
        """Observe that the disk has refused."""
        self._context.observe(DiskRefused(self.number))

    def _on_datagram(self, address: Address, data: bytes) -> None:
        """Lose a datagram that the node sends."""

    # Lives

    def _make_relays(
        self, entropy: random.Random, admits: Callable[[PublicKey], bool]
    ) -> dict[str, Relay | DatagramRelay]:
        return {self._context.protocol: self._make_relay(entropy, admits)}

    def _dial(self, world: World, protocol: str, dial: Dial) -> None:
        """Let a dial fail; a ``DiallingSite`` carries it out."""
        world.dial_failed(protocol, dial.name)


class NodeLink:
    """A connection that one node has dialled to another."""

    def __init__(self, node: int, site: Dialable) -> None:
        """Begin one from ``node``."""
        self.node = node
        self.other = site.number
        """Which node was dialled; None for a hostile one."""
        self.stream: Stream

    def join(self, stream: Stream) -> None:
        """Take the stream that the node has dialled."""
        self.stream = stream

    def over(self) -> None:
        """The node that dialled knows that it ended."""


L = TypeVar("L", bound=NodeLink)


class DiallingSite(Site[C], Generic[C, L]):
    """A node that reaches other nodes through the addresses in the context."""

    _is_closing = False
    _links: Sequence[L] = ()

    # What other nodes see

    def is_reachable(self, caller: int) -> bool:  # noqa: ARG002 - for sites that keep some callers out
        """Return whether a connection from another node gets through."""
        return self.world.is_up

    def reach(self, caller: int, end: End) -> Port:
        """Return the port of a new connection from another node."""
        return self.world.dial(self._context.protocol, f"10.9.0.{caller}", end, self._link_settings())

    def links(self) -> list[L]:
        """Return the connections that this node has dialled and that are not over."""
        self._links = [link for link in self._links if not link.stream.is_over]
        return list(self._links)

    def close(self) -> None:
        """Leave every other node, and dial none any more."""
        self._is_closing = True
        for link in self.links():
            link.stream.break_off()

    # What a protocol adds

    @abstractmethod
    def _link_settings(self) -> LinkSettings:
        """Return what a connection between two nodes is like."""

    @abstractmethod
    def _make_link(self, site: Dialable, url: str) -> L:
        """Return what notes a connection that is being dialled to ``site``, which answers at ``url``."""

    def _on_dial(self, dial: Dial) -> bool:  # noqa: ARG002 - for sites that refuse some addresses
        """Observe a ``Dial``; return whether it may be carried out."""
        return True

    def _dial(self, world: World, protocol: str, dial: Dial) -> None:
        """Carry a ``Dial`` out, as far as the network lets it."""
        may_dial = self._on_dial(dial)
        site = self._context.sites.get(dial.url)
        if site is None or not may_dial or self._is_closing or not site.is_reachable(self.number):
            self._fail_later(world, protocol, dial.name)
            return
        link = self._make_link(site, dial.url)

        def reach(end: End) -> Port:
            port = site.reach(self.number, end)
            link.join(port.stream)
            self._links = [*self._links, link]
            return port

        def over(stood: bool) -> None:
            link.over()
            if not stood:
                world.dial_failed(protocol, dial.name)

        world.dial_out(protocol, dial.name, reach, self._link_settings(), over)

    def _fail_later(self, world: World, protocol: str, name: str) -> None:
        life = world.life

        def fail() -> None:
            if world.life == life:
                world.dial_failed(protocol, name)

        self._context.schedule.after(NO_ANSWER_US, fail)
