"""Interfaces of protocol machines: the inputs and outputs that all relays and clients share.

``engine.node`` drives relays through them and ``sdk.connection`` drives clients. The caller passes inputs, then calls
``take`` for the effects, then ``deadline`` for the next ``wake``. How received bytes are split into chunks does not
change the effects. Input from a peer never raises an exception. After a machine emits ``Close``, it ignores further
input of that peer.
"""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from waystation.core.effects import Datagram, Effect, Peer
from waystation.core.instant import Instant

__all__ = [
    "AsksNothing",
    "ClientMachine",
    "Clocked",
    "DatagramMachine",
    "IgnoresPressure",
    "Machine",
    "Progress",
]


class Progress(Protocol):
    """The part that every machine has, whatever its inputs are."""

    def committed(self, ticket: int, now: Instant) -> None:
        """The changes of the ``Commit`` with this ticket are on disk and visible to reads."""

    def not_committed(self, ticket: int, now: Instant) -> None:
        """The store did not take the changes of the ``Commit`` with this ticket; none of them is kept (NODE-REFUSED).

        The machine undoes what it did in memory, or asks again later (``core.commits``). It reports none of them.
        """

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
        """A connection is established; limits count its host under ``address``, "" when that is unknown."""

    def receive(self, peer: Peer, data: bytes, now: Instant) -> None:
        """Bytes arrived; any chunking is fine."""

    def disconnect(self, peer: Peer, now: Instant) -> None:
        """The connection ended, and not because the machine closed it."""

    def congested(self, peer: Peer, now: Instant) -> None:
        """Bytes sent to the peer have begun to wait in our buffers."""

    def drained(self, peer: Peer, now: Instant) -> None:
        """Everything sent to the peer so far has left our buffers."""


class DatagramMachine(Progress, Protocol):
    """A protocol without I/O and without connections: every datagram is independent of the others."""

    def receive_datagrams(self, datagrams: Sequence[Datagram], now: Instant) -> None:
        """Datagrams arrived, in this order; of each we know only the address that it claims to come from."""


class ClientMachine(Machine, Protocol):
    """The dialling side of a protocol: its owner gives it commands and takes events.

    It has at most one connection at a time. Commands append effects and events as inputs do, so the owner takes both
    after each of either. The order between effects and events has no meaning.
    """

    def take_events(self) -> list[Any]:
        """Return and forget what happened since the last call, in order."""


@runtime_checkable
class Clocked(Protocol):
    """A machine that compares times of day; a machine without this method knows the monotonic clock alone."""

    def set_wall(self, now: Instant, wall_us: int) -> None:
        """Tie the monotonic clock to the wall clock: ``now`` is ``wall_us`` (microseconds UTC)."""


class AsksNothing:
    """Part of a machine that emits neither ``Commit`` nor ``Verify``: an answer to it is a bug of ours."""

    def committed(self, ticket: int, now: Instant) -> None:
        """Refuse an answer to no question of this machine; see ``Machine.committed``."""
        raise AssertionError(f"committed {ticket} at {now}, but nothing was asked")

    def not_committed(self, ticket: int, now: Instant) -> None:
        """Refuse an answer to no question of this machine; see ``Machine.not_committed``."""
        raise AssertionError(f"not committed {ticket} at {now}, but nothing was asked")

    def verified(self, ticket: int, answers: Sequence[int], now: Instant) -> None:
        """Refuse an answer to no question of this machine; see ``Machine.verified``."""
        raise AssertionError(f"verified {ticket} with {len(answers)} answers at {now}, but nothing was asked")


class IgnoresPressure:
    """Part of a client whose own tables bound what it sends: bytes that wait change nothing."""

    def congested(self, peer: Peer, now: Instant) -> None:
        """Ignore that bytes wait; see ``Machine.congested``."""

    def drained(self, peer: Peer, now: Instant) -> None:
        """Ignore that nothing waits any more; see ``Machine.drained``."""
