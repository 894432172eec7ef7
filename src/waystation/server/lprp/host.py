"""Runs the LPRP host in a node: its UDP port, its list of tenants, and its public description for clients.

The node builds it where ``[lprp]`` is on and calls the methods of ``server.hosted``. LPRP alone has datagrams and no
connections, so it names a UDP address in place of endpoints.
"""

from collections.abc import Mapping
from typing import Any, Final

from waystation.core.ids import encode_id52
from waystation.protocols.lprp.limits import LprpLimits
from waystation.protocols.lprp.relay.machine import LprpRelay
from waystation.protocols.lprp.settings import LprpSettings
from waystation.server.config.settings import Address
from waystation.server.hosted import HostContext, ProtocolHost
from waystation.server.hub import monotonic_now
from waystation.server.lprp.tables import LprpListenSettings

__all__ = ["HOST", "LprpHost"]


class LprpHost(ProtocolHost):
    """Hosts ``LprpRelay``."""

    relay: LprpRelay

    def __init__(self, context: HostContext) -> None:
        super().__init__(context)
        self.relay = LprpRelay(
            context.config.of(LprpSettings),
            context.key_pair,
            context.store,
            limits=context.config.of(LprpLimits),
            rate_limits=context.rate_limits,
            admits=context.admits,
            is_unlimited=context.access.is_unlimited,
            extra_bits=context.policy.extra_bits,
        )

    def datagram_address(self) -> Address | None:
        """Return the UDP port; it stays open while the node drains (LPRP-PORT)."""
        return self.context.config.of(LprpListenSettings).udp

    def tenants(self, count_max: int) -> tuple[list[dict[str, Any]], int]:
        """Return the tenants, oldest lease first, and how many there are."""
        sizes = self.relay.sizes()
        return self.relay.tenants(monotonic_now(), count_max), sizes["tenants"] + sizes["leases_kept"]

    def describe(self, ports: Mapping[str, int]) -> dict[str, Any]:
        """Return what clients must know; in the address ``HOST`` is to be replaced by this node's name."""
        port, info = ports.get("lprp"), self.relay.info()
        query = f"lease_ms={info['lease_ms']}&byte_order={info['byte_order']}"
        address = f"lprp://{encode_id52(self.context.key_pair.public)}@HOST:{port}?{query}"
        return {"url": None, "port": port, "address": address, **info}


HOST: Final = LprpHost
