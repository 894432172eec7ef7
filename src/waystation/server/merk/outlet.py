"""Dials other MERK nodes, and logs the result of each connection: a link, or a refusal.

The dialler passes it each ``Dial`` effect of the MERK relay. A connection becomes a link after both sides have proved
their keys; ``mesh_log`` logs links. If the other side closes it before that, one ``peer.refused`` is logged, with the
reason for its close status.
"""

from typing import Final
from urllib.parse import urlsplit

import structlog

from waystation.core.effects import Dial
from waystation.server.dialling.dialler import DIAL_WITHIN_S, Dialler
from waystation.server.hub import Hub
from waystation.server.merk.mesh_log import MeshLog
from waystation.server.sinks import DialledSink
from waystation.transport.pipe import Pipe
from waystation.transport.websocket.dial import WebSocketDialler, host_of
from waystation.transport.websocket.pipe import WebSocketPipe

__all__ = ["MerkOutlet"]

_DOUBLE_LINK: Final = 4409  # specs/merk.md 10.4, as the other statuses
_REFUSALS: Final = {
    1001: "it is shutting down",
    1002: "it takes what we said for another protocol",
    1008: "we broke its rules too often",
    1009: "what we said is larger than it takes",
    1013: "it takes no more peers, none that it does not name itself, or no more connections of this address now",
    4401: "it did not accept our proof, or our key is banned there",
    4408: "a proof was not there in time",
    _DOUBLE_LINK: "we are linked with it already",
}

_log = structlog.get_logger("waystation.server")


class MerkOutlet:
    """Dials WebSockets of other nodes."""

    def __init__(self, websockets: WebSocketDialler, mesh_log: MeshLog) -> None:
        """Prepare to dial.

        Args:
            websockets: Opens the connections.
            mesh_log: Logs links.
        """
        self._websockets = websockets
        self._mesh_log = mesh_log

    async def connect(self, dialler: Dialler, hub: Hub, protocol: str, effect: Dial) -> None:
        """Connect, as ``Outlet.connect`` of the dialler."""
        addresses = await dialler.addresses(effect, host_of(effect.url), urlsplit(effect.url).port)
        sink = _MeshSink(self._mesh_log, dialler, hub, protocol, effect)
        await self._websockets.dial(effect.url, sink, addresses=addresses, timeout_s=DIAL_WITHIN_S)


class _MeshSink(DialledSink):
    """The sink of one dialled pipe, which notices whether it becomes a link."""

    def __init__(self, mesh_log: MeshLog, dialler: Dialler, hub: Hub, protocol: str, effect: Dial) -> None:
        super().__init__(hub, protocol, effect.name)
        self._mesh_log = mesh_log
        self._dialler = dialler
        self._key = (protocol, effect.name)
        self._url = effect.url
        self._is_link = False
        self.received = self._received
        self.received_many = self._received_many
        self.lost = self._lost

    def _received(self, pipe: Pipe, data: bytes) -> None:
        before = self._links_before()
        self._hub.received(pipe, data)
        self._look(before)

    def _received_many(self, pipe: Pipe, messages: list[bytes]) -> None:
        before = self._links_before()
        self._hub.received_many(pipe, messages)
        self._look(before)

    def _lost(self, pipe: Pipe, error: Exception | None) -> None:
        """Report the end, and log a refusal when the other side closed what was no link."""
        by_them = self._hub.knows(pipe)
        before = self._mesh_log.links_count()
        self._hub.lost(pipe, error)
        if self._mesh_log.links_count() < before:
            self._mesh_log.look()
        elif by_them:
            assert isinstance(pipe, WebSocketPipe)
            self._refused(pipe.received_status or 0)

    def _links_before(self) -> int | None:
        return None if self._is_link else self._mesh_log.links_count()

    def _look(self, before: int | None) -> None:
        """Log the link that the last message has made, if it has."""
        if before is not None and self._mesh_log.links_count() > before:
            self._is_link = True
            self._dialler.forget(self._key)
            self._mesh_log.look(self._url)

    def _refused(self, status: int) -> None:
        """Log that the other side closed with ``status``, 0 for none."""
        why = _REFUSALS.get(status, "it gave no reason")
        if self._dialler.closed or status == _DOUBLE_LINK:  # two nodes that dial each other at once keep one link
            _log.debug("peer.refused", protocol=self._key[0], url=self._url, status=status, error=why)
        else:
            self._dialler.report(self._key, "peer.refused", self._url, why, status=status)
