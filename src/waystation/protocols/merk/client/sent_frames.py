"""The frames of one connection whose outcome is not known yet, in the order in which they were sent.

The client machine has one. A frame's time begins once it has left our own buffers; a relay that reports no outcomes
settles a frame by having taken it. Frames of equal bytes have their outcomes in the order in which they were sent.

Spec: specs/merk.md 6, 10.3; MERK-NOTICE.
"""

from collections import OrderedDict, deque
from typing import Final

from waystation.core.instant import Instant, after_ms

__all__ = ["NOTICE_MS", "SentFrames"]

NOTICE_MS: Final = 30_000  # once the frame has left: two look-ups of 5 s, and a recipient that reads slowly


class _Sent:
    """A frame whose outcome is not known."""

    __slots__ = ("due", "frame_hash")

    def __init__(self, frame_hash: bytes) -> None:
        self.frame_hash = frame_hash
        self.due: Instant | None = None
        """None while it may still wait in our own buffers."""


class SentFrames:
    """Frames under way, by number."""

    def __init__(self) -> None:
        """Begin with none."""
        self._sent: OrderedDict[int, _Sent] = OrderedDict()
        self._numbers_of: dict[bytes, deque[int]] = {}
        self._number = 0

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._sent)

    def add(self, frame_hash: bytes) -> None:
        """Note that a frame was given to the connection."""
        self._number += 1
        self._sent[self._number] = _Sent(frame_hash)
        self._numbers_of.setdefault(frame_hash, deque()).append(self._number)

    def settle(self, frame_hash: bytes) -> bool:
        """Forget the oldest frame of this hash, whose outcome is known now; return whether there is one."""
        numbers = self._numbers_of.get(frame_hash)
        if numbers is None:
            return False
        self._forget(numbers[0])
        return True

    def left(self, now: Instant) -> None:
        """Note that all frames have left our buffers: from now on each has ``NOTICE_MS``."""
        # Only frames sent since the last time have no due time yet; they are the last ones.
        for sent in reversed(self._sent.values()):
            if sent.due is not None:
                return
            sent.due = after_ms(now, NOTICE_MS)

    def deadline(self) -> Instant | None:
        """Return when the oldest frame is overdue, or None."""
        return next(iter(self._sent.values())).due if self._sent else None

    def overdue(self, now: Instant) -> list[bytes]:
        """Forget and return the frames whose time is over."""
        late: list[bytes] = []
        while self._sent:
            number, sent = next(iter(self._sent.items()))
            if sent.due is None or sent.due > now:
                break
            late.append(self._forget(number))
        return late

    def clear(self) -> list[bytes]:
        """Forget and return all of them."""
        return [self._forget(number) for number in tuple(self._sent)]

    def _forget(self, number: int) -> bytes:
        frame_hash = self._sent.pop(number).frame_hash
        numbers = self._numbers_of[frame_hash]
        numbers.remove(number)
        if not numbers:
            del self._numbers_of[frame_hash]
        return frame_hash
