"""The budget of trust edges: how many an author may draw in any 24 hours.

Strong edges (strength above 0.5) and weak ones are counted apart, and a revocation counts as a weak one and frees
nothing, so that edges cannot be drawn and withdrawn in circles. Counting goes by the time the relay received them;
replicas come with old times and in any order, and each counts in the 24 hours before it was first seen.
Spec: RFC-0005 5.2 through specs/strata.md 8; decision STRATA-TRUST.
"""

from bisect import bisect_right, insort
from collections import OrderedDict
from typing import Final

import orjson

from waystation.core.packets import PacketQuery, PacketReader
from waystation.protocols.strata.reading import read_some
from waystation.protocols.strata.refusals import Code, Refusal

__all__ = ["EDGE_TYPES", "TrustBudget", "is_strong"]

EDGE_TYPES: Final = ("TRUST_EDGE", "TRUST_REVOCATION")
STRONG_MAX: Final = 20
WEAK_MAX: Final = 100
WINDOW_S: Final = 86_400
STRONG_ABOVE: Final = 0.5
EDGES_REMEMBERED_MAX: Final = 512  # of one author and strength: five days of weak ones; older ones are free
AUTHORS_REMEMBERED_MAX: Final = 1_024  # others are counted again from the store when they come back
_Times = list[int]


def is_strong(content: dict[str, object]) -> bool:
    """Return whether the content is an edge with a strength above 0.5."""
    strength = content.get("strength")
    return content.get("type") == "TRUST_EDGE" and isinstance(strength, int | float) and strength > STRONG_ABOVE


class TrustBudget:
    """Edges of the last 24 hours per author, from the store and from what is on its way there."""

    def __init__(self, packets: PacketReader) -> None:
        """Count from ``packets`` what was received before."""
        self._packets = packets
        self._drawn: OrderedDict[str, tuple[_Times, _Times]] = OrderedDict()

    def refuses(self, author_id: str, *, strong: bool, received_at: int) -> Refusal | None:
        """Return ``rate_limited`` when the author's budget of this strength is spent."""
        times = self._times(author_id, strong=strong)
        times = times[bisect_right(times, received_at - WINDOW_S) : bisect_right(times, received_at)]
        limit = STRONG_MAX if strong else WEAK_MAX
        if len(times) < limit:
            return None
        return Refusal(
            Code.RATE_LIMITED,
            "trust_edges",
            extra=(
                ("retry_after", max(1, times[-limit] + WINDOW_S - received_at)),
                ("limit", limit),
                ("remaining", 0),
                ("window_seconds", WINDOW_S),
            ),
        )

    def spend(self, author_id: str, *, strong: bool, received_at: int) -> None:
        """Count an edge that was accepted."""
        times = self._times(author_id, strong=strong)
        insort(times, received_at)
        if len(times) > EDGES_REMEMBERED_MAX:
            del times[0]

    def _times(self, author_id: str, *, strong: bool) -> _Times:
        """Return when edges of this strength were received, the oldest first."""
        drawn = self._drawn.get(author_id)
        if drawn is None:
            if len(self._drawn) >= AUTHORS_REMEMBERED_MAX:
                self._drawn.popitem(last=False)
            drawn = self._drawn[author_id] = self._stored(author_id)
        else:
            self._drawn.move_to_end(author_id)
        return drawn[strong]

    def _stored(self, author_id: str) -> tuple[_Times, _Times]:
        drawn: tuple[_Times, _Times] = ([], [])
        query = PacketQuery((author_id,), EDGE_TYPES, descending=True)
        for row in read_some(self._packets, query, EDGES_REMEMBERED_MAX):
            drawn[is_strong(orjson.loads(row.canonical)["content"])].append(row.order_at)
        for times in drawn:
            times.reverse()
        return drawn
