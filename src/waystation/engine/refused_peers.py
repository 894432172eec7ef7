"""Remembers in memory which peers met which limit last, so that an operator sees who is refused and how often.

The recorder notes each refusal here, and ``server.limits_view`` reads the newest of each limit. A peer is named by its
identity, or by the network of its address when it has none. Nothing of it is journalled. The tables are bounded: the
peer that was refused longest ago is forgotten for a new one.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from waystation.core.facts import Refused
from waystation.core.instant import Instant

__all__ = ["PEERS_PER_REASON_MAX", "REASONS_MAX", "RefusedPeer", "RefusedPeers"]

PEERS_PER_REASON_MAX: Final = 16
REASONS_MAX: Final = 512
"""More than all protocols have reasons together."""


class RefusedPeer(NamedTuple):
    """One peer that met a limit."""

    subject: str
    """``id:`` and 64 hexadecimal digits, or ``net:`` and a network."""
    times: int
    last: Instant


class RefusedPeers:
    """The peers that each reason was last given to."""

    def __init__(self) -> None:
        self._by_reason: dict[tuple[str, str], OrderedDict[bytes, RefusedPeer]] = {}

    def note(self, fact: Refused, now: Instant) -> None:
        """Take one refusal; one that names no peer is left out."""
        key = fact.identity or fact.network
        if key is None:
            return
        peers = self._by_reason.get((fact.protocol, fact.reason))
        if peers is None:
            if len(self._by_reason) >= REASONS_MAX:
                return
            peers = self._by_reason[fact.protocol, fact.reason] = OrderedDict()
        before = peers.pop(key, None)
        if before is None:
            if len(peers) >= PEERS_PER_REASON_MAX:
                peers.popitem(last=False)
            before = RefusedPeer(f"id:{key.hex()}" if fact.identity else key.decode(), 0, now)
        peers[key] = RefusedPeer(before.subject, before.times + fact.times, now)

    def of(self, protocol: str, reason: str) -> list[RefusedPeer]:
        """Return the peers that a reason was given to, the latest first; at most ``PEERS_PER_REASON_MAX``."""
        return [*reversed(self._by_reason.get((protocol, reason), {}).values())]
