"""What is seen of the relays of an open Bhumi world, one named tuple for each thing.

Most are made by a ``Tap``, which stands between a relay and its host: it sees each frame that the relay is given and
each that it says, in their order. What devices and senders see of requests are the observations of ``observations``.
"""

from typing import NamedTuple

from waystation.sim.bhumi_open_records import Slip

__all__ = [
    "Answered",
    "Dialled",
    "Gave",
    "Handled",
    "LeftHanging",
    "LookedUp",
    "Made",
    "Parted",
    "Questioned",
    "RelayBegan",
    "Said",
    "Sized",
    "Tallied",
    "Took",
]


class RelayBegan(NamedTuple):
    """A relay started with empty memory."""

    node: int
    key: bytes
    """Its own key, the same in every life."""
    dials_private: bool
    """Whether its operator lets it dial private addresses that it has learnt."""


class Made(NamedTuple):
    """Somebody signed a presence of their own."""

    data: bytes
    """All 140 bytes."""
    is_honest: bool
    """Whether its owner keeps to the protocol."""


class Took(NamedTuple):
    """A relay was given a record."""

    node: int
    peer: int
    """Number of the connection at this relay; never used twice in one life."""
    slip: Slip
    wall_s: int
    """Unix seconds by this relay's clock."""
    is_gossip: bool
    """Whether it came in a GOSSIP, else in a frame of its own."""
    is_owner: bool
    """Whether this connection has proved to be the owner of the record."""
    is_sure: bool
    """Whether an honest peer gave it, over a connection on which it may: the relay has no reason to drop it."""


class Gave(NamedTuple):
    """A relay gave a record away."""

    node: int
    peer: int
    slip: Slip
    wall_s: int
    """Unix seconds by this relay's clock, when this turn of it began."""
    is_news: bool
    """Whether to another relay that has not asked for a sample in this turn, else as an answer."""


class Questioned(NamedTuple):
    """A relay was asked where somebody is, on a connection that may ask."""

    node: int
    peer: int
    identity: bytes


class Answered(NamedTuple):
    """A relay said where somebody is."""

    node: int
    peer: int
    identity: bytes
    slips: tuple[Slip, ...]
    """In the order of the answer."""
    wall_s: int


class Said(NamedTuple):
    """A relay sent an extension frame."""

    node: int
    peer: int
    kind: int
    """Type of the frame."""
    features: int | None
    """Feature bits that this connection has agreed on; None when the other side, or we on a connection that we dialled,
    never sent OPTIONS."""
    is_readable: bool
    """Whether the frame is laid out as the specification says."""


class Parted(NamedTuple):
    """A connection of a relay is over."""

    node: int
    peer: int


class Dialled(NamedTuple):
    """A relay wants a connection."""

    node: int
    url: str
    only_public: bool
    is_configured: bool


class LookedUp(NamedTuple):
    """Somebody was told by a relay where a device is."""

    node: int
    identity: bytes
    is_due: bool
    """Whether the device has been where it is for longer than a round of gossip."""
    is_right: bool
    """Whether the first hint names the relay where it is."""


class Handled(NamedTuple):
    """A device's application was asked."""

    identity: bytes
    preimage: bytes


class Tallied(NamedTuple):
    """At the end: how many look-ups were due, and right, in this world."""

    due: int
    right: int
    is_quiet: bool
    """Whether nothing ever went wrong in it."""


class Sized(NamedTuple):
    """How much of each bounded thing a relay holds."""

    node: int
    sizes: dict[str, int]
    peers_count: int
    """Configured ones, whose addresses stay for ever."""
    settled: bool
    """True when everybody has left, links between relays too, and every lifetime has passed."""


class LeftHanging(NamedTuple):
    """Somebody honest did not get what is due after the faults had ended."""

    what: str
