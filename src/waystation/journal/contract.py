"""Contract of the journal: its columns, their privacy classes, and the columns that each kind of event fills.

``segment`` encodes lines by it, and ``document`` renders docs/journal.md from it. The pipeline derives the line schema,
``bronze.events`` and the allow-list of attributes from it. Kinds and attributes derive from the declarations in
``core.facts``; undeclared data is never written to disk.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from waystation.core.fields import Attribute, Privacy, fields_of
from waystation.core.fields import Column as FactColumn
from waystation.journal.events import EVENTS, RECORDED, Event

__all__ = [
    "ATTRIBUTES",
    "COLUMNS",
    "FORBIDDEN_NAMES",
    "FORMAT_VERSION",
    "KINDS",
    "NODE_PROTOCOL",
    "TS_US_END",
    "Attribute",
    "Column",
    "Kind",
    "Privacy",
    "allowed_attributes",
    "kind_from",
    "kind_of",
    "line_ddl",
]

FORMAT_VERSION: Final = "1"
"""Version of the line format, written into every segment's first line."""

NODE_PROTOCOL: Final = "node"
"""The ``protocol`` of events about the node itself."""

TS_US_END: Final = 4_102_444_800_000_000
"""First time that is not believed: 2100-01-01, microseconds UTC."""

FORBIDDEN_NAMES: Final = frozenset(
    {
        "address",
        "body",
        "commit",
        "host",
        "identity",
        "ip",
        "message",
        "payload",
        "preimage",
        "public_key",
        "sender",
        "text",
    }
)
"""No column and no attribute may bear one of these names; a test holds the contract to it."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the journal."""

    name: str
    line_type: str
    """Spark SQL type as a JSON line carries it."""
    lake_type: str
    """Spark SQL type in ``bronze.events``."""
    nullable: bool
    privacy: Privacy
    meaning: str
    size_bytes: int | None = None
    """Length of a reference; a line carries it as hexadecimal text of twice this length."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of event: which column or attribute each of its fields goes to."""

    name: str
    event: type[Event]
    meaning: str
    columns: Mapping[str, str]
    """Event field to column, in the event's order."""
    attributes: Mapping[str, Attribute]
    """Event field to key of ``attrs``, likewise."""
    protocol: str | None
    """Fixed ``protocol`` of events that have no such field."""

    def columns_filled(self) -> tuple[str, ...]:
        """Return the columns an event of this kind may fill, in the order of ``COLUMNS``."""
        names = {"seq", "kind", *self.columns.values()}
        names |= ({"protocol"} if self.protocol else set()) | ({"attrs"} if self.attributes else set())
        return tuple(column.name for column in COLUMNS if column.name in names)

    def attribute_names(self) -> tuple[str, ...]:
        """Return the keys that ``attrs`` may hold, sorted."""
        return tuple(sorted(attribute.name for attribute in self.attributes.values()))


_OPERATIONAL, _PUBLIC, _PSEUDONYMOUS = Privacy.OPERATIONAL, Privacy.PUBLIC, Privacy.PSEUDONYMOUS

COLUMNS: Final = (
    Column("ts", "bigint", "timestamp", False, _OPERATIONAL, "When it happened, microseconds UTC."),
    Column("seq", "bigint", "bigint", False, _PUBLIC, "Number of the line in its segment, from 0."),
    Column("protocol", "string", "string", False, _PUBLIC, "Protocol; `web`: a port of several; `node`: the node."),
    Column("kind", "string", "string", False, _PUBLIC, "Kind of event."),
    Column("conn_ref", "string", "binary", True, _PSEUDONYMOUS, "Random reference of an identified connection.", 8),
    Column("peer_ref", "string", "binary", True, _PSEUDONYMOUS, "Keyed hash of the peer's or recipient's key.", 16),
    Column("relay_id", "string", "string", True, _PUBLIC, "Another relay the event is about, 16 hexadecimal digits."),
    Column("outcome", "string", "string", True, _OPERATIONAL, "How it ended, what became of it, or the verdict."),
    Column("reason", "string", "string", True, _OPERATIONAL, "Why; a word out of a closed set, never free text."),
    Column("latency_us", "bigint", "bigint", True, _OPERATIONAL, "Microseconds from the beginning to the outcome."),
    Column("bytes", "bigint", "bigint", True, _OPERATIONAL, "Size of what was carried, never its content."),
    Column(
        "attrs", "map<string,string>", "map<string,string>", True, _PSEUDONYMOUS, "Allow-listed extras of the kind."
    ),
)


def kind_from(fact: type[Any], event: type[Event]) -> Kind:
    """Return the kind of event that a fact's declaration amounts to."""
    fields = fields_of(fact)
    columns = {field.name: field.place.name for field in fields if isinstance(field.place, FactColumn)}
    attributes = {field.name: field.place for field in fields if isinstance(field.place, Attribute)}
    assert {*columns.values()} <= {column.name for column in COLUMNS}, f"{fact.__name__} names an unknown column"
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", fact.__name__).lower()
    meaning = (fact.__doc__ or "").partition("\n")[0]
    protocol = None if "protocol" in columns else NODE_PROTOCOL
    return Kind(name, event, meaning, {"ts_us": "ts", **columns}, attributes, protocol)


KINDS: Final = tuple(kind_from(fact, EVENTS[fact.__name__]) for fact in RECORDED)
ATTRIBUTES: Final = tuple(
    sorted({each for kind in KINDS for each in kind.attributes.values()}, key=lambda each: each.name)
)
_KIND_OF_EVENT: Final = {kind.event: kind for kind in KINDS}


def kind_of(event: Event) -> Kind:
    """Return the declaration of an event's kind."""
    return _KIND_OF_EVENT[type(event)]


def allowed_attributes() -> dict[str, tuple[str, ...]]:
    """Return for every kind the keys its ``attrs`` may hold, sorted."""
    return {kind.name: kind.attribute_names() for kind in KINDS}


def line_ddl() -> str:
    """Return the Spark schema of one JSON line, all columns nullable: what is missing is found by the ingest step."""
    return ", ".join(f"`{column.name}` {column.line_type}" for column in COLUMNS)
