"""The configuration table ``[bsp]``: where the peer listens, and checks of the whole table.

``server.registry`` imports ``TABLE`` when a configuration is loaded, and ``BspHost`` reads the checked settings. The
protocol's own settings of the same table are declared in ``protocols.bsp.settings``.
"""

from dataclasses import dataclass
from typing import Final

from waystation.core.settings import setting
from waystation.protocols.bsp.limits import BspLimits
from waystation.protocols.bsp.settings import BspSettings
from waystation.server.box.limits import BOX, BoxLimits
from waystation.server.box.refusals import BoxRefusal
from waystation.server.bsp.checks import checks_of
from waystation.server.config.checks import check_path, check_plain, check_tls_files, run_checks
from waystation.server.config.protocol_table import ProtocolTable, WebPort
from waystation.server.config.settings import Address
from waystation.server.config.values import Config
from waystation.transport.addresses import EVERY_ADDRESS

__all__ = ["TABLE", "BspListenSettings"]


@dataclass(frozen=True, slots=True)
class BspListenSettings:
    """``[bsp]``, listener part; the protocol part is ``protocols.bsp.settings``."""

    enabled: bool = setting(default=True, help="Run the BSP peer.")
    tls: Address | None = setting(Address(EVERY_ADDRESS, 7443), "TLS 1.3; the peer proves its key inside.")
    plain: Address | None = setting(
        None, "Bare records of the peer that plain_peer names, without any proof; loopback only."
    )
    path: str = setting("/bsp", "Path of bsp+wss on the ports of MERK and Strata, where those speak TLS; empty is off.")
    box: Address | None = setting(
        None, "HTTP box for sealed files of people who are let in; HTTPS unless the address is loopback."
    )
    box_mib_max: int = setting(
        1_024,
        "Most bytes of files in the box.",
        unit="MiB",
        at_least=1,
        at_most=1_048_576,
        reload=True,
        refusal=BoxRefusal.BOX_FULL,
    )
    cert: str = setting("", "Certificate chain in PEM of this protocol alone; empty takes that of [node].", reload=True)
    key: str = setting("", "Key of the certificate in PEM; empty takes that of [node].", reload=True)


def _check(config: Config) -> None:
    listen, bsp = config.of(BspListenSettings), config.of(BspSettings)
    check_plain(config, "bsp.plain", listen.plain)
    check_tls_files(config, "bsp", listen)
    run_checks(config, "bsp", checks_of(bsp))
    if listen.plain is not None and not bsp.plain_peer:
        raise config.origin("bsp.plain").refuse(
            "bsp.plain takes bare records without any proof, so bsp.plain_peer must say whose they are: a peer's key"
        )
    if listen.path:
        check_path(config, "bsp.path", listen.path)


def _carried_path(config: Config, port: WebPort) -> str:
    """Return the path of bsp+wss on a web port: only where we know the certificate that its clients see."""
    listen = config.of(BspListenSettings)
    is_carried = listen.enabled and (port.tls or config.of(BspSettings).terminator_certificate)
    return listen.path if is_carried else ""


def _tls_listeners(listen: BspListenSettings) -> tuple[str, ...]:
    named = {"tls": listen.tls is not None, "box": listen.box is not None and not listen.box.is_loopback}
    return tuple(name for name, speaks_tls in named.items() if speaks_tls)


TABLE: Final = ProtocolTable(
    "bsp",
    BspListenSettings,
    BspSettings,
    _check,
    limits=BspLimits,
    more_limits=((BOX, BoxLimits),),
    carried_path=_carried_path,
    tls_listeners=_tls_listeners,
)
