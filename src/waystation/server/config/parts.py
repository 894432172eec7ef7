"""Lists every settings class of the node with its table: the node's own and those of each protocol.

Loading, the sample file and the reference page go through this list, so a setting exists in all of them or in none.
"""

import dataclasses
from typing import Any, Final, NamedTuple

from waystation.engine.admission import AdmissionLimits
from waystation.server.config.settings import (
    AccessSettings,
    AdminSettings,
    BusSettings,
    JournalSettings,
    LimitSettings,
    NodeSettings,
    PolicySettings,
    StoreSettings,
)
from waystation.server.registry import protocol_tables

__all__ = ["PARTS", "TABLES", "Part", "fields_of"]


class Part(NamedTuple):
    """One settings dataclass and its place; a table is the union of its parts."""

    table: str
    """Table of the file; a dot joins the names of one inside another."""
    owner: type[Any]


PARTS: Final = (
    Part("node", NodeSettings),
    Part("store", StoreSettings),
    Part("bus", BusSettings),
    Part("journal", JournalSettings),
    Part("policy", PolicySettings),
    Part("access", AccessSettings),
    Part("admin", AdminSettings),
    *(Part(table.name, owner) for table in protocol_tables() for owner in (table.listen, table.settings)),
    Part("limits", LimitSettings),
    Part("limits", AdmissionLimits),
    *(Part(f"limits.{table.name}", table.limits) for table in protocol_tables() if table.limits is not None),
    *(Part(f"limits.{name}", owner) for table in protocol_tables() for name, owner in table.more_limits),
)
TABLES: Final = tuple(dict.fromkeys(part.table for part in PARTS))


def fields_of(table: str) -> list[tuple[Part, dataclasses.Field[Any]]]:
    """Return the fields of one table in their order, each with the part that declares it."""
    return [(part, field) for part in PARTS if part.table == table for field in dataclasses.fields(part.owner)]
