"""Base classes of the hostile clients and nodes in the simulations of Bhumi, MERK and Strata.

A scenario calls ``come`` when its fault phase begins and ``leave`` when it ends. A client connects again after each
disconnect; a node dials random nodes and takes dials to its ``url``. A subclass sends the protocol's bytes: it supplies
``_on_dialled`` (client), ``_make_link`` (node) and ``greet`` (link).
"""

import random
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Final, Generic, TypeVar

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.sim.chance import fork, spread
from waystation.sim.context import Context
from waystation.sim.net.link import End, Port, Stream
from waystation.sim.observations import Unfulfilled
from waystation.sim.site import draw_key_pair

__all__ = ["HostileClient", "HostileLink", "HostileNode"]

DEAF_US_MAX: Final = 75 * MICROSECONDS_PER_SECOND  # 60 s without progress, and what the node needs to see it
VISITS_MAX: Final = 3
VISIT_US: Final = 20 * MICROSECONDS_PER_SECOND

C = TypeVar("C", bound=Context[Any])


class HostileClient(End, ABC, Generic[C]):
    """One client with one trick; it comes back after it was disconnected."""

    back_us: ClassVar[int] = 20 * MICROSECONDS_PER_SECOND
    """Mean time until it comes back, in microseconds."""
    back_least_us: ClassVar[int] = 0
    deaf_window_bytes: ClassVar[int] = 512
    """The window of one that does not read: this is noticed only when the window is full."""

    def __init__(self, context: C, rng: random.Random, host: str, kind: str) -> None:
        """Make a client; ``come`` lets it loose.

        Args:
            context: The scenario's.
            rng: Draws what it does.
            host: Its address.
            kind: Its trick.
        """
        self._context = context
        self._rng = rng
        self._host = host
        self._kind = kind
        link = context.plan.link
        self._link = replace(link, window_bytes=self.deaf_window_bytes) if kind == "deaf" else link
        self._port: Port | None = None
        self._is_leaving = False

    def come(self) -> None:
        """Connect somewhere, unless it left for good."""
        if not self._is_leaving:
            node = self._draw_node()
            self._port = self._context.worlds[node].dial(self._context.protocol, self._host, self, self._link)
            self._on_dialled(node, self._port)

    def leave(self) -> None:
        """Go for good."""
        self._is_leaving = True
        if self._port is not None:
            self._port.abort()

    def ended(self) -> None:
        """Come back after a while."""
        self._context.schedule.after(self.back_least_us + spread(self._rng, self.back_us), self.come)

    def _draw_node(self) -> int:
        """Return the node to connect to."""
        return self._rng.randrange(len(self._context.worlds))

    @abstractmethod
    def _on_dialled(self, node: int, port: Port) -> None:
        """Begin anew on a connection to a node."""

    def _watch(self, port: Port, since: Instant | None = None, unsent: int = 0) -> None:
        """Complain when the relay keeps a connection that takes nothing for too long."""
        schedule, node_port = self._context.schedule, port.stream.node
        if not port.is_open or not node_port.is_open:
            return
        stuck = node_port.waits and since is not None and node_port.unsent_bytes >= unsent
        begun = since if stuck and since is not None else schedule.now
        if schedule.now - begun > DEAF_US_MAX and not port.stream.faulted:
            self._context.observe(Unfulfilled("a client that takes nothing is still connected"))
        after = begun if node_port.waits else None
        schedule.after(MICROSECONDS_PER_SECOND, lambda: self._watch(port, after, node_port.unsent_bytes))


class HostileLink(End, ABC):
    """One connection of a hostile node."""

    def __init__(self, *, is_dialler: bool) -> None:
        self._is_dialler = is_dialler
        self.port: Port

    def leave(self) -> None:
        """End it."""
        if self.port.is_open:
            self.port.abort()
            self.ended()

    def on_dialled(self, node: int) -> None:
        """Note that the hostile node has dialled this one to a node of the scenario."""

    @abstractmethod
    def greet(self) -> None:
        """Say what the side that was dialled says first."""


L = TypeVar("L", bound=HostileLink)


class HostileNode(ABC, Generic[C, L]):
    """One node with one trick; others dial it, and it dials others."""

    number = None
    """It is no node of the scenario's."""
    visit_least_us: ClassVar[int] = 0

    def __init__(self, context: C, rng: random.Random, place: int, url: str) -> None:
        """Make a node; ``come`` lets it loose.

        Args:
            context: The scenario's.
            rng: Draws what it does.
            place: Which of the hostile nodes it is.
            url: What others dial.
        """
        self.context = context
        self.rng = rng
        self.key_pair = draw_key_pair(rng)
        self.url = url
        self.is_gone = False
        self._host = f"10.8.0.{place}"
        self._links: list[L] = []
        context.sites[url] = self

    def come(self) -> None:
        """Dial some node, and do so again later, unless it left for good."""
        if self.is_gone:
            return
        context = self.context
        self._links = [link for link in self._links if link.port.is_open]
        if len(self._links) < VISITS_MAX:
            node = self.rng.randrange(len(context.worlds))
            link = self._make_link(is_dialler=True)
            link.port = context.worlds[node].dial(context.protocol, self._host, link, context.plan.trunk)
            link.on_dialled(node)
            self._links.append(link)
        context.schedule.after(self.visit_least_us + spread(self.rng, VISIT_US), self.come)

    def leave(self) -> None:
        """Go for good."""
        self.is_gone = True
        for link in self._links:
            link.leave()

    def is_reachable(self, caller: int) -> bool:  # noqa: ARG002 - nothing cuts it off
        """Return whether it can be dialled."""
        return not self.is_gone

    def reach(self, caller: int, end: End) -> Port:  # noqa: ARG002 - it accepts every caller
        """Return the caller's port of a new connection."""
        context = self.context
        link = self._make_link(is_dialler=False)
        stream = Stream(context.schedule, fork(self.rng), context.plan.trunk, end, link)
        link.port = stream.node
        self._links.append(link)
        context.schedule.after(3 * context.plan.trunk.latency_us + 1, link.greet)
        return stream.client

    @abstractmethod
    def _make_link(self, *, is_dialler: bool) -> L:
        """Return one connection of this node."""
