"""Notices that two nodes have one key, such as two copies of a home (NODE-TWIN).

Bhumi's and MERK's relays and ``server.status.twin_watch`` feed it what they see; it returns the keys concerned for the
operator. Our own key at the other end of a connection may be ourselves, reached by a roundabout address. Ourselves have
signed, or sent, the very challenge of that connection; another node has not. At a third node two connections of one key
that stand at the same time and take turns come from two nodes: one node does not dial where it is connected.
"""

from collections import OrderedDict, deque
from typing import Final, NamedTuple

from waystation.core.instant import Instant, after_ms

__all__ = ["OVERLAPS_MIN", "OVERLAPS_WITHIN_MS", "Overlaps", "Twin", "Twins"]

TWINS_MAX: Final = 16
CHALLENGES_MAX: Final = 64
KEYS_MAX: Final = 1_024
OVERLAPS_MIN: Final = 3
"""So many times in a row a connection must come from elsewhere while the last one of its key stands."""
OVERLAPS_WITHIN_MS: Final = 600_000
"""They count for so long; a node that moves leaves a connection behind once."""


class Twin(NamedTuple):
    """One key that two nodes have."""

    key: bytes
    places: tuple[str, ...]
    """Where it was met, as addresses."""


class Twins:
    """Keys that two nodes have, as far as this one has met them; a few, the newest."""

    def __init__(self) -> None:
        """Begin with none."""
        self._seen: OrderedDict[Twin, Instant] = OrderedDict()
        self._signed: deque[bytes] = deque(maxlen=CHALLENGES_MAX)
        self._met: deque[bytes] = deque(maxlen=CHALLENGES_MAX)

    def note(self, twin: Twin, now: Instant) -> None:
        """Note a key that two nodes have."""
        self._seen[twin] = now
        self._seen.move_to_end(twin)
        if len(self._seen) > TWINS_MAX:
            self._seen.popitem(last=False)

    def since(self, at: Instant) -> list[Twin]:
        """Return those that were noted at ``at`` or later."""
        return [twin for twin, noted in self._seen.items() if noted >= at]

    def sign(self, challenge: bytes) -> None:
        """Note that we have signed the challenge of a connection that we dialled."""
        self._signed.append(challenge)

    def proved_ours(self, challenge: bytes, twin: Twin, now: Instant) -> None:
        """Our challenge was signed with our own key on a connection that we accepted."""
        self._met.append(challenge)
        if challenge not in self._signed:
            self.note(twin, now)

    def names_ours(self, challenge: bytes, twin: Twin, now: Instant) -> bool:
        """Return whether another node is where we dialled and found our own key; its challenge decides."""
        if challenge in self._met:
            return False
        self.note(twin, now)
        return True


class Overlaps:
    """Connections of one key from different places that stand at the same time. Cost: O(1)."""

    def __init__(self) -> None:
        """Begin with none."""
        self._times: OrderedDict[tuple[str, bytes], deque[Instant]] = OrderedDict()

    def note(self, protocol: str, key: bytes, now: Instant) -> bool:
        """Note one; return whether there were so many lately that two nodes must have the key."""
        times = self._times.setdefault((protocol, key), deque(maxlen=OVERLAPS_MIN))
        self._times.move_to_end((protocol, key))
        if len(self._times) > KEYS_MAX:
            self._times.popitem(last=False)
        times.append(now)
        return len(times) == OVERLAPS_MIN and now <= after_ms(times[0], OVERLAPS_WITHIN_MS)
