"""The node's end of one simulated stream: it knows the peer number and reports stream events to the world.

``World`` makes one for each accepted or dialled stream and turns the reports into inputs of the engine.
"""

from collections.abc import Callable
from typing import Protocol

from waystation.core.effects import Peer
from waystation.sim.net.link import End, Port

__all__ = ["EndOwner", "NodeEnd"]


class EndOwner(Protocol):
    """Gets what happens at an end; ``World`` is one."""

    def received(self, end: "NodeEnd", data: bytes) -> None:
        """Bytes arrived."""

    def congested(self, end: "NodeEnd") -> None:
        """Bytes wait for the other side."""

    def drained(self, end: "NodeEnd") -> None:
        """Nothing waits any more."""

    def ended(self, end: "NodeEnd") -> None:
        """The other side is gone."""


class NodeEnd(End):
    """The node's end of one stream."""

    __slots__ = ("_world", "early", "over", "peer", "port", "waiting_bytes")

    def __init__(self, world: EndOwner) -> None:
        """Report to ``world``; whoever makes the stream sets ``port``, and ``peer`` once the connection stands."""
        self._world = world
        self.peer: Peer | None = None
        self.port: Port
        self.early: list[bytes] = []
        """What arrived before the connection stood."""
        self.waiting_bytes = 0
        self.over: Callable[[bool], None] = lambda _stood: None

    def received(self, data: bytes) -> None:
        """Pass bytes on."""
        self._world.received(self, data)

    def congested(self) -> None:
        """Pass on that bytes wait."""
        self._world.congested(self)

    def drained(self) -> None:
        """Pass on that nothing waits."""
        self._world.drained(self)

    def ended(self) -> None:
        """Pass the end on."""
        self._world.ended(self)
