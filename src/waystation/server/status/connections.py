"""The open connections as an operator sees them: the heaviest of them, and counts by protocol.

``server.operations`` calls it for the admin port. A connection is shown with its identity or with its address, never
with both. Connections of a protocol that hides its senders are only counted, by network, until they prove an identity
(NODE-VIEW).
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from waystation.core.ids import KEY_BYTES, encode_id52
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.networks import network_of
from waystation.engine.connections import Connection
from waystation.server.logs import short_peer

__all__ = ["ConnectionView", "connected", "connection_views", "hidden_networks", "is_hidden"]

_NO_NETWORK: Final = "none"


class ConnectionView(NamedTuple):
    """One open connection."""

    protocol: str
    endpoint: str
    """The listener that it came through, "" for the usual one of the protocol."""
    direction: str
    """``in``, or ``out`` where this node dialled."""
    subject: str
    """``id:`` and hexadecimal digits, ``address:`` and the address, or ``name:`` and a DID or what was dialled."""
    id52: str
    """The identity as devices print it, "" without one."""
    short: str
    """The identity as the log prints it, "" without one."""
    age_s: int
    bytes_in: int
    bytes_out: int
    waiting_bytes: int
    """Sent to the peer and not taken by its host yet."""


def is_hidden(connection: Connection, hiding: frozenset[str]) -> bool:
    """Return whether a connection is counted and not shown; ``hiding`` names the protocols that hide senders."""
    return connection.protocol in hiding and connection.identity is None and not connection.dialled


def connection_views(
    connections: Iterable[Connection],
    hiding: frozenset[str],
    waiting: Callable[[int], int],
    count_max: int,
    now: Instant,
) -> list[ConnectionView]:
    """Return those that carried most bytes, at most so many; the newest first among equals.

    Cost: O(connections).
    """
    shown = (each for each in connections if not is_hidden(each, hiding))
    heaviest = heapq.nlargest(count_max, shown, key=lambda each: (each.traffic.total, each.since))
    return [_view(each, waiting(each.peer), now) for each in heaviest]


def hidden_networks(connections: Iterable[Connection], hiding: frozenset[str], count_max: int) -> dict[str, int]:
    """Return how many hidden connections each network has, the largest counts first, at most so many networks."""
    networks = Counter(network_of(each.address) or _NO_NETWORK for each in connections if is_hidden(each, hiding))
    return dict(networks.most_common(count_max))


def connected(connections: Iterable[Connection], names: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return connections, identified connections and bytes of each protocol in ``names``."""
    counts = {name: {"connections": 0, "identified": 0, "bytes_in": 0, "bytes_out": 0} for name in names}
    for each in connections:
        row = counts[each.protocol]
        row["connections"] += 1
        row["identified"] += each.identity is not None
        row["bytes_in"] += each.traffic.bytes_in
        row["bytes_out"] += each.traffic.bytes_out
    return counts


def _view(connection: Connection, waiting_bytes: int, now: Instant) -> ConnectionView:
    identity = connection.identity
    key = identity if identity is not None and len(identity) == KEY_BYTES else None
    return ConnectionView(
        protocol=connection.protocol,
        endpoint=connection.endpoint,
        direction="out" if connection.dialled else "in",
        subject=_subject(connection),
        id52=encode_id52(key) if key is not None else "",
        short=short_peer(key) if key is not None else "",
        age_s=max(0, now - connection.since) // MICROSECONDS_PER_SECOND,
        bytes_in=connection.traffic.bytes_in,
        bytes_out=connection.traffic.bytes_out,
        waiting_bytes=waiting_bytes,
    )


def _subject(connection: Connection) -> str:
    identity = connection.identity
    if identity is not None:  # Strata's DIDs of other methods than did:key are names
        return f"id:{identity.hex()}" if len(identity) == KEY_BYTES else f"name:{identity.decode(errors='replace')}"
    if connection.dialled:
        return f"name:{connection.dialled}"
    return f"address:{connection.address}"
