"""Says in the log which links between MERK nodes stand, and which are over.

A link is told when it stands: after both sides have proved their keys, or, of an original relay, when it has turned out
to be one. Nothing tells the server about that, so the relay is asked once a second; and at once where a connection that
we dialled is about to become a link, because only then it is known which address led there.
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
    """What the log says of one link."""

    address: str
    dialled: bool
    trust: str


class MeshLog:
    """Compares the relay's links with those that were told."""

    def __init__(self, sizes: Callable[[], Mapping[str, int]], view: Callable[[], dict[str, Any]]) -> None:
        """Watch a relay that has no links yet.

        Args:
            sizes: Returns what ``MerkRelay.sizes`` returns.
            view: Returns what ``MerkRelay.mesh`` returns at this moment.
        """
        self._sizes = sizes
        self._view = view
        self._told: dict[tuple[str, str], _Link] = {}

    def standing(self) -> int:
        """Return how many links stand now."""
        sizes = self._sizes()
        return sizes["nodes"] + sizes["original_relays"]

    def look(self, url: str = "") -> None:
        """Log what has changed.

        Args:
            url: What was dialled, when that has just become a link.
        """
        found = {(node["key"], node["trust"]): node for node in self._view()["nodes"]}
        for name in [name for name in self._told if name not in found]:
            _say("peer.lost", name[0], self._told.pop(name))
        for name, node in found.items():
            if name not in self._told:
                self._told[name] = link = _link_of(node, url)
                _say("peer.linked", name[0], link)

    async def watch(self) -> NoReturn:
        """Look again and again."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()


def _link_of(node: dict[str, Any], url: str) -> _Link:
    address = url if url and node["dialled"] else node["address"]
    return _Link(address, node["dialled"], node["trust"])


def _say(event: str, key: str, link: _Link) -> None:
    public = bytes.fromhex(key)
    peer = short_peer(public) if len(public) == KEY_BYTES else ""
    _log.info(event, peer=peer, **link._asdict())
