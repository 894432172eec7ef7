"""A network of datagrams: addresses, and a faulty path between any two of them.

Whoever sends names the address that the datagram claims to come from, so anybody can forge anybody's. What nobody is
bound to receive is lost without a word.
"""

import random
from collections.abc import Callable

from waystation.core.effects import Address
from waystation.sim.chance import fork
from waystation.sim.datagram import DatagramSettings, FaultyLink
from waystation.sim.schedule import Schedule

__all__ = ["Hear", "Network"]

Hear = Callable[[bytes, Address], None]
"""Takes a datagram and the address that it claims to come from."""


class Network:
    """Carries datagrams between addresses.

    Cost: one path for each pair of addresses that ever spoke.
    """

    def __init__(self, schedule: Schedule, rng: random.Random, settings: DatagramSettings) -> None:
        """Make a network without anybody in it; every path behaves as ``settings`` say."""
        self._schedule = schedule
        self._rng = rng
        self._settings = settings
        self._bound: dict[Address, Hear] = {}
        self._paths: dict[tuple[Address, Address], FaultyLink] = {}
        self._cut: set[Address] = set()

    def bind(self, address: Address, hear: Hear) -> None:
        """Give everything that arrives at an address to ``hear``; whoever had it before hears nothing any more."""
        self._bound[address] = hear

    def unbind(self, address: Address) -> None:
        """Let everything that arrives at an address be lost; one that is not bound is fine."""
        self._bound.pop(address, None)

    def send(self, source: Address, to: Address, data: bytes) -> None:
        """Send a datagram that claims to come from ``source``."""
        path = self._paths.get((source, to))
        if path is None:
            path = self._paths[source, to] = FaultyLink(
                self._schedule, fork(self._rng), self._settings, lambda each: self._arrive(source, to, each)
            )
        if source not in self._cut and to not in self._cut:
            path(data)

    def cut(self, address: Address) -> None:
        """Let nothing from or to an address through; what is under way still arrives."""
        self._cut.add(address)

    def heal(self, address: Address) -> None:
        """Let an address be reached again; one that was not cut is fine."""
        self._cut.discard(address)

    def calm(self, settings: DatagramSettings) -> None:
        """Let every path behave as ``settings`` say from now on, and none be cut."""
        self._settings = settings
        self._paths.clear()
        self._cut.clear()

    def _arrive(self, source: Address, to: Address, data: bytes) -> None:
        hear = self._bound.get(to)
        if hear is not None:
            hear(data, source)
