"""``ProtocolTable``: one protocol's part of the configuration, declared in ``server/<protocol>/tables.py``.

``config.load`` reads these declarations and knows no protocol by name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from waystation.server.config.settings import Address
from waystation.server.config.values import Config

__all__ = ["ProtocolTable", "WebPort"]


class WebPort(NamedTuple):
    """The port of WebSockets and plain GETs that a table asks for; equal addresses share one listener."""

    table: str
    address: Address
    paths: tuple[str, ...]
    """Of its WebSockets."""
    path_settings: tuple[str, ...]
    """The settings that name those paths, as "table.key"."""
    tls: bool
    url_path: str = ""
    """What follows the address in the URL that the node prints."""
    has_page: bool = False
    """Whether this is where people find the public page."""


def _no_web_port(_config: Config) -> WebPort | None:
    return None


def _no_tls_listeners(_listen: Any) -> tuple[str, ...]:
    return ()


def _no_carried_path(_config: Config, _port: WebPort) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class ProtocolTable:
    """One protocol's table of the file: two settings classes, and what no single value shows."""

    name: str
    """Of the protocol and of its table."""
    listen: type[Any]
    """Settings of its listeners: has ``enabled``, and ``cert`` and ``key`` where it speaks TLS."""
    settings: type[Any]
    """Settings of the protocol itself."""
    check: Callable[[Config], None]
    """Raises ConfigError, with its origin, for a value that is not allowed."""
    web_port: Callable[[Config], WebPort | None] = _no_web_port
    """Returns the WebSocket port that a checked table asks for, None without one."""
    limits: type[Any] | None = None
    """Limits of the protocol, the table ``[limits.<name>]``; each field is a ``core.settings.limit``."""
    more_limits: tuple[tuple[str, type[Any]], ...] = ()
    """Tables ``[limits.<name>]`` of what else it hosts, by that name, under which ``ProtocolHost.sizes`` counts."""
    carried_path: Callable[[Config, WebPort], str] = _no_carried_path
    """Returns the path, named by the setting ``path``, that it takes on a web port of another table; "" for none."""
    tls_listeners: Callable[[Any], tuple[str, ...]] = _no_tls_listeners
    """Returns the addresses, by their keys in the table, that speak TLS, without the web port."""
    hides_senders: bool = False
    """Whether a connection that proves no identity may be a sender, so that views and logs never show its address."""
