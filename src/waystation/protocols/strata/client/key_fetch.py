"""Decides whose key events a reader fetches, and counts what waits for them (STRATA-KEYS).

The client machine asks. A packet does not name its key, so a signature that does not verify may be of a key that the
author has added since. The reader then holds the subscription at that packet, fetches the author's key events from the
same relay, and judges the packet again; only then is the relay blamed. Authors are fetched in batches, one batch at a
time, so that a page of many authors costs a few SUBSCRIBEs.
Spec: RFC-0001 5.4; specs/strata.md 4.1, 24 (15).
"""

from collections import OrderedDict
from typing import Final

from waystation.protocols.strata.client.key_book import KEY_EVENT_TYPES, KeyBook
from waystation.protocols.strata.messages import Filters

__all__ = ["FETCH_ID", "HELD_BYTES_MAX", "HELD_MAX", "KeyFetch"]

FETCH_ID: Final = "key-events"
"""Id of the subscription by which the machine fetches."""
HELD_MAX: Final = 10_000
"""Messages of a connection that wait for key events, ours; beyond it the connection ends and is read again."""
HELD_BYTES_MAX: Final = 64 * 1_048_576
"""Their bytes, ours."""
_AUTHORS_MAX: Final = 1_000  # specs/strata.md 13: authors of a filter
_SHARE: Final = 8  # of the book that one batch may fill, so that several relays do not push out each other's authors


class KeyFetch:
    """The authors whose key events are wanted from one relay."""

    def __init__(self, book: KeyBook) -> None:
        """Begin with none; ``book`` will learn the key events."""
        self._batch_max = min(_AUTHORS_MAX, max(1, book.authors_max // _SHARE))
        self._wanted: OrderedDict[str, None] = OrderedDict()
        self._asked: frozenset[str] = frozenset()
        self._count = self._bytes = 0

    @property
    def is_under_way(self) -> bool:
        """Whether a batch is asked for."""
        return bool(self._asked)

    def reset(self) -> None:
        """Forget everything at the end of a connection."""
        self._wanted.clear()
        self._asked = frozenset()
        self._count = self._bytes = 0

    def hold(self, size: int) -> bool:
        """Count a message of ``size`` bytes that waits; return whether there is room for it."""
        self._count += 1
        self._bytes += size
        return self._count <= HELD_MAX and self._bytes <= HELD_BYTES_MAX

    def release(self, size: int) -> None:
        """Count a message of ``size`` bytes that does not wait any more."""
        self._count -= 1
        self._bytes -= size

    def want(self, author: str) -> None:
        """Fetch this author's key events with the next batch."""
        self._wanted[author] = None

    def want_ahead(self, author: str) -> None:
        """Fetch this author's key events for a packet that is judged later, unless they are asked for."""
        if author not in self._asked:
            self.want(author)

    def wants(self, author: str) -> bool:
        """Return whether the author is in a batch that has not begun."""
        return author in self._wanted

    def begin(self) -> Filters | None:
        """Return the filters of the next batch; None while one is under way, or nobody is wanted."""
        if self._asked or not self._wanted:
            return None
        asked = [self._wanted.popitem(last=False)[0] for _ in range(min(len(self._wanted), self._batch_max))]
        self._asked = frozenset(asked)
        return Filters(tuple(asked), KEY_EVENT_TYPES)

    def end(self) -> frozenset[str]:
        """Return the authors of the batch that has ended."""
        asked, self._asked = self._asked, frozenset()
        return asked
