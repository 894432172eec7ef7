"""Wraps a MERK relay and passes messages to it in batches, as the server's hub does after one socket read.

The simulated node of some plans has it in place of the relay. Consecutive messages of one peer at one instant reach the
relay in one call, before any other input. The result must equal one call per message.
"""

from typing import Any

from waystation.core.effects import Peer
from waystation.core.instant import Instant
from waystation.protocols.merk.relay.machine import MerkRelay

__all__ = ["Batches"]


class Batches:
    """A ``MerkRelay`` whose messages are gathered; see ``engine.node.Relay`` for the inputs and commands."""

    def __init__(self, relay: MerkRelay) -> None:
        """Gather for ``relay``."""
        self._relay = relay
        self._gathered: list[bytes] = []
        self._peer = Peer(0)
        self._now = Instant(0)

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Gather a message with those before it, if they are of the same peer and instant."""
        if (peer, now) != (self._peer, self._now):
            self._hand_over()
            self._peer, self._now = peer, now
        self._gathered.append(data)

    def connect_upstream(self, peer: Peer, name: str, now: Instant) -> None:
        """Pass it on; the node looks for this input, see ``engine.node.DialsOut``."""
        self._hand_over().connect_upstream(peer, name, now)

    def upstream_failed(self, name: str, now: Instant) -> None:
        """Pass it on, as the other input of ``DialsOut``."""
        self._hand_over().upstream_failed(name, now)

    def __getattr__(self, name: str) -> Any:
        """Pass on every other input and command, behind what was gathered."""
        return getattr(self._hand_over(), name)

    def _hand_over(self) -> MerkRelay:
        """Let the relay have what was gathered, and return it."""
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._relay.receive_many(self._peer, gathered, self._now)
        return self._relay
