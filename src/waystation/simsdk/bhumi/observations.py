"""What applications on all sides of a run did and saw; the invariants judge by this alone."""

from typing import NamedTuple

__all__ = ["Accepts", "Answers", "Asks", "Called", "Joined", "Named", "Peers", "Recovers", "Replied"]


class Named(NamedTuple):
    """A participant and its key."""

    name: str
    identity: bytes
    """32 bytes."""


class Accepts(NamedTuple):
    """A sender's application uses an invite of a device."""

    sender: str
    device: str


class Joined(NamedTuple):
    """A device reports that a peer has used an invite."""

    device: str
    alias: str
    peer: bytes
    """32 bytes."""


class Asks(NamedTuple):
    """A sender's application calls ``send``, with a content that no other call has."""

    sender: str
    device: str
    content: bytes


class Called(NamedTuple):
    """A device's handler is called."""

    device: str
    alias: str
    """Whose the SDK says that it is."""
    peer: bytes
    """32 bytes; likewise."""
    content: bytes


class Answers(NamedTuple):
    """A device's handler returns."""

    device: str
    content: bytes
    """Of the request."""
    answer: bytes


class Replied(NamedTuple):
    """A call of ``send`` returns."""

    content: bytes
    """Of the request."""
    outcome: str
    """Name of the ``Outcome``."""
    answer: bytes


class Recovers(NamedTuple):
    """``recover`` returns an outcome of an earlier call."""

    sender: str
    peer: bytes
    """32 bytes."""
    outcome: str
    answer: bytes


class Peers(NamedTuple):
    """Who a participant's folder says that it is paired with."""

    name: str
    identities: tuple[bytes, ...]
