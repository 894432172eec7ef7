"""Interfaces of relays as the node calls them: required inputs, and optional ones that some relays have.

``engine.node`` looks at a relay's type to see which it has: a relay that dials out, for example, also gets
``connect_upstream``. Relays do not import this; their methods match by name.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from waystation.core.effects import Peer
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.core.machine import DatagramMachine, Machine, Progress

__all__ = [
    "DatagramRelay",
    "DialsOut",
    "HasEndpoints",
    "Relay",
    "SeesCertificates",
    "Service",
    "TakesHalfClose",
    "TakesMany",
]


class Service(Progress, Protocol):
    """What the node asks of any relay besides its inputs."""

    def retire(self) -> None:
        """Take no new work; finish what is under way."""

    def settled(self) -> bool:
        """Return whether nothing is under way."""

    def shut(self, now: Instant) -> None:
        """Close every connection."""

    def expel(self, identity: PublicKey, now: Instant) -> None:
        """Close the connections of an identity."""

    def review(self, now: Instant) -> None:
        """Ask again about everybody who is connected, and close whoever is not admitted any more."""

    def sizes(self) -> dict[str, int]:
        """Return how much of each bounded thing there is."""


class Relay(Service, Machine, Protocol):
    """A relay over connections."""


@runtime_checkable
class DatagramRelay(Service, DatagramMachine, Protocol):
    """A relay without connections."""


@runtime_checkable
class DialsOut(Protocol):
    """What the node asks of a relay that has upstreams besides."""

    def connect_upstream(self, peer: Peer, name: str, now: Instant) -> None:
        """A dialled connection is established; ``name`` is the one under which the relay knows the other side."""

    def upstream_failed(self, name: str, now: Instant) -> None:
        """The other side could not be reached."""


class SeesCertificates(Protocol):
    """What the node asks of a relay whose upstreams prove themselves by the certificate that they show."""

    def connect_upstream(self, peer: Peer, name: str, now: Instant, certificate: bytes) -> None:
        """As ``DialsOut``; ``certificate`` is the SHA-256 of the one that was seen."""


@runtime_checkable
class TakesHalfClose(Protocol):
    """An optional input of a relay: it goes on writing to a peer that has ended only its own half of a connection."""

    def half_closed(self, peer: Peer, now: Instant) -> None:
        """The other side sends no more; the relay closes the connection when it has sent everything."""


@runtime_checkable
class HasEndpoints(Protocol):
    """An input of a relay that treats connections of its listeners differently."""

    def connect_by(self, peer: Peer, endpoint: str, now: Instant, address: str = "") -> None:
        """A connection of the listener ``endpoint`` is established; else as ``Machine.connect``."""


@runtime_checkable
class TakesMany(Protocol):
    """What a relay may have besides: several messages cost it less together than one by one."""

    def receive_many(self, peer: Peer, messages: Sequence[bytes], now: Instant) -> None:
        """Several messages arrived at once; the effects are those of ``receive`` for each."""
