"""Runs the MERK relay in a node: its web endpoints, the nodes that it dials, and its status in the mesh.

The node builds it where ``[merk]`` is on and calls the methods of ``server.hosted``; the relay in ``protocols.merk``
decides.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from waystation.protocols.merk.limits import MerkLimits
from waystation.protocols.merk.relay.machine import MerkRelay
from waystation.protocols.merk.settings import MerkSettings
from waystation.rules.twins import Twins
from waystation.server.dialling.dialler import Outlet
from waystation.server.hosted import HostContext, MakeSink, ProtocolHost
from waystation.server.hub import Hub, monotonic_now
from waystation.server.merk.mesh_log import MeshLog
from waystation.server.merk.outlet import MerkOutlet
from waystation.server.merk.tables import MerkListenSettings
from waystation.transport.tls import client_context
from waystation.transport.websocket.dial import WebSocketDialler
from waystation.transport.websocket.site import Endpoint

__all__ = ["HOST", "MESH_ENDPOINT", "MESH_PATH", "MerkHost"]

MESH_ENDPOINT: Final = "mesh"
MESH_PATH: Final = "/.well-known/merk-mesh.json"
ORIGINAL_BYTES_MAX: Final = 104_857_600  # MERK-LARGE: what an original takes of its clients, and may bring us
ENVELOPE_BYTES: Final = 256  # specs/merk.md 10.5: what nodes put around a frame
_FEATURES: Final = ("delivery_notices", "key_directory", "header_signatures", "mesh", "presence")  # specs/merk.md 10.1


class MerkHost(ProtocolHost):
    """Hosts ``MerkRelay``."""

    relay: MerkRelay

    def __init__(self, context: HostContext) -> None:
        super().__init__(context)
        self._listen = context.config.of(MerkListenSettings)
        self._settings = settings = context.config.of(MerkSettings)
        self.relay = MerkRelay(
            settings,
            context.key_pair,
            context.store,
            context.rng,
            limits=context.config.of(MerkLimits),
            rate_limits=context.rate_limits,
            admits=context.admits,
            is_unlimited=context.access.is_unlimited,
            admits_unproved=lambda: not context.access.demands_identity,
        )
        self._mesh_log = MeshLog(self.relay.sizes, self._mesh)
        self._watching: asyncio.Task[None] | None = None

    @property
    def _message_bytes_max(self) -> int:
        """The largest message of a connection: a frame within the envelope of nodes."""
        return self._settings.max_frame_bytes + ENVELOPE_BYTES

    def endpoints(self, sink: MakeSink, has_page: Callable[[str], bool]) -> dict[str, Endpoint]:
        """Return the relay's paths, and the one for nodes of the original."""
        found = Endpoint(sink(""), text=False, message_bytes_max=self._message_bytes_max)
        endpoints = {path: found._replace(has_page=has_page(path)) for path in self._listen.paths}
        if self._listen.mesh_path:
            # MERK-LARGE: a frame that is too large for us is read and dropped, since an original never dials again.
            endpoints[self._listen.mesh_path] = found._replace(
                sink=sink(MESH_ENDPOINT), message_bytes_max=max(ORIGINAL_BYTES_MAX, self._message_bytes_max)
            )
        return endpoints

    def outlet(self) -> Outlet:
        """Return what dials other nodes.

        Raises:
            HostError: The authority's file cannot be read.
        """
        authority = self._settings.peers_ca
        websockets = WebSocketDialler(
            message_bytes_max=self._message_bytes_max,
            silence=self.context.silence,
            context=client_context(Path(authority)) if authority else None,
            authority="merk.peers_ca",
        )
        return MerkOutlet(websockets, self._mesh_log)

    def start(self, hub: Hub, urls: Mapping[str, str]) -> None:  # noqa: ARG002 - the dialler has the hub
        """Log links as they come and go."""
        self._watching = asyncio.get_running_loop().create_task(self._mesh_log.watch())

    def drain(self) -> None:
        """Log no more."""
        if self._watching is not None:
            self._watching.cancel()

    def twins(self) -> Twins:
        """Return what the relay has met."""
        return self.relay.twins

    def has_node(self, key: bytes) -> bool:
        """Return whether a node with this key is linked."""
        return any(node["key"] == key.hex() for node in self._mesh()["nodes"])

    def status(self) -> dict[str, Any]:
        """Return what the relay knows of its mesh."""
        return {"mesh": self._mesh()}

    def describe(self, ports: Mapping[str, int]) -> dict[str, Any]:
        """Return address, paths, features and limits."""
        listen, settings = self._listen, self._settings
        return {
            "url": settings.public_url or None,
            "port": ports.get("merk"),
            "paths": listen.paths,
            "tls": listen.tls,
            "version": 1,
            "features": [*_FEATURES, *(["open_mesh"] if settings.accept_peers else [])],
            "limits": {"max_frame_bytes": settings.max_frame_bytes},
        }

    def documents(self) -> dict[str, Callable[[], Mapping[str, Any]]]:
        """Return the document about the mesh (specs/merk.md 10.9)."""
        return {MESH_PATH: self._mesh}

    def _mesh(self) -> dict[str, Any]:
        return self.relay.mesh(monotonic_now())


HOST: Final = MerkHost
