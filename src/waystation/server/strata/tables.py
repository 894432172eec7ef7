"""The configuration table ``[strata]``: where the relay listens, and checks of the whole table.

``server.registry`` imports ``TABLE`` when a configuration is loaded, and ``StrataHost`` reads the checked settings. The
protocol's own settings of the same table are declared in ``protocols.strata.settings``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from waystation.core.settings import setting
from waystation.protocols.strata.limits import StrataLimits
from waystation.protocols.strata.relay.limits import Kind, Rank, rate_name, rate_of
from waystation.protocols.strata.settings import (
    StrataSettings,
    check_capabilities,
    read_roots,
    read_static_dids,
    read_upstreams,
)
from waystation.server.config.checks import check_path, check_tls_files, run_checks
from waystation.server.config.protocol_table import ProtocolTable, WebPort
from waystation.server.config.settings import Address
from waystation.server.config.values import Config
from waystation.transport.addresses import EVERY_ADDRESS

__all__ = ["TABLE", "StrataListenSettings"]

_ENVELOPE_BYTES: Final = 1_024  # more than what a message has around its packet


@dataclass(frozen=True, slots=True)
class StrataListenSettings:
    """``[strata]``, listener part; the protocol part is ``protocols.strata.settings``."""

    enabled: bool = setting(default=True, help="Run the Strata relay.")
    ws: Address | None = setting(Address(EVERY_ADDRESS, 8080), "WebSocket and plain HTTP of the relay.")
    path: str = setting("/strata", "Path of the WebSocket.")
    tls: bool = setting(default=False, help="Speak wss:// and https:// instead of ws:// and http://.")
    cert: str = setting("", "Certificate chain in PEM of this protocol alone; empty takes that of [node].", reload=True)
    key: str = setting("", "Key of the certificate in PEM; empty takes that of [node].", reload=True)


def _check(config: Config) -> None:
    listen, strata = config.of(StrataListenSettings), config.of(StrataSettings)
    check_tls_files(config, "strata", listen)
    checks: dict[str, Callable[[], object]] = {
        "roots": lambda: read_roots(strata.roots),
        "static_dids": lambda: read_static_dids(strata.static_dids),
        "upstreams": lambda: read_upstreams(strata.upstreams),
        "anonymous": lambda: check_capabilities("anonymous", strata.anonymous),
        "auth_grants": lambda: check_capabilities("auth_grants", strata.auth_grants),
    }
    run_checks(config, "strata", checks)
    if strata.public_url and not strata.public_url.startswith(("ws://", "wss://")):
        origin = config.origin("strata.public_url")
        raise origin.refuse(f"strata.public_url = {strata.public_url!r} is not a ws:// or wss:// address")
    check_path(config, "strata.path", listen.path)
    _check_limits(config)


def _check_limits(config: Config) -> None:
    """Refuse an allowance that would never let the largest packet pass, however long its sender waits."""
    limits, packet_bytes = config.of(StrataLimits), config.of(StrataSettings).max_packet_bytes
    needed = packet_bytes + _ENVELOPE_BYTES
    for rank in Rank:
        name, allowance = f"limits.strata.{rate_name(rank, Kind.BYTES)}", rate_of(limits, rank, Kind.BYTES)
        if allowance < needed:
            raise config.origin(name, "strata.max_packet_bytes").refuse(
                f"{name} = {allowance} lets no packet of strata.max_packet_bytes = {packet_bytes} pass; "
                f"allowed: at least {needed}"
            )


def _web_port(config: Config) -> WebPort | None:
    listen = config.of(StrataListenSettings)
    if not listen.enabled or listen.ws is None:
        return None
    return WebPort("strata", listen.ws, (listen.path,), ("strata.path",), listen.tls, url_path=listen.path)


TABLE: Final = ProtocolTable("strata", StrataListenSettings, StrataSettings, _check, _web_port, StrataLimits)
