"""Observations of a simulated LPRP network: one named tuple per kind of event.

Hosts and clients emit them, the invariants check them. Most come from the wire: ``Received`` when a host gets a
datagram, ``Sent`` when it sends one. The others are client reports to applications, and the sizes and tenant data of a
host.
"""

from typing import Any, NamedTuple

from waystation.core.effects import Address
from waystation.sim.lprp.packets import Seen

__all__ = [
    "AppGot",
    "AppKept",
    "Clocked",
    "Confirmed",
    "Finished",
    "HandedBack",
    "HostStarted",
    "LeaseReported",
    "Made",
    "Measured",
    "Received",
    "Sending",
    "Sent",
    "WhitelistReported",
]


class HostStarted(NamedTuple):
    """A host started; everything soft is gone."""

    host: int
    wall_ms: int
    views: dict[bytes, dict[str, Any]]
    """What it shows of each tenant, by key."""


class Received(NamedTuple):
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


class Sent(NamedTuple):
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
    """What it sent before."""
    step_ms: int


class Made(NamedTuple):
    """An actor signed a 102, honest or not; before it is on any wire."""

    signature: bytes
    data: bytes


class Sending(NamedTuple):
    """An application asked its client to send."""

    sender: bytes
    host: int
    ticket: bytes


class Finished(NamedTuple):
    """A client reported the outcome of a packet."""

    sender: bytes
    host: int
    ticket: bytes
    outcome: str


class LeaseReported(NamedTuple):
    """A client reported that it has a lease."""

    key: bytes
    host: int


class WhitelistReported(NamedTuple):
    """A client reported that its host has these keys."""

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
    """The application confirmed to its client that a packet is durable."""

    key: bytes
    signature: bytes


class AppKept(NamedTuple):
    """The application has made a packet durable."""

    key: bytes
    signature: bytes


class Measured(NamedTuple):
    """How much a host has of everything, and what it shows of each tenant."""

    host: int
    wall_ms: int
    sizes: dict[str, int]
    views: dict[bytes, dict[str, Any]]
    phase: str
    """"faults", "healed" (every client was received and had time) or "settled" (every client has left for long)."""
