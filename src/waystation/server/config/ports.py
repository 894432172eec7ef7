"""The listen addresses of a configuration, and the check that no two listeners want one port.

``config.load`` checks, so that ``serve`` fails with the name of the setting and not at the second bind; ``waystation
doctor`` tries to bind the addresses.
"""

import dataclasses
from itertools import combinations
from typing import Final

from waystation.server.config.settings import Address
from waystation.server.config.values import Config
from waystation.server.config.web_ports import shared_web_ports
from waystation.server.registry import protocol_tables
from waystation.transport.addresses import EVERY_ADDRESS

__all__ = ["DATAGRAM_LISTENERS", "check_ports_apart", "named_listeners"]

DATAGRAM_LISTENERS: Final = ("lprp.udp",)
"""Settings of listeners on UDP, whose ports are others than those of TCP."""

_WILDCARDS: Final = (EVERY_ADDRESS, "0.0.0.0", "::")  # noqa: S104 - what is compared, not bound


def named_listeners(config: Config) -> dict[str, Address]:
    """Return the address of every listener that is on, by its setting; one that several protocols share once."""
    named: dict[str, object] = {"admin.listen": config.admin.listen}
    for table in protocol_tables():
        listen = config.of(table.listen)
        if listen.enabled:
            named |= {f"{table.name}.{field.name}": getattr(listen, field.name) for field in dataclasses.fields(listen)}
    for group in shared_web_ports(config):
        for port in group[1:]:
            del named[f"{port.table}.ws"]
    return {name: address for name, address in named.items() if isinstance(address, Address)}


def check_ports_apart(config: Config) -> None:
    """Check that no two listeners want one port, where they cannot share it.

    Raises:
        ConfigError: Two do; names both settings.
    """
    streams = {name: at for name, at in named_listeners(config).items() if name not in DATAGRAM_LISTENERS and at.port}
    for (one, first), (other, second) in combinations(streams.items(), 2):
        if first.port == second.port and (first.host == second.host or _is_wildcard(first, second)):
            raise config.origin(one, other).refuse(
                f"{one} = {first} and {other} = {second} want one port, which only MERK and Strata can share; "
                "give each a port of its own"
            )


def _is_wildcard(first: Address, second: Address) -> bool:
    """Return whether one of them is every address, so that the other one's is among them."""
    return first.host in _WILDCARDS or second.host in _WILDCARDS
