"""Logs each established link between MERK nodes, and its end.

``MerkHost`` starts it. A link is established after both sides have proved their keys. With a reference relay, it is
established once its messages identify it as one. The relay reports no events for this, so ``watch`` compares its links
once a second. The outlet calls ``look`` as soon as a dialled connection becomes a link, because only it knows the
dialled address.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

import structlog

from waystation.core.ids import KEY_BYTES
from waystation.server.logs import short_peer

__all__ = ["MeshLog"]

LOOK_EVERY_S: Final = 1.0

_log = structlog.get_logger("waystation.server")


class _Link(NamedTuple):
    """The fields of one link in the log."""

    address: str
    dialled: bool
    trust: str


class MeshLog:
    """Compares the relay's links with those that were logged."""

    def __init__(self, sizes: Callable[[], Mapping[str, int]], view: Callable[[], dict[str, Any]]) -> None:
        """Watch a relay that has no links yet.

        Args:
            sizes: Returns what ``MerkRelay.sizes`` returns.
            view: Returns what ``MerkRelay.mesh`` returns at this moment.
        """
        self._sizes = sizes
        self._view = view
        self._logged: dict[tuple[str, str], _Link] = {}

    def links_count(self) -> int:
        """Return how many links are established."""
        sizes = self._sizes()
        return sizes["nodes"] + sizes["original_relays"]

    def look(self, url: str = "") -> None:
        """Log what has changed.

        Args:
            url: What was dialled, when that has just become a link.
        """
        found = {(node["key"], node["trust"]): node for node in self._view()["nodes"]}
        for name in [name for name in self._logged if name not in found]:
            _log_link("peer.lost", name[0], self._logged.pop(name))
        for name, node in found.items():
            if name not in self._logged:
                self._logged[name] = link = _link_of(node, url)
                _log_link("peer.linked", name[0], link)

    async def watch(self) -> NoReturn:
        """Look again and again."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()


def _link_of(node: dict[str, Any], url: str) -> _Link:
    address = url if url and node["dialled"] else node["address"]
    return _Link(address, node["dialled"], node["trust"])


def _log_link(event: str, key: str, link: _Link) -> None:
    public = bytes.fromhex(key)
    peer = short_peer(public) if len(public) == KEY_BYTES else ""
    _log.info(event, peer=peer, **link._asdict())
