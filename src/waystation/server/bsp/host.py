"""Runs the BSP peer in a node: its TLS port, its path on other protocols' web ports, dialled peers, and the blind box.

The node builds it where ``[bsp]`` is on and calls the methods of ``server.hosted``. A peer proves its key over the hash
of the server certificate it saw, so each endpoint has its own certificate hash. The endpoint ``""`` has that of the TLS
port, ``wss_<table>`` that of a table's web port.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from waystation.core.ids import PublicKey, encode_id52
from waystation.protocols.bsp.limits import BspLimits
from waystation.protocols.bsp.relay.machine import BspRelay
from waystation.protocols.bsp.settings import BspSettings
from waystation.server.box.limits import BOX, BoxLimits
from waystation.server.box.server import box_port
from waystation.server.box.store import BoxStore
from waystation.server.bsp.checks import names_itself
from waystation.server.bsp.outlet import BSP_ALPN, BspOutlet
from waystation.server.bsp.tables import BspListenSettings
from waystation.server.config.values import Config
from waystation.server.config.web_ports import carried_paths, shared_web_ports
from waystation.server.dialling.dialler import Outlet
from waystation.server.hosted import HostContext, LeafHashes, MakeContext, MakeSink, PipePort, ProtocolHost, TlsRules
from waystation.server.http.port import HttpPort
from waystation.server.hub import monotonic_now
from waystation.transport.websocket.site import Endpoint

__all__ = ["HOST", "PLAIN_ENDPOINT", "BspHost"]

PLAIN_ENDPOINT: Final = "plain"
_BODY_BYTES_MAX: Final = 32_768  # specs/bsp.md 1
_MIB_BITS: Final = 20


class BspHost(ProtocolHost):
    """Hosts ``BspRelay`` and the box."""

    relay: BspRelay

    has_view = True

    def __init__(self, context: HostContext) -> None:
        super().__init__(context)
        config = context.config
        self._listen, self._settings = config.of(BspListenSettings), config.of(BspSettings)
        _check_own_key(config, context.key_pair.public)
        self.relay = BspRelay(
            self._settings,
            context.key_pair,
            context.store,
            context.rng,
            limits=config.of(BspLimits),
            rate_limits=context.rate_limits,
            admits=context.admits,
            is_unlimited=context.access.is_unlimited,
        )
        self._carriers = [
            port for group in shared_web_ports(config) for port in group if "bsp" in carried_paths(config, port)
        ]
        self._box: HttpPort | None = None
        self._box_store: BoxStore | None = None

    def reload(self, config: Config) -> None:
        """Use the quotas of groups and owners, and the limits of the box, as they are now."""
        self.relay.use_settings(config.of(BspSettings))
        if self._box_store is not None:
            self._box_store.use_limits(config.of(BoxLimits), config.of(BspListenSettings).box_mib_max << _MIB_BITS)

    def pipe_ports(self) -> Sequence[PipePort]:
        """Return the TLS port, which speaks 1.3 and nothing older, and the bare one."""
        listen, ports = self._listen, []
        if listen.tls is not None:
            ports.append(PipePort("bsp", "bsp.tls", listen.tls, TlsRules(only_tls13=True, protocols=(BSP_ALPN,))))
        if listen.plain is not None:
            ports.append(PipePort("bsp_plain", "bsp.plain", listen.plain, None, PLAIN_ENDPOINT))
        return ports

    def carried_endpoint(self, table: str, sink: MakeSink) -> Endpoint:
        """Return what answers bsp+wss on the web port of a table."""
        return Endpoint(sink(_web_endpoint(table)), text=False)

    def use_certificates(self, hashes: LeafHashes) -> None:
        """Hand the hash of each endpoint's certificate to the relay."""
        shown = {}
        if self._listen.tls is not None:
            shown[""] = hashes("bsp")
        terminator = bytes.fromhex(self._settings.terminator_certificate)
        for port in self._carriers:
            shown[_web_endpoint(port.table)] = hashes(port.table) if port.tls else terminator
        for endpoint, sha256 in shown.items():
            self.relay.use_certificate(sha256, endpoint)

    async def open(self, contexts: MakeContext) -> None:
        """Open the box, if it has an address: over TLS unless only programs of this machine reach it."""
        if self._listen.box is not None:
            limits, bytes_max = self.context.config.of(BoxLimits), self._listen.box_mib_max << _MIB_BITS
            self._box_store = BoxStore(self.context.home.path / "box", limits, bytes_max=bytes_max)
            access = self.context.access
            self._box = box_port(
                self._box_store,
                monotonic_now,
                self.context.proxies,
                limited=self.context.rate_limits,
                refuses=lambda host: access.refuses_address(host, time.time_ns() // 1_000) is not None,
                note=partial(self.context.note_met, BOX) if self.context.note_met is not None else None,
            )
            context = None if self._listen.box.is_loopback else contexts("bsp", TlsRules())
            await self._box.open(self._listen.box, context)

    def outlet(self) -> Outlet:
        """Return what dials other peers."""
        return BspOutlet(self.context.silence)

    async def close(self) -> None:
        """Close the box."""
        if self._box is not None:
            await self._box.close()

    def urls(self) -> dict[str, str]:
        """Return where the box is."""
        return {"bsp_box": self._box.url} if self._box is not None else {}

    def sizes(self) -> dict[str, dict[str, int]]:
        """Return how full the box is."""
        return {BOX: self._box_store.sizes()} if self._box_store is not None else {}

    def stored_bytes(self) -> int:
        """Return the bytes of the files in the box; one that is closed counts nothing."""
        return self._box_store.sizes()["bytes"] if self._box_store is not None else 0

    def has_node(self, key: bytes) -> bool:  # noqa: ARG002 - whoever gets so far is in the table of peers
        """Return that every peer is a device that others know by its key."""
        return True

    def view(self) -> dict[str, Any]:
        """Return groups and peers."""
        return self.relay.view()

    def describe(self, ports: Mapping[str, int]) -> dict[str, Any]:
        """Return what a peer needs: the ports, and the address to hand out, in which ``HOST`` is this node's name.

        Groups and peers are not described: they concern only those who share them.
        """
        settings = self._settings
        port, web_port = ports.get("bsp"), ports.get("bsp_wss")
        identity = encode_id52(self.context.key_pair.public)
        return {
            "url": None,
            "port": port,
            "address": f"bsp+tls://{identity}@HOST:{port}" if port is not None else None,
            "web_port": web_port,
            "paths": [self._listen.path] if web_port is not None else [],
            "version": 1 if settings.profile == "seed" else 0,
            "features": ["mailbox"] if settings.owners else [],
            "limits": {"profile": settings.profile, "max_body_bytes": _BODY_BYTES_MAX},
        }


def _web_endpoint(table: str) -> str:
    return f"wss_{table}"


def _check_own_key(config: Config, own_key: PublicKey) -> None:
    """Check that ``[bsp]`` names no other device by the key of this node, which a configuration does not know."""
    name = names_itself(config.of(BspSettings), own_key)
    if name is not None:
        raise config.origin(f"bsp.{name}").refuse(f"bsp.{name} has the key of this node; allowed: keys of others")


HOST: Final = BspHost
