"""What happens in a simulated LPRP town, one named tuple for each thing.

Most of it stands on the wires: ``Heard`` when a host is handed a datagram, ``Said`` when it hands one to the network.
The rest is what applications are told, and what a host shows when asked.
"""

from typing import Any, NamedTuple

from waystation.core.effects import Address
from waystation.sim.lprp_packets import Seen

__all__ = [
    "AppGot",
    "AppKept",
    "Clocked",
    "Confirmed",
    "Finished",
    "HandedBack",
    "Heard",
    "HostBegan",
    "LeaseTold",
    "LeftHanging",
    "Made",
    "Measured",
    "Said",
    "Sending",
    "Sized",
    "WhitelistTold",
]


class HostBegan(NamedTuple):
    """A host started; everything soft is gone."""

    host: int
    life: int
    wall_ms: int
    views: dict[bytes, dict[str, Any]]
    """What it shows of each tenant, by key."""


class Heard(NamedTuple):
    """A host was handed a datagram."""

    host: int
    address: Address
    """Where it claims to come from."""
    size: int
    packet: Seen | None
    """None when length, command, direction or clock are wrong: no host looks further."""
    is_signed: bool
    wall_ms: int
    """The host's clock."""


class Said(NamedTuple):
    """A host handed a datagram to the network."""

    host: int
    address: Address
    packet: Seen | None
    """None when it is too short or too long for anything."""
    size: int
    is_signed: bool
    """By the host itself."""
    is_stored: bool
    """Of a 202: whether the packet that it promises was on disk at this instant."""
    wall_ms: int


class Clocked(NamedTuple):
    """The clock of a host was set."""

    host: int
    wall_ms: int
    """What it said before."""
    step_ms: int


class Made(NamedTuple):
    """Somebody signed a 102, honest or not; before it is on any wire."""

    signature: bytes
    data: bytes


class Sending(NamedTuple):
    """An application asked its client to send."""

    sender: bytes
    host: int
    ticket: bytes


class Finished(NamedTuple):
    """A client told what became of a packet."""

    sender: bytes
    host: int
    ticket: bytes
    outcome: str


class LeaseTold(NamedTuple):
    """A client told that it has a lease."""

    key: bytes
    host: int


class WhitelistTold(NamedTuple):
    """A client told that its host has these keys."""

    key: bytes
    host: int
    keys: tuple[bytes, ...]
    """Ascending."""


class AppGot(NamedTuple):
    """A client handed a packet to its application."""

    key: bytes
    host: int
    life: int
    """Number of the client's life at this host."""
    data: bytes


class HandedBack(NamedTuple):
    """The application could not keep a packet."""

    key: bytes
    host: int
    life: int
    signature: bytes


class Confirmed(NamedTuple):
    """The application told its client that a packet is durable."""

    key: bytes
    signature: bytes


class AppKept(NamedTuple):
    """The application has made a packet durable."""

    key: bytes
    signature: bytes


class Sized(NamedTuple):
    """How much a host has of everything, before it hears the next datagrams."""

    host: int
    sizes: dict[str, int]


class Measured(NamedTuple):
    """How much a host has of everything, and what it shows of each tenant."""

    host: int
    wall_ms: int
    sizes: dict[str, int]
    views: dict[bytes, dict[str, Any]]
    phase: str
    """"trouble", "healed" (everybody was heard and had time) or "settled" (everybody has left for long)."""


class LeftHanging(NamedTuple):
    """Somebody honest did not get what was due after the faults had ended."""

    what: str
