"""Remembers a host's answers, so that a repeated packet gets the same one, and the signatures of accepted mail.

The relay asks it before it does anything else with a packet. A datagram that arrives twice, byte for byte, gets the
same answer and changes nothing (LPRP-D10). A packet is accepted from 2**19 ms before its time until 2**19 ms after it.
Answers are kept for that whole span, so a later copy fails the time check. Spec: lprp 4.4, 6 (LPRP-D10), 7, 10.4.
"""

from collections import OrderedDict, deque
from typing import Final

from waystation.core.instant import MICROSECONDS_PER_MS, Instant
from waystation.core.limits import surplus
from waystation.core.settings import InForce
from waystation.protocols.lprp.limits import LprpLimits
from waystation.protocols.lprp.messages import CLOCK_WINDOW_MS

__all__ = ["ANSWER_LIFE_MS", "Answers", "Seen"]

ANSWER_LIFE_MS: Final = 2 * CLOCK_WINDOW_MS  # lprp 4.4; exactly this much is still alive

_LIFE_US: Final = ANSWER_LIFE_MS * MICROSECONDS_PER_MS
_FINGERPRINT_BYTES: Final = 16  # lprp 7: enough, since two signatures of one key that begin alike gain nothing
_CLEARED_AT_ONCE_MAX: Final = 8  # ours: a pause must not make the next look-up a long one


class Answers:
    """Remembers the answer to each packet, under all of the packet's bytes: no other sender can ask for it."""

    __slots__ = ("_answers", "_limits")

    def __init__(self, limits: InForce[LprpLimits]) -> None:
        """Start empty; beyond ``stored_answers`` the oldest goes."""
        self._limits = limits
        self._answers: OrderedDict[bytes, tuple[bytes, Instant]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def keep(self, packet: bytes, answer: bytes, now: Instant) -> None:
        """Remember the answer instead of any that the packet had before; its life begins now."""
        self._answers[packet] = (answer, now)
        # Spec 7: 32,768 stored answers; beyond them the oldest goes.
        self._answers.move_to_end(packet)
        for _ in range(surplus(len(self._answers), self._limits.now.stored_answers)):
            self._answers.popitem(last=False)

    def find(self, packet: bytes) -> bytes | None:
        """Return the answer to exactly these bytes; call ``expire`` before, once for as many look-ups as you like."""
        kept = self._answers.get(packet)
        return None if kept is None else kept[0]

    def forget(self, packet: bytes) -> None:
        """Drop the answer, if there is one: the packet is handled anew when it comes again."""
        self._answers.pop(packet, None)

    def expire(self, now: Instant) -> None:
        """Drop what is older than 2 * 2**19 ms."""
        # Spec 7: stored answers live for 2^20 ms.
        while (due := self.next_expiry()) is not None and due <= now:
            self._answers.popitem(last=False)

    def next_expiry(self) -> Instant | None:
        """Return when ``expire`` has something to drop next, None while nothing is remembered."""
        if not self._answers:
            return None
        _, kept_at = next(iter(self._answers.values()))
        return Instant(kept_at + _LIFE_US + 1)


class Seen:
    """Remembers signatures by their first 16 bytes, each until its packet would be too old to be taken anyway.

    Times are milliseconds of the wall clock, as in packets. A lost entry means only that the recipient has to filter.
    """

    __slots__ = ("_limits", "_order", "_until")

    def __init__(self, limits: InForce[LprpLimits]) -> None:
        """Start empty; beyond ``known_packets`` the oldest goes."""
        self._limits = limits
        self._until: dict[bytes, int] = {}
        # A queue beside a plain dict takes two thirds of an OrderedDict's memory, and here there are many.
        self._order: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._until)

    def add(self, signature: bytes, until_ms: int) -> None:
        """Remember a signature of 64 bytes until ``until_ms``, that moment included; known ones keep their place."""
        fingerprint = signature[:_FINGERPRINT_BYTES]
        if fingerprint not in self._until:
            self._order.append(fingerprint)
        self._until[fingerprint] = until_ms
        # Spec 7: 262,144 signatures of accepted 102s; beyond them the recipient filters.
        for _ in range(surplus(len(self._order), self._limits.now.known_packets)):
            del self._until[self._order.popleft()]

    def has(self, signature: bytes, wall_ms: int) -> bool:
        """Return whether the signature was added and its time is not over."""
        self._clear(wall_ms)
        until_ms = self._until.get(signature[:_FINGERPRINT_BYTES])
        return until_ms is not None and until_ms >= wall_ms

    def _clear(self, wall_ms: int) -> None:
        for _ in range(_CLEARED_AT_ONCE_MAX):
            if not self._order or self._until[self._order[0]] >= wall_ms:
                return
            del self._until[self._order.popleft()]
