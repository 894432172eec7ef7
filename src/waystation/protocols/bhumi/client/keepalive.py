"""Decides when KEEPALIVE is sent to a relay, and when one that echoes it is gone.

A relay from which nothing comes is asked after two thirds of the limit, and has the rest of it for the echo. One that
does talk gets KEEPALIVE all the same, since it drops who says nothing (BHUMI-L). The original relay never echoes.
"""

from typing import Final

from waystation.core.instant import Instant, after_ms

__all__ = ["KEEPALIVE_MS", "SILENCE_MS", "KeepaliveTimer"]

KEEPALIVE_MS: Final = 45_000  # twice within the 120 s after which a relay drops an idle identity, BHUMI-L
SILENCE_MS: Final = 30_000  # NODE-SILENCE
_TRAVEL_MS: Final = 1_000  # so that the end is reported within the limit


class KeepaliveTimer:
    """The KEEPALIVE of one connection."""

    __slots__ = ("_ask_ms", "_gone_ms", "_sent_at")

    def __init__(self, silence_ms: int = SILENCE_MS) -> None:
        """Begin with nothing sent; the relay may be silent for ``silence_ms``."""
        self._ask_ms = silence_ms * 2 // 3
        self._gone_ms = max(silence_ms - _TRAVEL_MS, self._ask_ms)
        self._sent_at = Instant(0)

    def sent(self, now: Instant) -> None:
        """Note that KEEPALIVE was sent."""
        self._sent_at = now

    def due_at(self, received_at: Instant, *, echoes: bool) -> Instant:
        """Return when the next KEEPALIVE is due.

        Args:
            received_at: When the last byte came.
            echoes: Whether the relay answers KEEPALIVE.
        """
        regular = after_ms(self._sent_at, KEEPALIVE_MS)
        return min(regular, after_ms(max(received_at, self._sent_at), self._ask_ms)) if echoes else regular

    def gone_at(self, received_at: Instant) -> Instant:
        """Return when a relay that echoes is gone, unless a byte comes before."""
        return after_ms(received_at, self._gone_ms)
