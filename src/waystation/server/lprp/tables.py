"""The configuration table ``[lprp]``: the UDP address on which the host listens.

``server.registry`` imports ``TABLE`` when a configuration is loaded. The protocol's own settings of the same table are
declared in ``protocols.lprp.settings``.
"""

from dataclasses import dataclass
from typing import Final

from waystation.core.settings import setting
from waystation.protocols.lprp.limits import LprpLimits
from waystation.protocols.lprp.settings import LprpSettings
from waystation.server.config.protocol_table import ProtocolTable
from waystation.server.config.settings import Address
from waystation.server.config.values import Config
from waystation.transport.addresses import EVERY_ADDRESS

__all__ = ["TABLE", "LprpListenSettings"]


@dataclass(frozen=True, slots=True)
class LprpListenSettings:
    """``[lprp]``, listener part; the protocol part is ``protocols.lprp.settings``."""

    enabled: bool = setting(default=True, help="Run the LPRP host.")
    udp: Address | None = setting(Address(EVERY_ADDRESS, 4810), "UDP; answers leave from the address that was asked.")


def _check(_config: Config) -> None:
    """Accept every table: each value of LPRP can be judged alone."""


TABLE: Final = ProtocolTable("lprp", LprpListenSettings, LprpSettings, _check, limits=LprpLimits)
