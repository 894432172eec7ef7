"""The simulated host of one Bhumi relay: its restarts, its clock, and the links that it dials to other relays.

``BhumiScenario`` makes one for each relay. The relay itself is the real one, in a ``World`` that takes the place of the
server.
"""

import random
from collections.abc import Callable
from typing import cast

from waystation.core.effects import Dial
from waystation.core.ids import PublicKey
from waystation.engine.node import Relay
from waystation.journal.events import Event
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.sim.bhumi import observations as seen
from waystation.sim.bhumi.context import PROTOCOL, BhumiContext, Clock
from waystation.sim.bhumi.tap import Tap
from waystation.sim.context import Dialable
from waystation.sim.net.link import LinkSettings
from waystation.sim.site import DiallingSite, NodeLink, draw_key_pair
from waystation.sim.trace import Notes

__all__ = ["BhumiSite"]


class BhumiSite(DiallingSite[BhumiContext, NodeLink]):
    """One relay; what it dials reaches others through the addresses in the context."""

    def __init__(
        self,
        context: BhumiContext,
        rng: random.Random,
        trace: Notes,
        number: int,
        settings: BhumiSettings,
        make_relay: type[BhumiRelay],
        on_event: Callable[[Event], None],
    ) -> None:
        """Start a relay; see ``Site``. It has these settings, and ``make_relay`` makes the one of each life."""
        self._settings = settings
        self._make = make_relay
        key_pair = draw_key_pair(rng)
        self._clock = Clock(context.schedule, rng, context.plan.clocks_off_ms)
        super().__init__(context, rng, trace, number, on_event, host=context.plan.host, key_pair=key_pair, store=None)

    def is_reachable(self, caller: int) -> bool:
        """Return whether a connection from another relay gets through."""
        return super().is_reachable(caller) and not self._context.are_parted(self.number, caller)

    def measure(self, *, settled: bool) -> None:
        """Observe how much there is of everything, if the relay runs."""
        sizes = self.world.sizes()
        if PROTOCOL in sizes:
            connections = sizes[PROTOCOL]["connections"]
            self._context.observe(seen.NodeSized(self.number, sizes["node"], connections, settled))
        super().measure(settled=settled)

    def _make_relay(self, entropy: random.Random, admits: Callable[[PublicKey], bool]) -> Relay:
        context, now = self._context, self._context.schedule.now
        key_pair = self.key_pair if context.plan.gossip else None
        relay = self._make(self._settings, entropy, admits=admits, key_pair=key_pair)
        relay.set_wall(now, self._clock.offset_us + now)
        return cast("Relay", Tap(relay, self.number, self._clock, context.observe, context.is_honest))

    def _facts(self) -> dict[str, int]:
        return {"peers": len(self._settings.peers)}

    def _on_life(self, life: int) -> None:
        self._context.observe(seen.LifeBegan(life))
        self._context.observe(seen.RelayBegan(self.number, self.key_pair.public, self._settings.dials_private))
        super()._on_life(life)

    def _link_settings(self) -> LinkSettings:
        return self._context.plan.trunk

    def _make_link(self, site: Dialable, url: str) -> NodeLink:  # noqa: ARG002 - a link is the same to all addresses
        return NodeLink(self.number, site)

    def _on_dial(self, dial: Dial) -> bool:
        is_configured = dial.url in self._settings.peers
        self._context.observe(seen.Dialled(self.number, dial.url, dial.only_public, is_configured))
        return True
