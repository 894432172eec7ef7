"""``PROTOCOLS``: the names of the protocols that this server hosts, and access to their tables and hosts.

To add or delete a protocol, add or delete its folders and its line here. No other server module names a protocol. The
others use two objects of each ``server/<protocol>/``: ``TABLE`` in ``tables.py`` for the configuration
(``config.protocol_table``), and ``HOST`` in ``host.py`` for the running node (``hosted``). Both are imported by name,
so that reading a configuration imports no relay.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from waystation.server.config.protocol_table import ProtocolTable

__all__ = ["PROTOCOLS", "hiding_protocols", "packet_check", "protocol_table", "protocol_tables"]

PROTOCOLS: Final = (
    "bhumi",
    "bsp",
    "lprp",
    "merk",
    "strata",
)
"""Each has its table in the configuration, in this order."""


@cache
def protocol_table(name: str) -> ProtocolTable:
    """Return what a protocol adds to the configuration."""
    table: ProtocolTable = import_module(f"waystation.server.{name}.tables").TABLE
    return table


def protocol_tables() -> tuple[ProtocolTable, ...]:
    """Return what each protocol adds to the configuration, in the order of ``PROTOCOLS``."""
    return tuple(map(protocol_table, PROTOCOLS))


@cache
def hiding_protocols() -> frozenset[str]:
    """Return the protocols whose senders no view and no log shows with their address (NODE-VIEW)."""
    return frozenset(table.name for table in protocol_tables() if table.hides_senders)


def packet_check() -> Callable[[bytes], bool]:
    """Return what judges a stored packet by its identifier: ``stored_packets.is_whole`` of the protocol that has it."""
    for name in PROTOCOLS:
        module = f"waystation.server.{name}.stored_packets"
        if find_spec(module) is not None:
            check: Callable[[bytes], bool] = import_module(module).is_whole
            return check
    return lambda _canonical: True
