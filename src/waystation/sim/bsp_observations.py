"""What happens in a simulated BSP village, one named tuple for each thing.

``party`` is the name of a device that keeps to the protocol; the hostile have names, too, but nobody looks into them.
"""

from typing import NamedTuple

from waystation.sim.bsp_records import SeenRecord

__all__ = ["Began", "Heard", "LeftHanging", "LineUp", "Made", "Said", "Shared", "Sized", "State", "Stood", "Told"]


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

    party: str
    peer: str
    group_id: bytes
    is_shared: bool


class Began(NamedTuple):
    """A device started from its store, which may be empty."""

    party: str
    states: dict[bytes, State]
    """By message, of all groups."""


class LineUp(NamedTuple):
    """A device was told of a new connection to a peer."""

    party: str
    peer: str


class Heard(NamedTuple):
    """A device was handed a record."""

    party: str
    peer: str
    record: SeenRecord


class Said(NamedTuple):
    """A device handed a record to the line."""

    party: str
    peer: str
    record: SeenRecord
    mode: str
    """What the device was told to use."""
    unstored: tuple[bytes, ...]
    """Identifiers that were not in the store of the device at this instant; nothing of a REQUEST."""


class Told(NamedTuple):
    """A device told its application that a message is delivered."""

    party: str
    group_id: bytes
    message_id: bytes
    order: int
    body: bytes | None
    """What the device hands out for it at this instant."""


class Sized(NamedTuple):
    """What a device holds."""

    party: str
    sizes: dict[str, int]


class Stood(NamedTuple):
    """What all honest members of a group have, when they have had the time to agree."""

    group_id: bytes
    sets: dict[str, dict[bytes, State]]
    """By party."""


class LeftHanging(NamedTuple):
    """Something that was due did not happen."""

    what: str
