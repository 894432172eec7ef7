"""Says when two nodes have one key, such as two copies of a home that run at once (NODE-TWIN).

``NodeServer`` runs it and logs; ``server.operations`` shows its sentence. Relays note what they meet under their own
key (``rules.twins``). Connections of one node that stand at the same time and take turns between two places are noted
here. A proxy or a NAT in front of both hides the places, and so the turns.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import structlog

from waystation.core.ids import KEY_BYTES, encode_did
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.engine.connections import Connection, Connections
from waystation.rules.twins import Overlaps, Twin, Twins
from waystation.server.logs import short_peer

__all__ = ["HOUR_S", "TwinWatch"]

HOUR_S: Final = 3_600
"""For so long a twin is trouble, and has no further line."""

_LOOK_S: Final = 1.0
_BY_CHALLENGE: Final = "merk"  # its relay compares challenges, and so knows ourselves

_log = structlog.get_logger("waystation.server")


class _Host(Protocol):
    def twins(self) -> Twins | None: ...
    def has_node(self, key: bytes) -> bool: ...


class TwinWatch:
    """The keys that two nodes have, as this node sees it."""

    def __init__(
        self, own_key: bytes, hosts: Mapping[str, _Host], connections: Connections, clock: Callable[[], Instant]
    ) -> None:
        """Watch the connections and relays of a node, whose key is ``own_key``."""
        self._own_key = own_key
        self._own_names = {own_key, encode_did(own_key).encode()}
        self._hosts = hosts
        self._clock = clock
        self._overlaps = Overlaps()
        self._twins = Twins()
        self._said: dict[bytes, Instant] = {}
        self._met: dict[tuple[str, bool], tuple[str, Instant]] = {}
        """Where our own key was met last, and when, by protocol and whether we dialled."""
        connections.on_identified = self.identified

    def identified(self, connection: Connection, older: Connection | None) -> None:
        """Look at a connection that has proved its key, and at an older one of the same key that stands."""
        key, now = connection.identity or b"", self._clock()
        if key in self._own_names and connection.protocol != _BY_CHALLENGE:
            self._met[connection.protocol, bool(connection.dialled)] = _place(connection), now
        if older is None or _place(older) == _place(connection):
            return
        is_node = connection.dialled or older.dialled or self._hosts[connection.protocol].has_node(key)
        if is_node and self._overlaps.note(connection.protocol, key, now):
            self._twins.note(Twin(key, (_place(older), _place(connection))), now)

    async def watch(self) -> None:
        """Look every second, for ever."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.look()

    def look(self) -> None:
        """Log each key that was found to have two nodes, once an hour."""
        now = self._clock()
        self._judge_met(now)
        self._said = {key: at for key, at in self._said.items() if at > now - HOUR_S * MICROSECONDS_PER_SECOND}
        for key, places in self._lately():
            if key not in self._said:
                self._said[key] = now
                _log.warning("peer.twin", peer=_short(key), ours=key == self._own_key, places=list(places))

    def _judge_met(self, now: Instant) -> None:
        """Note our own key where it was met on one side alone: a dial of ourselves shows it on both within a second."""
        due = [met for met, (_, at) in self._met.items() if now - at >= MICROSECONDS_PER_SECOND]
        for protocol, dialled in due:
            if (protocol, dialled) not in self._met:
                continue  # the other side of one above
            place, _ = self._met.pop((protocol, dialled))
            if self._met.pop((protocol, not dialled), None) is None:
                self._twins.note(Twin(self._own_key, (place,)), now)

    def trouble(self) -> list[str]:
        """Return a sentence for each key that two nodes had within the last hour."""
        return [self._sentence(twin) for twin in self._lately()]

    def _lately(self) -> list[Twin]:
        since = Instant(self._clock() - HOUR_S * MICROSECONDS_PER_SECOND)
        kept = [self._twins, *(found for host in self._hosts.values() if (found := host.twins()) is not None)]
        return list({twin.key: twin for twins in kept for twin in twins.since(since)}.values())

    def _sentence(self, twin: Twin) -> str:
        places = " and ".join(twin.places)
        if twin.key == self._own_key:
            return (
                f"another node has our key; it was met at {places}: stop one of the two, and give it a home of its own"
            )
        return (
            f"two nodes have the key {_short(twin.key)}, or one of them is listed twice: {places}; "
            "write to their operator, since each of them loses what the other one gets"
        )


def _place(connection: Connection) -> str:
    return connection.dialled or connection.address


def _short(key: bytes) -> str:
    """Return a key as the log prints it; Strata's DIDs as they are."""
    return short_peer(key) if len(key) == KEY_BYTES else key.decode(errors="replace")
