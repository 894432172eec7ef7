"""Public documents about this node: ``/.well-known/waystation.json``, and those of its protocols.

``public_pages`` answers GETs from it. They are generated from the active configuration, so that clients can read the
limits. They are unsigned: clients use them for discovery, not as proof.

Spec: specs/merk.md 10.9; RFC 8615.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from waystation.core.answers import HttpAnswer
from waystation.server.hosted import ProtocolHost
from waystation.version import __version__

__all__ = ["JSON_HEADERS", "WellKnown"]

INFO_PATH: Final = "/.well-known/waystation.json"
JSON_HEADERS: Final = (
    ("Content-Type", "application/json"),
    ("Access-Control-Allow-Origin", "*"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
)


class WellKnown:
    """The documents of one node."""

    def __init__(
        self,
        name: str,
        identity: Mapping[str, str],
        ports: Callable[[], Mapping[str, int]],
        hosts: Mapping[str, ProtocolHost],
    ) -> None:
        """Describe a node.

        Args:
            name: Shown to people.
            identity: The node's public names.
            ports: Returns the port of each listener that is open, by name.
            hosts: The protocols that it speaks, by name.
        """
        self._name = name
        self._identity = dict(identity)
        self._ports = ports
        self._hosts = hosts
        self._documents: dict[str, Callable[[], Mapping[str, Any]]] = {INFO_PATH: self.info}
        for host in hosts.values():
            self._documents |= host.documents()

    def has(self, path: str) -> bool:
        """Return whether there is a document at ``path`` (without its query)."""
        return path in self._documents

    def answer(self, path: str) -> HttpAnswer | None:
        """Return the document at ``path`` (without its query), None where there is none."""
        return _json(self._documents[path]()) if path in self._documents else None

    def info(self) -> dict[str, Any]:
        """Return what this node speaks, where, and within which limits.

        An ``url`` is null where the operator has not configured the node's public address: then it is the host that
        was asked, with the port and path beside it.
        """
        ports = self._ports()
        return {
            "name": self._name,
            "node": self._identity,
            "software": {"name": "waystation", "version": __version__},
            "protocols": {name: host.describe(ports) for name, host in self._hosts.items()},
        }


def _json(document: Mapping[str, Any]) -> HttpAnswer:
    return HttpAnswer(200, JSON_HEADERS, json.dumps(document, ensure_ascii=False).encode())
