"""A relay's messages by the bunch, as the server's hub hands over what one read of a socket brought.

Messages of one peer that arrive within one turn go to the relay in one call, in their order and before anything else
happens to it: what it does with them must be the same as one by one.
"""

from collections.abc import Sequence

from waystation.core.effects import Effect, Peer
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.merk.relay import MerkRelay

__all__ = ["Bunches"]


class Bunches:
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

    def connect(self, peer: Peer, now: Instant, address: str = "") -> None:
        """Pass it on."""
        self._hand_over().connect(peer, now, address)

    def connect_upstream(self, peer: Peer, name: str, now: Instant) -> None:
        """Pass it on."""
        self._hand_over().connect_upstream(peer, name, now)

    def upstream_failed(self, name: str, now: Instant) -> None:
        """Pass it on."""
        self._hand_over().upstream_failed(name, now)

    def disconnect(self, peer: Peer, now: Instant) -> None:
        """Pass it on."""
        self._hand_over().disconnect(peer, now)

    def congested(self, peer: Peer, now: Instant) -> None:
        """Pass it on."""
        self._hand_over().congested(peer, now)

    def drained(self, peer: Peer, now: Instant) -> None:
        """Pass it on."""
        self._hand_over().drained(peer, now)

    def committed(self, ticket: int, now: Instant) -> None:
        """Pass it on."""
        self._hand_over().committed(ticket, now)

    def verified(self, ticket: int, answers: Sequence[int], now: Instant) -> None:
        """Pass it on."""
        self._hand_over().verified(ticket, answers, now)

    def wake(self, now: Instant) -> None:
        """Pass it on."""
        self._hand_over().wake(now)

    def deadline(self) -> Instant | None:
        """Pass it on."""
        return self._hand_over().deadline()

    def take(self) -> list[Effect]:
        """Pass it on."""
        return self._hand_over().take()

    def retire(self) -> None:
        """Pass it on."""
        self._hand_over().retire()

    def settled(self) -> bool:
        """Pass it on."""
        return self._hand_over().settled()

    def shut(self, now: Instant) -> None:
        """Pass it on."""
        self._hand_over().shut(now)

    def expel(self, identity: PublicKey, now: Instant) -> None:
        """Pass it on."""
        self._hand_over().expel(identity, now)

    def sizes(self) -> dict[str, int]:
        """Pass it on."""
        return self._hand_over().sizes()

    def _hand_over(self) -> MerkRelay:
        """Let the relay have what was gathered, and return it."""
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._relay.receive_many(self._peer, gathered, self._now)
        return self._relay
