"""Checks the settings of ``[node]`` about trusted proxies: networks are networks, listeners are those of this node.

``config.load`` calls it. A proxy that is trusted by mistake could name any client, so every unknown name is an error.
"""

from collections.abc import Collection
from dataclasses import fields
from typing import Any, Final, get_type_hints

from waystation.core.errors import LocalError
from waystation.core.network_set import parse_network
from waystation.server.config.settings import Address, NodeSettings

__all__ = ["check_proxy_protocol", "check_trusted_proxies", "tcp_listeners"]

_DATAGRAMS: Final = "udp"


def tcp_listeners(table: str, listen: type[Any]) -> list[str]:
    """Return the settings of a table that name the address of a TCP listener, such as "bhumi.tls"."""
    kinds = get_type_hints(listen)
    addresses = [field.name for field in fields(listen) if kinds[field.name] == Address | None]
    return [f"{table}.{name}" for name in addresses if name != _DATAGRAMS]


def check_trusted_proxies(settings: NodeSettings) -> None:
    """Check ``node.trusted_proxies``.

    Raises:
        LocalError: An entry is no network; begins with the name of the setting.
    """
    for text in settings.trusted_proxies:
        try:
            parse_network(text)
        except LocalError as error:
            raise LocalError(f"trusted_proxies: {error}") from error


def check_proxy_protocol(settings: NodeSettings, listeners: Collection[str]) -> None:
    """Check ``node.proxy_protocol``.

    Args:
        settings: Of ``[node]``.
        listeners: What ``tcp_listeners`` returns for all tables.

    Raises:
        LocalError: An entry is no listener, or nobody is trusted; begins with the name of the setting.
    """
    for name in settings.proxy_protocol:
        if name not in listeners:
            raise LocalError(f"proxy_protocol: {name!r} is no TCP listener; allowed: {', '.join(listeners)}")
    if settings.proxy_protocol and not settings.trusted_proxies:
        raise LocalError("proxy_protocol: only trusted proxies send a header; name them in node.trusted_proxies")
