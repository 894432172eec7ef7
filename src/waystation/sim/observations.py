"""What the people of a Bhumi world see, one named tuple for each thing.

Observations are the only input of the invariants, so a checker can be tested with a list of them. They are made where
something is certain: ``Offered`` before the relay can know a commit, ``AnswerArrived`` and ``AskArrived`` when the node
has read the last byte.
"""

from typing import NamedTuple

from waystation.journal.events import Event

__all__ = [
    "AnswerArrived",
    "AskArrived",
    "Asked",
    "Concluded",
    "ConnectionEnded",
    "Delivered",
    "Everybody",
    "Journalled",
    "LifeBegan",
    "Observation",
    "Offered",
    "Probed",
    "Sized",
]


class LifeBegan(NamedTuple):
    """The node started; everything soft is gone."""

    life: int


class Offered(NamedTuple):
    """A device put commits on their way to the node; one for every I_AM and update."""

    connection: int
    """Number of the device's connection; numbers are never used twice."""
    recipient: bytes
    preimages: tuple[bytes, ...]
    """What the commits stand for."""


class Asked(NamedTuple):
    """A sender put a request on its way."""

    connection: int
    token: int
    """Number of the request on this connection, ascending."""
    recipient: bytes
    preimage: bytes
    payload: bytes
    """As on the wire."""


class AskArrived(NamedTuple):
    """The node has read the request of this connection and token."""

    connection: int
    token: int
    taken: bool
    """False when the node closed the connection at about the same time and may not have looked at it."""


class Delivered(NamedTuple):
    """A device received a request."""

    connection: int
    recipient: bytes
    preimage: bytes | None
    """None when the device never issued what the payload names."""
    payload: bytes


class AnswerArrived(NamedTuple):
    """The node has read an answer on the connection that got the request."""

    recipient: bytes
    preimage: bytes


class Concluded(NamedTuple):
    """A sender got a result."""

    connection: int
    token: int
    status: int
    answer: bytes
    """As the sender reads it, after opening the envelope."""
    expected: bytes
    """What the recipient answers to this preimage."""


class ConnectionEnded(NamedTuple):
    """A sender's connection ended; what it still waited for has no result."""

    connection: int
    reason: str
    """What ended it: self, peer, or the refusal with which the sender's machine closed."""
    faulted: bool
    """Whether its link misbehaved or is slow, or the node restarted, while it stood."""


class Sized(NamedTuple):
    """How much of each bounded thing the node holds."""

    sizes: dict[str, dict[str, int]]
    settled: bool
    """True when everybody has left and every lifetime has passed."""


class Journalled(NamedTuple):
    """The node recorded an event."""

    event: Event


class Everybody(NamedTuple):
    """Who takes part, for the checker of the journal."""

    references: frozenset[bytes]
    """16-byte references of every identity that may receive."""
    secrets: tuple[bytes, ...]
    """Must appear in no event, cut or whole, at least 16 bytes each: identities, and references of senders."""
    hosts: tuple[str, ...]
    """Addresses of senders; must appear in no event either."""


class Probed(NamedTuple):
    """After the faults ended: how a sender's last request ended; status None means not at all."""

    sender: int
    status: int | None


Observation = (
    LifeBegan
    | Offered
    | Asked
    | AskArrived
    | Delivered
    | AnswerArrived
    | Concluded
    | ConnectionEnded
    | Sized
    | Journalled
    | Everybody
    | Probed
)
