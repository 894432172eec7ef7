"""Knows which peers of a sender are away, as its requests find them, and reports each change once."""

import time
from collections.abc import Callable
from typing import Final

from waystation.core.ids import PublicKey
from waystation.sdk.bhumi.events import PeerOffline, PeerOnline, SenderEvent
from waystation.sdk.bhumi.state import BhumiState

__all__ = ["AWAY_MAX", "Liveness"]

AWAY_MAX: Final = 65_536
"""Peers remembered as away; the one that is away longest is forgotten, and reported again if it still is."""


class Liveness:
    """What requests have found; a peer that was never asked counts as online."""

    def __init__(
        self, state: BhumiState, report: Callable[[SenderEvent], None], *, clock: Callable[[], float] = time.time
    ) -> None:
        """Describe where changes go; ``clock`` gives Unix seconds."""
        self._state = state
        self._report = report
        self._clock = clock
        self._away: dict[bytes, float] = {}

    def is_away(self, peer: bytes) -> bool:
        """Return whether the last request to a peer found it away."""
        return peer in self._away

    def note(self, peer: PublicKey, is_online: bool) -> None:
        """Note what a request found, and report it if it is new."""
        if is_online is (peer not in self._away):
            return
        known = self._state.peer(peer)
        alias = peer.hex()[:8] if known is None else known.name
        now_s = self._clock()
        if is_online:
            del self._away[peer]
            self._report(PeerOnline(peer, alias, now_s))
            return
        if len(self._away) >= AWAY_MAX:
            del self._away[next(iter(self._away))]
        self._away[peer] = now_s
        self._report(PeerOffline(peer, alias, now_s))
