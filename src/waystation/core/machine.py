"""The contract all relays and clients share.

Feed a machine through the inputs, then ``take`` what it wants done, then ask for its ``deadline``. Bytes in any
chunking give the same effects. Nothing a peer sends raises out of an input. A machine that forgot a
peer (after a ``Close`` it emitted) ignores whatever still arrives for it.
"""

from collections.abc import Sequence
from typing import Protocol

from waystation.core.effects import Datagram, Effect, Peer
from waystation.core.instant import Instant

__all__ = ["AsksNothing", "DatagramMachine", "Machine", "Progress"]


class Progress(Protocol):
    """What every machine has, whatever its inputs are."""

    def committed(self, ticket: int, now: Instant) -> None:
        """The changes of the ``Commit`` with this ticket are on disk and visible to reads."""

    def verified(self, ticket: int, answers: Sequence[int], now: Instant) -> None:
        """Here are the answers to the ``Verify`` with this ticket, one per check."""

    def wake(self, now: Instant) -> None:
        """The deadline has come (or passed; early calls do nothing)."""

    def deadline(self) -> Instant | None:
        """Return when ``wake`` must be called next, or None."""

    def take(self) -> list[Effect]:
        """Return and forget the effects gathered since the last call, in their order."""


class Machine(Progress, Protocol):
    """A protocol without I/O, over connections."""

    def connect(self, peer: Peer, now: Instant, address: str = "") -> None:
        """A new connection stands; ``address`` is what its host is counted under, "" when nobody knows."""

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Bytes arrived; any chunking is fine."""

    def disconnect(self, peer: Peer, now: Instant) -> None:
        """The connection ended, and not because the machine closed it."""

    def congested(self, peer: Peer, now: Instant) -> None:
        """Bytes sent to the peer have begun to wait in our buffers."""

    def drained(self, peer: Peer, now: Instant) -> None:
        """Everything sent to the peer so far has left our buffers."""


class DatagramMachine(Progress, Protocol):
    """A protocol without I/O and without connections: every datagram stands for itself."""

    def receive_datagrams(self, datagrams: Sequence[Datagram], now: Instant) -> None:
        """Datagrams arrived, in this order; of each we know only the address that it claims to come from."""


class AsksNothing:
    """Part of a machine that emits neither ``Commit`` nor ``Verify``: an answer to it is a bug of ours."""

    def committed(self, ticket: int, now: Instant) -> None:
        """Refuse an answer that nobody asked for; see ``Machine.committed``."""
        raise AssertionError(f"committed {ticket} at {now}, but nothing was asked")

    def verified(self, ticket: int, answers: Sequence[int], now: Instant) -> None:
        """Refuse an answer that nobody asked for; see ``Machine.verified``."""
        raise AssertionError(f"verified {ticket} with {len(answers)} answers at {now}, but nothing was asked")
