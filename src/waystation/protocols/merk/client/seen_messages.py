"""Detects repeated messages by sender and message id, for 14 days and across restarts.

The client machine asks for every message that passed its checks, ``sdk.merk`` gives it a ``SeenStore``. Any relay could
deliver a frame again. A bound message has a time and an id inside its encryption or signature: its id is remembered
until it would be too old anyway, and a message too old is refused. A message of the original has neither: its id is a
hash of its bytes, kept for 14 days when it is encrypted with a fresh key, and for ten minutes when it is only signed,
because a client of the original signs the same words twice as the same bytes.

A message is remembered in memory when it arrives, and in the store when the program has taken it, so that one that was
lost with the program can be delivered again. The memory is bounded. For room, the sender with the most entries loses
its oldest ones, and nothing of that sender that is as old is accepted any more: one sender's flood costs that sender.
Where all have few, the sender that came last is forgotten, and nothing as old is accepted of any sender that is not
remembered: keys cost nothing, so a flood from many costs those who write for the first time, and no one else.

Spec: specs/merk.md 8; MERK-SEEN.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from waystation.protocols.merk.payload.contents import Extended, FilePart, Receipt
from waystation.protocols.merk.payload.sealing import Auth, Mode, Opened
from waystation.protocols.merk.refusals import Refusal

__all__ = ["AHEAD_MS", "FEW", "SEEN_COUNT_MAX", "SEEN_MS", "SIGNED_MS", "Seen", "SeenMessages", "SeenStore"]

SEEN_MS: Final = 1_209_600_000
"""How long a bound message may be under way, and how long its id is remembered: 14 days."""
AHEAD_MS: Final = 86_400_000
"""How far a sender's clock may be ahead of ours: a day, as of a clock without its time zone."""
SIGNED_MS: Final = 600_000  # specs/merk.md 8: what a client of the original has signed counts once in ten minutes
SEEN_COUNT_MAX: Final = 65_536  # ours: two minutes of 500 frames a second, the most a relay takes of one sender
FEW: Final = 16  # ours: so many entries a sender keeps, whoever else floods; above it the largest give first
_NEWCOMERS: Final = b""
_ROOM_SHARE: Final = 16  # so much of the memory is cleared at once, because finding what to forget looks at all senders
_CLEANED_MS: Final = 3_600_000  # how often the store drops what is too old


class Seen(NamedTuple):
    """One message that was taken."""

    sender: bytes
    """32-byte key."""
    message_id: bytes
    """16 bytes; of a file in parts its transfer id."""
    time_ms: int
    """Unix milliseconds: of a bound message its own time, else when it arrived."""


class SeenStore(Protocol):
    """Where the memory outlives the program."""

    def load(self) -> tuple[list[Seen], dict[bytes, int]]:
        """Return what was remembered, by ascending time, and the floor of each sender; that of newcomers is empty."""

    def remember(self, seen: Seen) -> None:
        """Keep a message that the program has taken."""

    def raise_floor(self, sender: bytes, floor_ms: int) -> None:
        """Drop what a sender said up to ``floor_ms``, and keep that time as its floor; empty bytes: of newcomers."""

    def forget(self, sender: bytes) -> None:
        """Drop everything about a sender."""

    def expire(self, until_ms: int) -> None:
        """Drop everything of this time and before."""


class SeenMessages:
    """Remembers messages; share one between the connections of an identity."""

    def __init__(self, store: SeenStore | None = None, count_max: int = SEEN_COUNT_MAX) -> None:
        """Begin with what ``store`` holds; None remembers in memory alone."""
        self._store = store
        self._count_max = count_max
        self._signed: OrderedDict[tuple[bytes, bytes], int] = OrderedDict()
        self._senders: dict[bytes, dict[bytes, int]] = {}
        self._arrivals: deque[Seen] = deque()
        self._floors: dict[bytes, int] = {}
        """Up to which time something of a sender was forgotten; of ``_NEWCOMERS``, of senders not remembered."""
        self._count = 0
        self._cleaned_ms = 0
        if store is not None:
            seen, self._floors = store.load()
            for each in seen:
                self._put(each)

    def __len__(self) -> int:
        """Return how many are remembered."""
        return self._count + len(self._signed)

    def refusal_of(self, opened: Opened, wall_ms: int) -> Refusal | None:
        """Return why a message is not taken, DUPLICATE or STALE, and remember one that is.

        Parts of a file are not remembered one by one: the file is, with ``taken``.

        Args:
            opened: What arrived and passed every other check.
            wall_ms: Now, Unix milliseconds.
        """
        if opened.mode is Mode.PLAIN:
            return None  # the same plain bytes may be meant twice
        content = opened.content
        if opened.auth is Auth.BOUND and isinstance(content, Extended):
            return self._bound_refusal(opened, content, wall_ms)
        if opened.mode is Mode.SIGNED:
            return self._signed_refusal(opened, wall_ms)
        return self._take(Seen(opened.sender, opened.message_id, wall_ms), wall_ms)

    def taken(self, sender: bytes, message_id: bytes, time_ms: int) -> None:
        """Remember for good a message that the program has taken; of a file in parts the transfer id."""
        seen = Seen(sender, message_id, time_ms)
        if message_id not in self._senders.get(sender, {}):
            self._admit(seen)
        if self._store is not None:
            self._store.remember(seen)
            if sender in self._floors:
                self._store.raise_floor(sender, self._floors[sender])

    def not_taken(self, sender: bytes, message_id: bytes) -> None:
        """Forget a message that could not be given to the program, so that it may come again."""
        of_sender = self._senders.get(sender, {})
        if of_sender.pop(message_id, None) is not None:
            self._count -= 1
            if not of_sender:
                del self._senders[sender]
                if self._floors.get(sender, -1) <= self._floors.get(_NEWCOMERS, -1):
                    self._floors.pop(sender, None)
        self._signed.pop((sender, message_id), None)

    def _bound_refusal(self, opened: Opened, content: Extended, wall_ms: int) -> Refusal | None:
        inner, sender, time_ms = content.content, opened.sender, content.time_ms
        if not max(self._floor_of(sender), wall_ms - SEEN_MS) < time_ms <= wall_ms + AHEAD_MS:
            return Refusal.STALE
        # The same receipt twice says nothing new.
        if isinstance(inner, Receipt):
            return None
        if isinstance(inner, FilePart):
            is_over = inner.transfer_id in self._senders.get(sender, {})
            return Refusal.DUPLICATE if is_over else None
        return self._take(Seen(sender, content.message_id, time_ms), wall_ms)

    def _floor_of(self, sender: bytes) -> int:
        own_ms = self._floors.get(sender, -1)
        return own_ms if sender in self._senders else max(own_ms, self._floors.get(_NEWCOMERS, -1))

    def _signed_refusal(self, opened: Opened, wall_ms: int) -> Refusal | None:
        while self._signed and next(iter(self._signed.values())) <= wall_ms - SIGNED_MS:
            self._signed.popitem(last=False)
        name = opened.sender, opened.message_id
        if name in self._signed:
            return Refusal.DUPLICATE
        self._signed[name] = wall_ms
        if len(self._signed) > self._count_max:
            self._signed.popitem(last=False)
        return None

    def _take(self, seen: Seen, wall_ms: int) -> Refusal | None:
        if seen.message_id in self._senders.get(seen.sender, {}):
            return Refusal.DUPLICATE
        self._expire(wall_ms)
        if self._count >= self._count_max:
            self._make_room()
        self._admit(seen)
        return None

    def _admit(self, seen: Seen) -> None:
        """Remember a message; what was forgotten of a newcomer stays refused once it is none any more."""
        floor_ms = self._floor_of(seen.sender)
        if floor_ms >= 0:
            self._floors[seen.sender] = floor_ms
        self._put(seen)

    def _put(self, seen: Seen) -> None:
        self._senders.setdefault(seen.sender, {})[seen.message_id] = seen.time_ms
        self._arrivals.append(seen)
        self._count += 1

    def _expire(self, wall_ms: int) -> None:
        """Forget what would be refused as too old by now."""
        while self._arrivals and self._arrivals[0].time_ms <= wall_ms - SEEN_MS:
            self.not_taken(self._arrivals[0].sender, self._arrivals.popleft().message_id)
        if len(self._arrivals) > 2 * self._count_max:  # arrivals in the order of a clock that ran ahead
            self._arrivals = deque(_in_order(self._senders))
        if wall_ms - self._cleaned_ms >= _CLEANED_MS:
            self._cleaned_ms = wall_ms
            self._floors = {sender: floor for sender, floor in self._floors.items() if floor > wall_ms - SEEN_MS}
            if self._store is not None:
                self._store.expire(wall_ms - SEEN_MS)

    def _make_room(self) -> None:
        """Forget the oldest entries of whoever has the most; where all have few, whole senders, the last one first."""
        wanted = self._count - self._count_max + max(1, self._count_max // _ROOM_SHARE)
        heap = [(-len(each), sender) for sender, each in self._senders.items() if len(each) > FEW]
        heapq.heapify(heap)
        while wanted > 0 and heap:
            _, sender = heapq.heappop(heap)
            of_sender = self._senders[sender]
            oldest = sorted(of_sender, key=of_sender.__getitem__)[: min(wanted, (len(of_sender) + 1) // 2)]
            self._raise_floor(sender, of_sender[oldest[-1]])
            for message_id in oldest:
                del of_sender[message_id]
            self._count -= len(oldest)
            wanted -= len(oldest)
            if len(of_sender) > FEW:
                heapq.heappush(heap, (-len(of_sender), sender))
        floor_ms = -1
        while wanted > 0:
            sender, of_sender = self._senders.popitem()
            floor_ms = max(floor_ms, self._floors.pop(sender, -1), *of_sender.values())
            self._count -= len(of_sender)
            wanted -= len(of_sender)
            if self._store is not None:
                self._store.forget(sender)
        self._raise_floor(_NEWCOMERS, floor_ms)

    def _raise_floor(self, sender: bytes, floor_ms: int) -> None:
        if floor_ms > self._floors.get(sender, -1):
            self._floors[sender] = floor_ms
            if self._store is not None:
                self._store.raise_floor(sender, floor_ms)


def _in_order(senders: dict[bytes, dict[bytes, int]]) -> Iterable[Seen]:
    every = (Seen(sender, name, time_ms) for sender, each in senders.items() for name, time_ms in each.items())
    return sorted(every, key=lambda seen: seen.time_ms)
