"""Invariants of the frames that Bhumi relays send and the addresses that they dial, one checker class each.

``invariants`` lists them. A ``Tap`` at each relay observes the frames; the checkers decode them with a codec of their
own, so that the relay's mistakes cannot hide.
"""

from collections import deque
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.bhumi.messages import Feature
from waystation.sim.bhumi import codec
from waystation.sim.bhumi import observations as seen
from waystation.sim.bhumi.forgery import is_private
from waystation.sim.bhumi.record_invariants import QUESTIONS_BURST, QUESTIONS_PER_SECOND
from waystation.sim.invariants import Invariant
from waystation.sim.observations import Sized

__all__ = ["GuardedDials", "Negotiated", "Prompt"]

ANSWER_US: Final = 2 * MICROSECONDS_PER_SECOND
"""How long a relay may take for an answer."""

_FEATURE_OF: Final = {
    0x42: Feature.BINDING,
    0x43: Feature.I_AM_OK,
    **dict.fromkeys(range(codec.PRESENCE, codec.RELAYS + 1), Feature.PRESENCE),
    0x4A: Feature.QA,
    codec.GOSSIP: Feature.PRESENCE,
}
"""What must be agreed on before a relay sends a frame of this type; OPTIONS itself is missing."""


class Negotiated(Invariant):
    """An extension frame goes only where its feature was agreed on, and is laid out as the specification says."""

    name = "negotiated"

    def _on_sent(self, sent: seen.FrameSent, _now: Instant) -> None:
        if sent.features is None:
            raise self.broken(f"relay {sent.node} sends {sent.kind:#x} to a connection that never sent OPTIONS")
        feature = _FEATURE_OF.get(sent.kind)
        if sent.kind != codec.OPTIONS and (feature is None or not sent.features & feature):
            raise self.broken(f"relay {sent.node} sends {sent.kind:#x} where it was not agreed on")
        if not sent.is_readable:
            raise self.broken(f"relay {sent.node} sends a {sent.kind:#x} that cannot be read")


class Prompt(Invariant):
    """Every question gets one answer, soon and in order; a flood of questions gets no more than the named rate."""

    name = "prompt"

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int], deque[tuple[Instant, bytes]]] = {}
        self._filled: dict[tuple[int, int], deque[Instant]] = {}
        """When answers with a hint were sent lately, by connection."""

    def _on_began(self, began: seen.RelayBegan, _now: Instant) -> None:
        self._waiting = {place: waiting for place, waiting in self._waiting.items() if place[0] != began.node}
        self._filled = {place: times for place, times in self._filled.items() if place[0] != began.node}

    def _on_questioned(self, question: seen.QueryReceived, now: Instant) -> None:
        self._waiting.setdefault((question.node, question.peer), deque()).append((now, question.identity))

    def _on_answered(self, answered: seen.QueryAnswered, now: Instant) -> None:
        place = (answered.node, answered.peer)
        waiting = self._waiting.get(place)
        if not waiting or waiting.popleft()[1] != answered.identity:
            raise self.broken(f"relay {answered.node} gives an answer that is not the next one's")
        if not answered.records:
            return
        times = self._filled.setdefault(place, deque())
        times.append(now)
        # Over any second there are at most a full bucket, what drips into it, and one for the rounding.
        while times[0] < now - MICROSECONDS_PER_SECOND:
            times.popleft()
        if len(times) > QUESTIONS_BURST + QUESTIONS_PER_SECOND + 1:
            raise self.broken(f"relay {answered.node} answers {len(times)} questions of one connection in a second")

    def _on_sized(self, sized: Sized, now: Instant) -> None:
        """Look whether a question has waited for too long; now is as good as any time."""
        for (node, peer), waiting in self._waiting.items():
            if node == sized.node and waiting and now - waiting[0][0] > ANSWER_US:
                raise self.broken(f"relay {node} does not answer the question of connection {peer}")

    def _on_parted(self, parted: seen.Parted, _now: Instant) -> None:
        self._waiting.pop((parted.node, parted.peer), None)
        self._filled.pop((parted.node, parted.peer), None)


class GuardedDials(Invariant):
    """No advert makes a relay dial a private address, or hand one on, unless its operator allows that."""

    name = "guarded-dials"

    def __init__(self) -> None:
        self._may: set[int] = set()
        """Relays whose operator allows it."""

    def _on_began(self, began: seen.RelayBegan, _now: Instant) -> None:
        if began.dials_private:
            self._may.add(began.node)

    def _on_dialled(self, dialled: seen.Dialled, _now: Instant) -> None:
        if dialled.is_configured or dialled.node in self._may:
            return
        if not dialled.only_public or is_private(dialled.url):
            raise self.broken(f"relay {dialled.node} would dial {dialled.url} wherever it leads")

    def _on_sent(self, sent: seen.RecordSent, _now: Instant) -> None:
        if sent.node not in self._may and is_private(sent.record.address):
            raise self.broken(f"relay {sent.node} passes on an advert for {sent.record.address}")
