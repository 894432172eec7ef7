"""Documents about this node for anybody: ``/.well-known/waystation.json`` and ``/.well-known/merk-mesh.json``.

They are generated from the configuration in force, so that a client need not be told limits by hand. Nothing in them is
signed: they serve discovery and never trust.

Spec: specs/merk.md 10.9; RFC 8615.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from waystation.core.answers import HttpAnswer
from waystation.server.config import Config
from waystation.version import __version__

__all__ = ["JSON_HEADERS", "WellKnown"]

INFO_PATH: Final = "/.well-known/waystation.json"
MESH_PATH: Final = "/.well-known/merk-mesh.json"
JSON_HEADERS: Final = (
    ("Content-Type", "application/json"),
    ("Access-Control-Allow-Origin", "*"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
)

_BHUMI_FEATURES: Final = ("preimage", "binding", "i_am_ok")  # of OPTIONS, BHUMI-X
_MERK_FEATURES: Final = ("delivery_notices", "key_directory", "header_signatures", "mesh")  # specs/merk.md 10.1
_BSP_BODY_BYTES_MAX: Final = 32_768  # specs/bsp.md 1
_STRATA_FEATURES: Final = ("publish", "subscribe", "replication", "auth", "key_events")


class WellKnown:
    """The documents of one node."""

    def __init__(
        self,
        config: Config,
        identity: Mapping[str, str],
        ports: Callable[[], Mapping[str, int]],
        mesh: Callable[[], Mapping[str, Any]] | None = None,
        lprp: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """Describe a node.

        Args:
            config: What is in force.
            identity: The node's public names.
            ports: Returns the port of each listener that is open, by name.
            mesh: Returns what the MERK relay knows of its mesh; None without one.
            lprp: Returns what a client of the LPRP host must know; None without one.
        """
        self._config = config
        self._identity = dict(identity)
        self._ports = ports
        self._mesh = mesh
        self._lprp = lprp

    def has(self, path: str) -> bool:
        """Return whether there is a document at ``path`` (without its query)."""
        return path == INFO_PATH or (path == MESH_PATH and self._mesh is not None)

    def answer(self, path: str) -> HttpAnswer | None:
        """Return the document at ``path`` (without its query), None where there is none."""
        if path == INFO_PATH:
            return _json(self.info())
        return _json(self._mesh()) if path == MESH_PATH and self._mesh is not None else None

    def info(self) -> dict[str, Any]:
        """Return what this node speaks, where, and within which limits.

        An ``url`` is null where the operator has not said under which address the world sees the node: then it is the
        host that was asked, with the port and path that stand beside it.
        """
        config = self._config
        protocols: dict[str, Any] = {}
        if config.bhumi_listen.enabled:
            protocols["bhumi"] = self._bhumi()
        if config.bsp_listen.enabled:
            protocols["bsp"] = self._bsp()
        if self._lprp is not None:
            protocols["lprp"] = self._lprp_host(self._lprp())
        if config.merk_listen.enabled:
            protocols["merk"] = self._merk()
        if config.strata_listen.enabled:
            protocols["strata"] = self._strata()
        return {
            "name": config.node.name,
            "node": self._identity,
            "software": {"name": "waystation", "version": __version__},
            "protocols": protocols,
        }

    def _bhumi(self) -> dict[str, Any]:
        settings = self._config.bhumi
        return {
            "url": settings.advertise or None,
            "port": self._ports().get("bhumi"),
            "version": 2,
            "features": [
                *_BHUMI_FEATURES,
                *(["presence"] if settings.gossip else []),
                *(["qa"] if settings.qa else []),
            ],
            "limits": {
                "max_payload_bytes": settings.max_payload_bytes,
                "ack_timeout_ms": settings.ack_timeout_ms,
                "response_ttl_ms": settings.response_ttl_ms,
            },
        }

    def _bsp(self) -> dict[str, Any]:
        """Return what a peer needs: the ports, and the address to hand out, in which ``HOST`` is this node's name.

        Groups and peers stand nowhere: they are between those who share them.
        """
        ports, settings = self._ports(), self._config.bsp
        port, web_port = ports.get("bsp"), ports.get("bsp_wss")
        return {
            "url": None,
            "port": port,
            "address": f"bsp+tls://{self._identity['id52']}@HOST:{port}" if port is not None else None,
            "web_port": web_port,
            "paths": [self._config.bsp_listen.path] if web_port is not None else [],
            "version": 1 if settings.profile == "seed" else 0,
            "features": ["mailbox"] if settings.owners else [],
            "limits": {"profile": settings.profile, "max_body_bytes": _BSP_BODY_BYTES_MAX},
        }

    def _lprp_host(self, host: Mapping[str, Any]) -> dict[str, Any]:
        """Return what clients must know, and the address to hand out, in which ``HOST`` stands for this node's name."""
        port = self._ports().get("lprp")
        query = f"lease_ms={host['lease_ms']}&byte_order={host['byte_order']}"
        address = f"lprp://{self._identity['id52']}@HOST:{port}?{query}"
        return {"url": None, "port": port, "address": address, **host}

    def _merk(self) -> dict[str, Any]:
        listen, settings = self._config.merk_listen, self._config.merk
        features = [*_MERK_FEATURES, *(["open_mesh"] if settings.accept_peers else [])]
        return {
            "url": settings.public_url or None,
            "port": self._ports().get("merk"),
            "paths": listen.paths,
            "tls": listen.tls,
            "version": 1,
            "features": features,
            "limits": {"max_frame_bytes": settings.max_frame_bytes},
        }

    def _strata(self) -> dict[str, Any]:
        listen, settings = self._config.strata_listen, self._config.strata
        return {
            "url": settings.public_url or None,
            "port": self._ports().get("strata"),
            "paths": [listen.path],
            "tls": listen.tls,
            "version": 1,
            "features": list(_STRATA_FEATURES),
            "limits": {
                "max_packet_bytes": settings.max_packet_bytes,
                "max_age_s": settings.max_age_s,
                "anonymous": settings.anonymous,
            },
        }


def _json(document: Mapping[str, Any]) -> HttpAnswer:
    return HttpAnswer(200, JSON_HEADERS, json.dumps(document, ensure_ascii=False).encode())
