"""Writes a log line when a connection opens and one when it closes, unless ``[node] connection_log`` is "off".

``NodeServer`` makes it and calls ``use`` at a reload; ``engine.connections`` calls ``opened`` and ``closed``, as its
``watcher``. With ``reference`` a line names the journal's keyed reference of an identity, else the network; with
``address`` the address. A protocol that hides its senders names neither before an identity is proved (NODE-VIEW).
"""

from typing import Final

import structlog

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.networks import network_of
from waystation.engine.connections import Connection
from waystation.engine.recorder import Recorder
from waystation.server.registry import hiding_protocols
from waystation.server.status.connections import is_hidden

__all__ = ["ConnectionLog"]

_OFF: Final = "off"
_ADDRESS: Final = "address"

_log = structlog.get_logger("waystation.server")


class ConnectionLog:
    """Watches the connections of a recorder."""

    def __init__(self, mode: str, recorder: Recorder) -> None:
        """Watch, as ``mode`` says: "off", "reference" or "address"."""
        self._mode = _OFF
        self._recorder = recorder
        self.use(mode)

    def use(self, mode: str) -> None:
        """Take over another mode; a connection that is open has its line at the end alone."""
        self._mode = mode
        self._recorder.connections.watcher = None if mode == _OFF else self

    def opened(self, connection: Connection) -> None:
        """Log the beginning."""
        _log.info("connection.opened", **self._named(connection))

    def closed(self, connection: Connection, reason: str, now: Instant) -> None:
        """Log the end, with its reason, duration and bytes."""
        _log.info(
            "connection.closed",
            **self._named(connection),
            reason=reason,
            lasted_s=round(max(0, now - connection.since) / MICROSECONDS_PER_SECOND, 3),
            bytes_in=connection.traffic.bytes_in,
            bytes_out=connection.traffic.bytes_out,
        )

    def _named(self, connection: Connection) -> dict[str, str | int]:
        """Return what both lines say: protocol, number, listener, and who, as far as that may be shown."""
        named: dict[str, str | int] = {"protocol": connection.protocol, "peer": connection.peer}
        if connection.endpoint:
            named["endpoint"] = connection.endpoint
        if connection.dialled:
            named["dialled"] = connection.dialled
        elif not is_hidden(connection, hiding_protocols()):
            named |= self._who(connection)
        return named

    def _who(self, connection: Connection) -> dict[str, str | int]:
        if self._mode == _ADDRESS:
            return {"address": connection.address}
        if connection.identity is not None:
            return {"reference": self._recorder.reference_of(connection.identity).hex()}
        return {"network": network_of(connection.address).removeprefix("net:")}
