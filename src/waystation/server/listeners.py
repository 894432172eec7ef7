"""Which ports a configuration asks for, what stands behind each, and their certificates.

LPRP has a port of datagrams: nobody is accepted there, so it stays open while the node drains (LPRP-PORT).

BSP has a TLS port, which speaks 1.3 and nothing older, and a path on the ports of MERK and Strata. Its peers prove
their keys over the hash of the certificate that they were shown, so each of its doors has the hash of its own.

MERK and Strata have one listener each, or share one when both name the same address: then one ``WebSocketSite`` leads
newcomers by their path. Plain GETs of either get the same pages.
"""

import ssl
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from waystation.server.bsp_outlet import BSP_ALPN
from waystation.server.config import Config
from waystation.server.home import Home
from waystation.server.hub import Entrance, Hub
from waystation.server.public_pages import PublicPages
from waystation.server.settings import Address, MerkListenSettings, StrataListenSettings
from waystation.transport.listen import Listener
from waystation.transport.tls import leaf_sha256, reload_certificate, server_context
from waystation.transport.udp import UdpCounts, UdpSocket
from waystation.transport.websocket import Endpoint, WebSocketSite
from waystation.transport.websocket_liveness import Patience

__all__ = ["BHUMI_UPSTREAM_DOOR", "BSP_PLAIN_DOOR", "MERK_PATIENCE", "MESH_DOOR", "Listeners", "merk_message_bytes"]

MESH_DOOR: Final = "mesh"
BSP_PLAIN_DOOR: Final = "plain"
BHUMI_UPSTREAM_DOOR: Final = "upstream"
_BSP_WSS_DOORS: Final = {"merk": "wss_merk", "strata": "wss_strata"}
MERK_PATIENCE: Final = Patience(ping_after_s=30.0, pong_within_s=10.0)  # specs/merk.md 8
_ENVELOPE_BYTES: Final = 256  # specs/merk.md 10.5: what nodes put around a frame
_PIPES: Final = {
    "bhumi": ("bhumi", ""),
    "bhumi_plain": ("bhumi", ""),
    "bhumi_upstream": ("bhumi", BHUMI_UPSTREAM_DOOR),
    "bsp": ("bsp", ""),
    "bsp_plain": ("bsp", BSP_PLAIN_DOOR),
}
"""Table and door of each listener whose connections are bare pipes."""


def merk_message_bytes(config: Config) -> int:
    """Return the largest message that a MERK connection takes: a frame within the envelope of nodes."""
    return config.merk.max_frame_bytes + _ENVELOPE_BYTES


class Listeners:
    """All ports but the operator's."""

    def __init__(self, config: Config, home: Home, hub: Hub, pages: PublicPages) -> None:
        """Prepare; ``open`` binds.

        Args:
            config: Which listeners there are.
            home: Has the certificates that the configuration does not name.
            hub: Gets the connections.
            pages: What plain GETs get.
        """
        self._config = config
        self._home = home
        self._hub = hub
        self._pages = pages
        self._contexts: dict[str, ssl.SSLContext] = {}
        self.named: dict[str, Listener | UdpSocket] = {}
        """By name; two names may stand for one listener."""

    def __iter__(self) -> Iterator[Listener | UdpSocket]:
        """Yield every listener once."""
        return iter(dict.fromkeys(self.named.values()))

    async def open(self) -> None:
        """Bind every listener that is on.

        Raises:
            HostError: A port is taken, or a certificate cannot be used; those that were bound before stay open.
        """
        for table in ("bhumi", "bsp"):
            listen = self._config.bhumi_listen if table == "bhumi" else self._config.bsp_listen
            if listen.enabled and listen.tls is not None:
                await self._open_pipes(table, listen.tls, self._context(table))
            if listen.enabled and listen.plain is not None:
                await self._open_pipes(f"{table}_plain", listen.plain, None)
        upstream = self._config.bhumi_listen.upstream_listen
        if self._config.bhumi_listen.enabled and upstream is not None:
            await self._open_pipes("bhumi_upstream", upstream, None if upstream.is_loopback else self._context("bhumi"))
        lprp = self._config.lprp_listen
        if lprp.enabled and lprp.udp is not None:
            await self._open_datagrams("lprp", lprp.udp)
        sites = self._sites()
        if self._config.shares_port:
            merged = {**sites.pop("merk"), **sites["strata"]}
            sites["strata"] = merged
        for name, endpoints in sites.items():
            await self._open_site(name, endpoints)
        if self._config.shares_port:
            self.named["merk"] = self.named["strata"]
        for site in self._config.bsp_sites[:1]:
            self.named["bsp_wss"] = self.named[site]

    def close(self) -> None:
        """Take nobody any more; connections that stand are the hub's, and datagrams still come and go."""
        for listener in self:
            if isinstance(listener, Listener):
                listener.close()

    def urls(self) -> dict[str, str]:
        """Return where each listener that is open is reached, by name."""
        return {name: self._url(name, listener) for name, listener in self.named.items()}

    def ports(self) -> dict[str, int]:
        """Return the port of each listener that is open, by name."""
        return {name: listener.port for name, listener in self.named.items()}

    def datagrams(self) -> dict[str, UdpCounts]:
        """Return what each port of datagrams has seen, by name."""
        return {name: port.counts() for name, port in self.named.items() if isinstance(port, UdpSocket)}

    def reload_certificates(self, config: Config) -> None:
        """Read the certificates that ``config`` names, for handshakes from now on.

        Raises:
            HostError: One of them cannot be used; it stays as it was, and those behind it too.
        """
        for table, context in self._contexts.items():
            reload_certificate(context, *self.certificate_paths(config, table))

    def bsp_certificates(self, config: Config) -> dict[str, bytes]:
        """Return the SHA-256 of the certificate behind each door of the BSP peer that has one, by door.

        Args:
            config: Names the files; the one in force, or one that takes its place.

        Raises:
            HostError: One of them cannot be read.
        """
        ours = self._config  # what listens where changes with a restart only
        hashes = {}
        if ours.bsp_listen.enabled and ours.bsp_listen.tls is not None:
            hashes[""] = leaf_sha256(self.certificate_paths(config, "bsp")[0])
        for site in ours.bsp_sites:
            if self._listen(site).tls:
                hashes[_BSP_WSS_DOORS[site]] = leaf_sha256(self.certificate_paths(config, site)[0])
            else:
                hashes[_BSP_WSS_DOORS[site]] = bytes.fromhex(ours.bsp.terminator_certificate)
        return hashes

    # Opening

    async def _open_pipes(self, name: str, address: Address, context: ssl.SSLContext | None) -> None:
        entrance = Entrance(self._hub, *_PIPES[name])
        await self._bind(name, address, Listener(entrance, entrance.admit, self._hub.release, context))

    async def _open_datagrams(self, name: str, address: Address) -> None:
        port = UdpSocket(partial(self._hub.datagrams, name))
        await port.open(address.host, address.port)
        self._hub.carry(name, port.send)
        self.named[name] = port

    async def _open_site(self, name: str, endpoints: Mapping[str, Endpoint]) -> None:
        listen = self._listen(name)
        assert listen.ws is not None
        entrance = Entrance(self._hub, name)
        site = WebSocketSite(endpoints, self._pages.answer)
        context = self._context(name) if listen.tls else None
        await self._bind(name, listen.ws, Listener(entrance, entrance.admit, self._hub.release, context, site.arrive))

    async def _bind(self, name: str, address: Address, listener: Listener) -> None:
        await listener.open(address.host, address.port)
        self.named[name] = listener

    def _sites(self) -> dict[str, dict[str, Endpoint]]:
        """Return the endpoints of each WebSocket listener that is on."""
        merk, strata = self._config.merk_listen, self._config.strata_listen
        sites: dict[str, dict[str, Endpoint]] = {}
        if merk.enabled and merk.ws is not None:
            sites["merk"] = self._merk_endpoints()
        if strata.enabled and strata.ws is not None:
            sites["strata"] = {strata.path: Endpoint(Entrance(self._hub, "strata"))}
        for name in self._config.bsp_sites:
            entrance = Entrance(self._hub, "bsp", _BSP_WSS_DOORS[name])
            sites[name][self._config.bsp_listen.path] = Endpoint(entrance, text=False)
        return sites

    def _merk_endpoints(self) -> dict[str, Endpoint]:
        listen = self._config.merk_listen
        found = Endpoint(
            Entrance(self._hub, "merk"),
            text=False,
            message_bytes_max=merk_message_bytes(self._config),
            patience=MERK_PATIENCE,
        )
        endpoints = {path: found._replace(has_page=self._pages.knows(path)) for path in listen.paths}
        if listen.mesh_path:
            endpoints[listen.mesh_path] = found._replace(sink=Entrance(self._hub, "merk", MESH_DOOR))
        return endpoints

    # Names and files

    def _is_bare(self, name: str) -> bool:
        """Return whether a listener of pipes carries no TLS."""
        upstream = self._config.bhumi_listen.upstream_listen
        if name == "bhumi_upstream":
            return upstream is not None and upstream.is_loopback
        return name.endswith("_plain")

    def _listen(self, table: str) -> MerkListenSettings | StrataListenSettings:
        return self._config.merk_listen if table == "merk" else self._config.strata_listen

    def _context(self, table: str) -> ssl.SSLContext:
        if table in self._contexts:  # two doors of one table
            return self._contexts[table]
        paths = self.certificate_paths(self._config, table)
        is_bsp = table == "bsp"
        context = server_context(*paths, only_tls13=is_bsp, protocols=(BSP_ALPN,) if is_bsp else ())
        self._contexts[table] = context
        return context

    def certificate_paths(self, config: Config, table: str) -> tuple[Path, Path]:
        """Return where the certificate and its key stand that ``config`` names for a table, else those of the home."""
        named = config.listeners()[table]
        cert = Path(named.cert) if named.cert else self._home.cert_path
        key = Path(named.key) if named.key else self._home.tls_key_path
        return cert, key

    def _url(self, name: str, listener: Listener | UdpSocket) -> str:
        address = Address(listener.host, listener.port)
        if isinstance(listener, UdpSocket):
            return f"udp://{address}"
        if name in _PIPES:
            return f"{'tcp' if self._is_bare(name) else 'tls'}://{address}"
        if name == "bsp_wss":
            return f"wss://{address}{self._config.bsp_listen.path}"
        listen = self._listen(name)
        path = self._config.strata_listen.path if name == "strata" else ""
        return f"{'wss' if listen.tls else 'ws'}://{address}{path}"
