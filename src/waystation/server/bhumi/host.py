"""Runs the Bhumi relay in a node: its listeners, its links to other relays, and its discovery on the local network.

The node builds it from ``server.registry`` where ``[bhumi]`` is on and calls the methods of ``server.hosted``.
Everything that needs sockets, files or logs is here; the relay in ``protocols.bhumi`` decides.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.relay_addresses import is_open_place
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.rules.twins import Twins
from waystation.server.bhumi.discovery import BhumiDiscovery
from waystation.server.bhumi.outlet import BhumiOutlet
from waystation.server.bhumi.tables import BhumiListenSettings
from waystation.server.dialling.dialler import Outlet
from waystation.server.hosted import Authorities, HostContext, PipePort, ProtocolHost, TlsRules
from waystation.server.hub import Hub, monotonic_now

__all__ = ["HOST", "UPSTREAM_ENDPOINT", "BhumiHost", "warn_of_private_advert"]

UPSTREAM_ENDPOINT: Final = "upstream"
_FEATURES: Final = ("preimage", "binding", "i_am_ok", "watch", "authority")  # of OPTIONS, BHUMI-X

_log = structlog.get_logger("waystation.server")


class BhumiHost(ProtocolHost):
    """Hosts ``BhumiRelay``."""

    relay: BhumiRelay

    has_view = True

    def __init__(self, context: HostContext) -> None:
        super().__init__(context)
        self._listen = context.config.of(BhumiListenSettings)
        self._settings = context.config.of(BhumiSettings)
        self.relay = BhumiRelay(
            self._settings,
            context.rng,
            limits=context.config.of(BhumiLimits),
            rate_limits=context.rate_limits,
            admits=context.admits,
            is_unlimited=context.access.is_unlimited,
            key_pair=context.key_pair,
        )
        self._discovery: BhumiDiscovery | None = None
        self._hub: Hub | None = None

    def pipe_ports(self) -> Sequence[PipePort]:
        """Return the TLS port, the bare one for tests, and the one for nodes of the original."""
        listen, ports = self._listen, []
        if listen.tls is not None:
            ports.append(PipePort("bhumi", "bhumi.tls", listen.tls, TlsRules()))
        if listen.plain is not None:
            ports.append(PipePort("bhumi_plain", "bhumi.plain", listen.plain, None))
        if (upstream := listen.upstream_listen) is not None:
            local = upstream.is_loopback
            tls = None if local else TlsRules()
            head = ("bhumi_upstream", "bhumi.upstream_listen", upstream, tls, UPSTREAM_ENDPOINT)
            # BHUMI-ORIGINAL: nodes of the original speak no TLS, so that those elsewhere come through a forwarder.
            ports.append(PipePort(*head, is_forwarded=local, acks_at_once=True))
        return ports

    def outlet(self) -> Outlet:
        """Return what dials other relays."""
        return BhumiOutlet(self._settings.peers_ca, self.context.silence)

    def use_authorities(self, authorities: Authorities) -> None:
        """Have devices shown the authorities of the certificate, those that are connected too."""
        self.relay.authorities.use(authorities("bhumi"))
        if self._hub is not None:
            self._hub.plan_turn()

    def start(self, hub: Hub, urls: Mapping[str, str]) -> None:
        """Announce the relay on the local network, where that is switched on."""
        self._hub = hub
        warn_of_private_advert(self._settings)
        self._discovery = BhumiDiscovery(self.relay, self.context.key_pair, self._listen, hub.plan_turn)
        self._discovery.start(urls)

    async def close(self) -> None:
        """Withdraw the announcement."""
        if self._discovery is not None:
            await self._discovery.close()

    def twins(self) -> Twins | None:
        """Return what the relay's links have met."""
        return self.relay.twins

    def view(self) -> dict[str, Any]:
        """Return what the relay knows of other relays."""
        return self.relay.view(monotonic_now())

    def describe(self, ports: Mapping[str, int]) -> dict[str, Any]:
        """Return address, features and limits."""
        settings = self._settings
        return {
            "url": settings.advertise or None,
            "port": ports.get("bhumi"),
            "version": 2,
            "features": [
                *_FEATURES,
                *(["presence"] if settings.gossip else []),
                *(["qa"] if settings.qa else []),
            ],
            "limits": {
                "max_payload_bytes": settings.max_payload_bytes,
                "ack_timeout_ms": settings.ack_timeout_ms,
                "response_ttl_ms": settings.response_ttl_ms,
            },
        }


def warn_of_private_advert(settings: BhumiSettings) -> None:
    """Log a warning when other relays will reject the address that this relay advertises."""
    if settings.gossip and settings.advertise and not (settings.dials_private or is_open_place(settings.advertise)):
        _log.warning(
            "bhumi.advertise_private",
            address=settings.advertise,
            error="[bhumi] advertise names a private place, which relays and clients leave out; in a network of one's "
            "own set [bhumi] dials_private = true on every relay, and call clients with --dials-private",
        )


HOST: Final = BhumiHost
