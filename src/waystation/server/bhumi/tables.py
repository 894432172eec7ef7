"""The configuration table ``[bhumi]``: where the relay listens, and checks of the whole table.

``server.registry`` imports ``TABLE`` when a configuration is loaded, and ``BhumiHost`` reads the checked settings. The
relay's own settings of the same table are declared in ``protocols.bhumi``, which knows no addresses.
"""

from dataclasses import dataclass
from typing import Final

from waystation.core.errors import LocalError
from waystation.core.settings import setting
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.settings import BhumiSettings, check_address
from waystation.server.config.checks import check_plain, check_tls_files
from waystation.server.config.protocol_table import ProtocolTable
from waystation.server.config.settings import Address
from waystation.server.config.values import Config
from waystation.transport.addresses import EVERY_ADDRESS

__all__ = ["TABLE", "BhumiListenSettings"]


@dataclass(frozen=True, slots=True)
class BhumiListenSettings:
    """``[bhumi]``, listener part; the protocol part is ``protocols.bhumi.settings``."""

    enabled: bool = setting(default=True, help="Run the Bhumi relay.")
    tls: Address | None = setting(Address(EVERY_ADDRESS, 8443), "TLS 1.2 and 1.3.")
    plain: Address | None = setting(None, "Bare TCP for tests; loopback only.")
    upstream_listen: Address | None = setting(
        None, "For nodes of the original, which expect the preimage in every DELIVER; bare TCP on loopback, else TLS."
    )
    mdns: bool = setting(
        default=False, help="Announce this relay on the local network and find others there (mDNS, _bhumi._tcp)."
    )
    broadcast: bool = setting(
        default=False, help="Ask for relays on the local network by UDP broadcast too, and answer (port 4820)."
    )
    cert: str = setting("", "Certificate chain in PEM of this protocol alone; empty takes that of [node].", reload=True)
    key: str = setting("", "Key of the certificate in PEM; empty takes that of [node].", reload=True)


def _check(config: Config) -> None:
    listen, bhumi = config.of(BhumiListenSettings), config.of(BhumiSettings)
    check_plain(config, "bhumi.plain", listen.plain)
    check_tls_files(config, "bhumi", listen)
    for name, addresses in (("peers", bhumi.peers), ("advertise", [bhumi.advertise] if bhumi.advertise else [])):
        for address in addresses:
            try:
                check_address(address)
            except LocalError as error:
                raise config.origin(f"bhumi.{name}").refuse(f"bhumi.{name}: {error}") from error


def _tls_listeners(listen: BhumiListenSettings) -> tuple[str, ...]:
    upstream = listen.upstream_listen
    named = {"tls": listen.tls is not None, "upstream_listen": upstream is not None and not upstream.is_loopback}
    return tuple(name for name, speaks_tls in named.items() if speaks_tls)


TABLE: Final = ProtocolTable(
    "bhumi",
    BhumiListenSettings,
    BhumiSettings,
    _check,
    limits=BhumiLimits,
    tls_listeners=_tls_listeners,
    hides_senders=True,
)
