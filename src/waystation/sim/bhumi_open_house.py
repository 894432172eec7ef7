"""One relay of an open Bhumi world: its lives, its clock, and the links that it dials to others."""

import random
from collections.abc import Callable
from typing import Final, Protocol

from waystation.core.effects import Dial
from waystation.core.ids import PublicKey
from waystation.core.instant import MICROSECONDS_PER_SECOND
from waystation.crypto.signing import KeyPair
from waystation.engine.node import Relay
from waystation.journal.events import Event
from waystation.protocols.bhumi.relay import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.sim import bhumi_open_observations as seen
from waystation.sim.bhumi_open_commons import PROTOCOL, Clock, OpenCommons, Site
from waystation.sim.bhumi_open_tap import Tap
from waystation.sim.chance import fork
from waystation.sim.link import End, Port, Stream
from waystation.sim.observations import LifeBegan
from waystation.sim.trace import Notes
from waystation.sim.world import World

__all__ = ["House", "MakeOpenRelay", "Trunk"]

NO_ANSWER_US: Final = 3 * MICROSECONDS_PER_SECOND  # until a dial that meets nobody is given up


class MakeOpenRelay(Protocol):
    """Makes a relay; ``BhumiRelay`` itself, or a broken one in tests of the laws."""

    def __call__(
        self,
        settings: BhumiSettings,
        rng: random.Random,
        *,
        admits: Callable[[PublicKey], bool],
        key_pair: KeyPair,
    ) -> BhumiRelay:
        """Return a relay without connections and with empty memory."""


class House:
    """One relay; what it dials reaches others through the addresses in the commons."""

    is_honest = True

    def __init__(
        self,
        commons: OpenCommons,
        rng: random.Random,
        trace: Notes,
        number: int,
        settings: BhumiSettings,
        make_relay: MakeOpenRelay,
        on_event: Callable[[Event], None],
    ) -> None:
        """Start a relay.

        Args:
            commons: The world.
            rng: Everything drawn comes from here.
            trace: Gets a line for every input and effect.
            number: Its place in the world.
            settings: Of the relay.
            make_relay: Makes the relay of each life.
            on_event: Gets every journal event.
        """
        self._commons = commons
        self.number = number
        self.settings = settings
        self.key_pair = key_pair = KeyPair.from_seed(rng.randbytes(32))
        self.clock = clock = Clock(commons.schedule, rng, commons.plan.clocks_off_ms)
        self._trunks: list[Trunk] = []
        self._is_resting = False
        self.tap: Tap

        def make_relays(entropy: random.Random, admits: Callable[[PublicKey], bool]) -> dict[str, Relay]:
            now = commons.schedule.now
            relay = make_relay(settings, entropy, admits=admits, key_pair=key_pair)
            relay.set_wall(now, clock.offset_us + now)
            self.tap = Tap(relay, number, clock.offset_us, commons.observe, commons.is_honest)
            return {PROTOCOL: self.tap}

        self.world = World(
            commons.schedule,
            fork(rng),
            trace,
            make_relays,
            settings=commons.plan.host,
            on_event=on_event,
            on_life=self._on_life,
            dialler=self._dial,
        )

    def is_there(self, caller: int) -> bool:
        """Return whether a connection from another relay gets through."""
        return self.world.is_up and not self._commons.are_parted(self.number, caller)

    def reach(self, caller: int, end: End) -> Port:
        """Return the port of a new connection from another relay."""
        return self.world.dial(PROTOCOL, f"10.9.0.{caller}", end, self._commons.plan.trunk)

    def trunks(self) -> "list[Trunk]":
        """Return all links that this relay has dialled and that are not over."""
        self._trunks = [trunk for trunk in self._trunks if not trunk.stream.is_over]
        return list(self._trunks)

    def measure(self, *, settled: bool) -> None:
        """Observe how much there is of everything, if the relay runs."""
        sizes = self.world.sizes().get(PROTOCOL)
        if sizes is not None:
            self._commons.observe(seen.Sized(self.number, sizes, len(self.settings.peers), settled))

    def rest(self) -> None:
        """Leave every other relay, and reach nobody any more."""
        self._is_resting = True
        for trunk in self.trunks():
            trunk.stream.break_off()

    def _on_life(self, life: int) -> None:
        """Let a life begin with a turn, as the server does: there are relays to dial before anybody comes."""
        self._commons.observe(LifeBegan(life))
        self._commons.observe(seen.RelayBegan(self.number, self.key_pair.public, self.settings.dials_private))

        def begin() -> None:
            self.world.plan_turn()  # there is no world yet when its first life begins

        self._commons.schedule.after(0, begin)

    def _dial(self, world: World, protocol: str, dial: Dial) -> None:
        """Carry a ``Dial`` out, as far as the world lets it."""
        commons = self._commons
        commons.observe(seen.Dialled(self.number, dial.url, dial.only_public, dial.url in self.settings.peers))
        site = commons.sites.get(dial.url)
        if site is None or self._is_resting or not site.is_there(self.number):
            self._fail_later(world, protocol, dial.name)
            return
        trunk = Trunk(self.number, site)

        def reach(end: End) -> Port:
            port = site.reach(self.number, end)
            trunk.stream = port.stream
            self._trunks.append(trunk)
            return port

        def over(stood: bool) -> None:
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
    """A link between two relays."""

    def __init__(self, node: int, site: Site) -> None:
        """Begin one from relay ``node``."""
        self.node = node
        self.other = site.number if isinstance(site, House) else None
        """Which relay was dialled; None for a hostile one."""
        self.stream: Stream
