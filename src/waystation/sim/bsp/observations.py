"""Observations of a simulated BSP network: one named tuple per kind of event.

Hosts and hostile peers emit them, the invariants check them. ``host`` is the name of an honest device; hostile peers
have names too.
"""

from typing import NamedTuple

from waystation.sim.bsp.records import SeenRecord

__all__ = ["Compared", "LineUp", "Made", "Received", "Reported", "Sent", "Shared", "Started", "State"]


class State(NamedTuple):
    """What a device shows of one message."""

    state: int
    """1 pending, 2 delivered, 3 invalid."""
    order: int
    has_body: bool


class Made(NamedTuple):
    """Somebody made a message, honest or not; before it is on any wire."""

    group_id: bytes
    message_id: bytes
    body: bytes
    has_dependencies: bool
    """Whether the format of its group is deps_v1."""


class Shared(NamedTuple):
    """A device shares a group with a peer from now on, or no longer."""

    host: str
    peer: str
    group_id: bytes
    is_shared: bool


class Started(NamedTuple):
    """A device started from its store, which may be empty."""

    host: str
    states: dict[bytes, State]
    """By message, of all groups."""


class LineUp(NamedTuple):
    """A device was notified of a new connection to a peer."""

    host: str
    peer: str


class Received(NamedTuple):
    """A device was handed a record."""

    host: str
    peer: str
    record: SeenRecord


class Sent(NamedTuple):
    """A device handed a record to the connection."""

    host: str
    peer: str
    record: SeenRecord
    mode: str
    """What the device is set to use."""
    unstored: tuple[bytes, ...]
    """Identifiers that were not in the store of the device at this instant; nothing of a REQUEST."""


class Reported(NamedTuple):
    """A device reported to its application that a message is delivered."""

    host: str
    group_id: bytes
    message_id: bytes
    order: int
    body: bytes | None
    """What the device hands out for it at this instant."""


class Compared(NamedTuple):
    """What all honest members of a group have, when they have had the time to agree."""

    group_id: bytes
    sets: dict[str, dict[bytes, State]]
    """By host."""
