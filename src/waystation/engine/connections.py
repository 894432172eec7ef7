"""The open connections of all protocols, in memory only: who, since when, how many bytes.

The status page, logs and the recorder read it. The node adds a connection, the recorder adds the identity that it
proves and removes it at its end. Nothing of this is journalled. A watcher gets each connection when it begins and when
it ends.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from waystation.core.instant import Instant

__all__ = ["Connection", "Connections", "Traffic", "Watcher"]


class Traffic:
    """Bytes of one connection; the node counts, the recorder reads."""

    __slots__ = ("bytes_in", "bytes_out")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0

    @property
    def total(self) -> int:
        """Bytes of both directions."""
        return self.bytes_in + self.bytes_out


class Connection:
    """One open connection."""

    __slots__ = ("address", "dialled", "endpoint", "identity", "peer", "protocol", "since", "traffic")

    def __init__(self, protocol: str, peer: int, traffic: Traffic, since: Instant, address: str = "") -> None:
        self.protocol = protocol
        self.peer = peer
        self.traffic = traffic
        self.since = since
        self.address = address
        """What admission counts it under, "" for none."""
        self.endpoint = ""
        """The relay's listener that it came through, "" for the one that every relay has."""
        self.dialled = ""
        """What the relay calls the other side, where this node dialled it."""
        self.identity: bytes | None = None
        """What the peer proved, None until it has."""


class Watcher(Protocol):
    """What gets every connection at its two ends."""

    def opened(self, connection: Connection) -> None:
        """A connection is established."""

    def closed(self, connection: Connection, reason: str, now: Instant) -> None:
        """A connection is over; ``reason`` is a documented refusal or the way in which it ended."""


class Connections:
    """As many as admission lets in, and those that the node dialled."""

    def __init__(self) -> None:
        """Start with none; set ``watcher`` to be given each of them."""
        self._open: dict[int, Connection] = {}
        self._newest: dict[tuple[str, bytes], Connection] = {}
        """By protocol and identity; all of them are open."""
        self.watcher: Watcher | None = None
        self.on_identified: Callable[[Connection, Connection | None], None] | None = None
        """Called with a connection that has proved its identity, and an older one of the same identity that is open."""

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._open.values())

    def add(self, connection: Connection) -> None:
        """A connection is established."""
        self._open[connection.peer] = connection
        if self.watcher is not None:
            self.watcher.opened(connection)

    def identify(self, peer: int, identity: bytes) -> None:
        """A connection proved who it is; one that is not open is left alone."""
        connection = self._open.get(peer)
        if connection is None:
            return
        connection.identity = identity
        older = self._newest.get((connection.protocol, identity))
        self._newest[connection.protocol, identity] = connection
        if self.on_identified is not None:
            self.on_identified(connection, older if older is not connection else None)

    def remove(self, peer: int, reason: str, now: Instant) -> Connection:
        """Return a connection that is over; it is no longer one of these."""
        connection = self._open.pop(peer)
        name = connection.protocol, connection.identity or b""
        if self._newest.get(name) is connection:
            del self._newest[name]
        if self.watcher is not None:
            self.watcher.closed(connection, reason, now)
        return connection
