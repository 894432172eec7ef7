"""A simulated datagram network: addresses, and a faulty path between any two of them.

LPRP's hosts, clients and hostile actors send over one. The sender names the source address, so any actor can forge any
address. A datagram to an unbound address is lost silently.
"""

import random
from collections.abc import Callable

from waystation.core.effects import Address
from waystation.sim.chance import fork
from waystation.sim.net.datagram import DatagramSettings, FaultyLink
from waystation.sim.schedule import Schedule

__all__ = ["Network", "Receive"]

Receive = Callable[[bytes, Address], None]
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
        self._bound: dict[Address, Receive] = {}
        self._paths: dict[tuple[Address, Address], FaultyLink] = {}
        self._cut: set[Address] = set()

    def bind(self, address: Address, receive: Receive) -> None:
        """Give everything that arrives at an address to ``receive``, and nothing any more to its former owner."""
        self._bound[address] = receive

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

    def change_to(self, settings: DatagramSettings) -> None:
        """Let every path behave as ``settings`` say from now on, and none be cut."""
        self._settings = settings
        self._paths.clear()
        self._cut.clear()

    def _arrive(self, source: Address, to: Address, data: bytes) -> None:
        receive = self._bound.get(to)
        if receive is not None:
            receive(data, source)
