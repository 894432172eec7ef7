"""Markers on the fields of a fact: journal column, privacy class, and what replaces an identity.

``core.facts`` declares each fact once. From that declaration derive the event (``journal.events``), its columns and
allow-list (``journal.contract``), the encoder (``engine.references``) and docs/journal.md.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, get_type_hints

__all__ = [
    "ATTEMPT",
    "BYTES_IN",
    "BYTES_OUT",
    "CONNECTION",
    "DURATION",
    "GROUP",
    "MESSAGE",
    "ORDER",
    "PEER",
    "RELAY",
    "TIMES",
    "Attribute",
    "Column",
    "Field",
    "Privacy",
    "Protection",
    "fields_of",
    "keyed",
    "operational",
    "public",
]


class Privacy(Enum):
    """The audience of a value."""

    PUBLIC = "public"
    """Everyone: kinds, counts, versions."""
    OPERATIONAL = "operational"
    """The operator: times, sizes, outcomes of single events."""
    PSEUDONYMOUS = "pseudonymous"
    """The operator, for a limited time: keyed references whose key rotates."""
    FORBIDDEN = "forbidden"
    """Never written. No column has this class; ``journal.contract.FORBIDDEN_NAMES`` lists what it covers."""


class Protection(Enum):
    """What the recorder writes in place of a value that must not reach the journal."""

    CONNECTION = "connection"
    """Random reference of an identified connection, 8 bytes; None for an anonymous one."""
    IDENTITY = "identity"
    """Keyed hash, 16 bytes, remembered for the next event of the same identity."""
    ONE_OFF = "one-off"
    """Keyed hash, 16 bytes, of what hardly comes again; not remembered."""
    IDENTITIES = "identities"
    """Keyed hashes of several identifiers, joined."""
    ATTEMPT = "attempt"
    """Random number of this run of the node and the number of the attempt, 16 bytes."""
    RELAY = "relay"
    """The name that a relay's own journal has, 16 hexadecimal digits."""
    CONTENT_TYPE = "content type"
    """The type if the specifications know it, else ``other``."""


@dataclass(frozen=True, slots=True)
class Column:
    """The field fills a column of the journal; ``journal.contract.COLUMNS`` has its type and privacy class."""

    name: str
    protection: Protection | None = None


@dataclass(frozen=True, slots=True)
class Attribute:
    """The field fills a key of the column ``attrs``."""

    name: str
    privacy: Privacy
    meaning: str
    protection: Protection | None = None


def operational(name: str, meaning: str) -> Attribute:
    """Return the attribute of a time, a size, a count or an outcome of a single event."""
    return Attribute(name, Privacy.OPERATIONAL, meaning)


def public(name: str, meaning: str) -> Attribute:
    """Return the attribute of a kind, a total or a version."""
    return Attribute(name, Privacy.PUBLIC, meaning)


def keyed(name: str, meaning: str, protection: Protection) -> Attribute:
    """Return the attribute of an identity, which a reference replaces."""
    return Attribute(name, Privacy.PSEUDONYMOUS, meaning, protection)


class Field(NamedTuple):
    """One field of a fact and its place in the journal."""

    name: str
    """In the event: the fact's own name, or that of the column or attribute when a reference replaces the value."""
    type: Any
    """In the event."""
    place: Column | Attribute


def fields_of(fact: type[Any]) -> tuple[Field, ...]:
    """Return the fields of a fact in their order; one without a marker fills the column of its own name."""
    return tuple(_field(name, hint) for name, hint in get_type_hints(fact, include_extras=True).items())


def _field(name: str, hint: Any) -> Field:
    markers = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Column | Attribute)]
    place = markers[0] if markers else Column(name)
    kind = hint.__origin__ if markers else hint
    return Field(place.name if place.protection else name, kind, place)


ATTEMPT: Final = keyed(
    "attempt_ref", "Identifies an attempt of one protocol, 32 hexadecimal digits.", Protection.ATTEMPT
)
CONNECTION: Final = Column("conn_ref", Protection.CONNECTION)
PEER: Final = Column("peer_ref", Protection.IDENTITY)
RELAY: Final = Column("relay_id", Protection.RELAY)
GROUP: Final = keyed("group_ref", "Keyed hash of a group's id, 32 hexadecimal digits.", Protection.IDENTITY)
MESSAGE: Final = keyed("message_ref", "Keyed hash of a group message's id, 32 hexadecimal digits.", Protection.IDENTITY)
BYTES_IN: Final = operational("bytes_in", "Bytes received on a connection or a link.")
BYTES_OUT: Final = operational("bytes_out", "Bytes sent on a connection or a link.")
DURATION: Final = operational("duration_us", "How long a subscription or a link lasted, microseconds.")
ORDER: Final = operational("order", "Place of a message in its group's order of delivery, 0 before that.")
TIMES: Final = operational("n", "How often it happened.")
