"""The limit on how many trust edges (statements that one author trusts another) an author may publish in 24 hours.

The intake asks it for each such packet. Strong edges (strength above 0.5) and weak ones are counted separately. A
revocation counts as a weak edge and restores no allowance, so repeated adding and revoking is limited too. The time is
when the relay received the edge. A replica has an older time and counts in the 24 hours before it was first received.
Spec: RFC-0005 5.2 through specs/strata.md 8; decision STRATA-TRUST.
"""

from bisect import bisect_right, insort
from collections import OrderedDict
from typing import Final

import orjson

from waystation.core.limits import surplus
from waystation.core.packets import PacketQuery, PacketReader
from waystation.core.settings import InForce
from waystation.protocols.strata.limits import StrataLimits
from waystation.protocols.strata.refusals import Code, Refusal
from waystation.protocols.strata.relay.reading import read_some

__all__ = ["EDGE_TYPES", "TrustBudget", "is_strong"]

EDGE_TYPES: Final = ("TRUST_EDGE", "TRUST_REVOCATION")
WINDOW_S: Final = 86_400
STRONG_ABOVE: Final = 0.5
EDGES_REMEMBERED_MAX: Final = 512  # of one author and strength: five days of weak ones; older ones are free
_Times = list[int]


def is_strong(content: dict[str, object]) -> bool:
    """Return whether the content is an edge with a strength above 0.5."""
    strength = content.get("strength")
    # Spec 8: a revocation is one of the others, whatever its strength.
    return content.get("type") == "TRUST_EDGE" and isinstance(strength, int | float) and strength > STRONG_ABOVE


class TrustBudget:
    """Edges of the last 24 hours per author, stored and pending."""

    def __init__(self, packets: PacketReader, limits: InForce[StrataLimits]) -> None:
        """Count stored edges from ``packets``."""
        self._packets = packets
        self._limits = limits
        self._drawn: OrderedDict[str, tuple[_Times, _Times]] = OrderedDict()

    def __len__(self) -> int:
        """Return how many authors are counted in memory."""
        return len(self._drawn)

    def refuses(self, author_id: str, *, strong: bool, received_at: int) -> Refusal | None:
        """Return ``rate_limited`` when the author's budget of this strength is spent."""
        times = self._times(author_id, strong=strong)
        # A replica counts in the 24 h before its own receive time, so later edges are left out.
        times = times[bisect_right(times, received_at - WINDOW_S) : bisect_right(times, received_at)]
        limits = self._limits.now
        # Spec 8: 20 edges with strength above 0.5 and 100 others in 24 h of reception.
        limit = limits.trust_edges_strong if strong else limits.trust_edges_weak
        if len(times) < limit:
            return None
        return Refusal(
            Code.RATE_LIMITED,
            "trust_edges",
            extra=(
                # When the oldest edge that fills the budget leaves the window.
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

    def forget(self, author_id: str) -> None:
        """Count an author anew from the store: an edge that was accepted could not be stored."""
        self._drawn.pop(author_id, None)

    def _times(self, author_id: str, *, strong: bool) -> _Times:
        """Return when edges of this strength were received, the oldest first."""
        drawn = self._drawn.get(author_id)
        if drawn is None:
            # A forgotten author is counted again from the store.
            for _ in range(surplus(len(self._drawn) + 1, self._limits.now.trust_authors)):
                self._drawn.popitem(last=False)
            drawn = self._drawn[author_id] = self._stored(author_id)
        else:
            self._drawn.move_to_end(author_id)
        return drawn[strong]

    def _stored(self, author_id: str) -> tuple[_Times, _Times]:
        drawn: tuple[_Times, _Times] = ([], [])
        query = PacketQuery((author_id,), EDGE_TYPES, descending=True)
        for row in read_some(self._packets, query, EDGES_REMEMBERED_MAX):
            # The place in history never changes, so an earlier witness does not move an edge (D28).
            drawn[is_strong(orjson.loads(row.canonical)["content"])].append(row.order_at)
        for times in drawn:
            times.reverse()
        return drawn
