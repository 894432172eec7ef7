"""The simulated host of one MERK node: its relay, and the links that it dials to other nodes.

``MerkScenario`` makes one for each node. The relay itself is the real one, in a ``World`` that takes the place of the
server.
"""

import random
from collections.abc import Callable
from typing import Final, cast

from waystation.core.effects import Dial
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.engine.node import Relay
from waystation.journal.events import Event
from waystation.protocols.merk.relay.machine import MerkRelay
from waystation.protocols.merk.settings import MerkSettings
from waystation.sim.context import Dialable
from waystation.sim.merk import observations as seen
from waystation.sim.merk.batches import Batches
from waystation.sim.merk.context import MerkContext
from waystation.sim.merk.presences import Presence
from waystation.sim.net.link import LinkSettings, Stream
from waystation.sim.site import DiallingSite, NodeLink, draw_key_pair, draw_store
from waystation.sim.trace import Notes
from waystation.sim.world import WALL_START_US

__all__ = ["HOSTILE_NODE", "PRIVATE_PREFIXES", "MerkLink", "MerkSite"]

HOSTILE_NODE: Final = -1  # all of them, in the model of presences
PRIVATE_PREFIXES: Final = ("ws://10.", "ws://127.", "ws://192.168.", "ws://169.254.", "ws://[::1]", "ws://localhost")


class MerkLink(NodeLink):
    """A connection between two nodes."""

    def __init__(self, context: MerkContext, node: int, site: Dialable, *, is_thief: bool) -> None:
        """Begin one from ``node``; ``is_thief`` is whether the other node claims to have every client."""
        super().__init__(node, site)
        self._context = context
        self._is_thief = is_thief
        self.presence: Presence

    def join(self, stream: Stream) -> None:
        """Take the stream that the node has dialled."""
        super().join(stream)
        other = HOSTILE_NODE if self.other is None else self.other
        is_honest = self.other is not None
        self.presence = self._context.presences.add_link(
            self.node, other, stream, is_honest=is_honest, is_thief=self._is_thief
        )

    def over(self) -> None:
        """The side that dialled knows that it ended."""
        self.presence.over(self._context.schedule.now)

    def break_off(self) -> None:
        """Reset it for both sides."""
        self.presence.over(self._context.schedule.now)
        self.stream.break_off()


class MerkSite(DiallingSite[MerkContext, MerkLink]):
    """One node; what it dials reaches other nodes through the addresses in the context."""

    def __init__(
        self,
        context: MerkContext,
        rng: random.Random,
        trace: Notes,
        number: int,
        settings: MerkSettings,
        make_relay: type[MerkRelay],
        on_event: Callable[[Event], None],
    ) -> None:
        """Start a node; see ``Site``. Its relay has these settings, and ``make_relay`` makes the one of each life."""
        self.settings = settings
        self._make = make_relay
        self._blocked: dict[int, Instant] = {}
        self.relay: MerkRelay
        super().__init__(
            context,
            rng,
            trace,
            number,
            on_event,
            host=context.plan.host,
            key_pair=draw_key_pair(rng),
            store=draw_store(rng),
        )

    def is_reachable(self, caller: int) -> bool:
        """Return whether a connection from another node gets through."""
        return self.world.is_up and self._blocked.get(caller, Instant(0)) <= self._context.schedule.now

    def part(self, other: "MerkSite", duration_us: int) -> None:
        """Let this node and another one not reach each other for a while; what they have stays half-open."""
        until = Instant(self._context.schedule.now + duration_us)
        self._blocked[other.number] = other._blocked[self.number] = until  # noqa: SLF001 - the same class
        for link in self.links_to(other) + other.links_to(self):
            link.presence.lose(link.break_off)

    def links_to(self, other: "MerkSite") -> list[MerkLink]:
        """Return the connections to another node that this one has dialled and that are not over."""
        return [link for link in self.links() if link.other == other.number]

    def heal(self) -> None:
        """Let every node be reached again."""
        self._blocked.clear()

    def crash(self, down_us: int) -> None:
        """Kill the node."""
        self._note_down()
        super().crash(down_us)

    def stop(self, down_us: int) -> None:
        """End the node in good order."""
        self._note_down()
        super().stop(down_us)

    def linked_keys(self) -> set[str]:
        """Return the keys, in hexadecimal, of the nodes that the relay says it is linked with."""
        return {str(node["key"]) for node in self.relay.mesh(self._context.schedule.now)["nodes"]}

    def found(self) -> list[tuple[str, bool]]:
        """Return the addresses at which it found nodes that are honest, and whether its store has them."""
        return [
            (url, self.store.get("merk_peers", url.encode()) is not None)
            for node in self.relay.mesh(self._context.schedule.now)["nodes"]
            if (url := node["address"]) not in self.settings.peers
            and node["dialled"]
            and node["up_s"]
            and isinstance(self._context.sites.get(url), MerkSite)
        ]

    def _note_down(self) -> None:
        if self.world.is_up:
            self._context.presences.node_down(self.number)

    def _make_relay(self, entropy: random.Random, admits: Callable[[PublicKey], bool]) -> Relay:
        now, plan = self._context.schedule.now, self._context.plan
        self.relay = self._make(
            self.settings, self.key_pair, self.store, entropy, rate_limits=plan.rate_limits, admits=admits
        )
        self.relay.set_wall(now, WALL_START_US + now)
        self._context.lives[self.number] = now
        return cast("Relay", Batches(self.relay)) if plan.batches else self.relay

    def _facts(self) -> dict[str, int]:
        return {
            "unsent_bytes_peak": self.world.unsent_bytes_peak,
            "max_frame_bytes": self.settings.max_frame_bytes,
            "peers_count": len(self.settings.peers),
            "targets_count": self._context.targets_count,
        }

    def _link_settings(self) -> LinkSettings:
        return self._context.plan.trunk

    def _make_link(self, site: Dialable, url: str) -> MerkLink:
        return MerkLink(self._context, self.number, site, is_thief=url in self._context.thieves)

    def _on_dial(self, dial: Dial) -> bool:
        context = self._context
        context.observe(
            seen.Dialled(
                self.number,
                self.world.life,
                dial.url,
                dial.only_public,
                is_configured=dial.url in self.settings.peers,
                is_private_allowed=self.settings.allow_private_peers,
                is_from_client=dial.url in context.named_by_clients,
            )
        )
        return not (dial.only_public and dial.url.startswith(PRIVATE_PREFIXES))
