"""The configuration table ``[merk]``: where the relay listens, and checks of the whole table.

``server.registry`` imports ``TABLE`` when a configuration is loaded, and ``MerkHost`` reads the checked settings. The
protocol's own settings of the same table are declared in ``protocols.merk.settings``.
"""

from dataclasses import dataclass
from typing import Final

from waystation.core.errors import LocalError
from waystation.core.settings import setting
from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.settings import MerkSettings, check_url
from waystation.server.config.checks import check_path, check_tls_files
from waystation.server.config.protocol_table import ProtocolTable, WebPort
from waystation.server.config.settings import Address
from waystation.server.config.values import Config
from waystation.transport.addresses import EVERY_ADDRESS

_PATH_SETTINGS: Final = ("merk.paths", "merk.mesh_path")

__all__ = ["TABLE", "MerkListenSettings"]


@dataclass(frozen=True, slots=True)
class MerkListenSettings:
    """``[merk]``, listener part; the protocol part is ``protocols.merk.settings``."""

    enabled: bool = setting(default=True, help="Run the MERK relay.")
    ws: Address | None = setting(
        Address(EVERY_ADDRESS, 8080),
        "WebSocket and plain HTTP of the relay; the address of strata.ws makes them share it.",
    )
    paths: list[str] = setting(["/", "/merk"], "Paths of the WebSocket.")
    mesh_path: str = setting(
        "/mesh", "Path for nodes of the original, which expect to be greeted by nobody; empty is off."
    )
    tls: bool = setting(default=False, help="Speak wss:// and https:// instead of ws:// and http://.")
    cert: str = setting("", "Certificate chain in PEM of this protocol alone; empty takes that of [node].", reload=True)
    key: str = setting("", "Key of the certificate in PEM; empty takes that of [node].", reload=True)


def _check(config: Config) -> None:
    listen, merk = config.of(MerkListenSettings), config.of(MerkSettings)
    check_tls_files(config, "merk", listen)
    for path in listen.paths:
        check_path(config, "merk.paths", path)
    if not listen.paths:
        raise config.origin("merk.paths").refuse('merk.paths is empty; allowed: at least one path, such as "/merk"')
    if listen.mesh_path:
        check_path(config, "merk.mesh_path", listen.mesh_path)
    bytes_burst = config.of(MerkLimits).bytes_burst
    if bytes_burst < merk.max_frame_bytes:
        raise config.origin("limits.merk.bytes_burst", "merk.max_frame_bytes").refuse(
            f"limits.merk.bytes_burst = {bytes_burst} lets no frame of merk.max_frame_bytes pass; allowed: as many"
        )
    paths = _paths(listen)
    if len(set(paths)) < len(paths):
        origin = config.origin(*_PATH_SETTINGS)
        raise origin.refuse(f"merk.paths and merk.mesh_path name a path twice: {', '.join(paths)}")
    for name, urls in (("peers", merk.peers), ("public_url", [merk.public_url] if merk.public_url else [])):
        for url in urls:
            try:
                check_url(url)
            except LocalError as error:
                raise config.origin(f"merk.{name}").refuse(f"merk.{name}: {error}") from error


def _web_port(config: Config) -> WebPort | None:
    listen = config.of(MerkListenSettings)
    if not listen.enabled or listen.ws is None:
        return None
    return WebPort("merk", listen.ws, _paths(listen), _PATH_SETTINGS, listen.tls, has_page=True)


def _paths(listen: MerkListenSettings) -> tuple[str, ...]:
    """Return every path of the listener, that for original nodes last."""
    return (*listen.paths, *([listen.mesh_path] if listen.mesh_path else []))


TABLE: Final = ProtocolTable("merk", MerkListenSettings, MerkSettings, _check, _web_port, MerkLimits)
