"""What a plain GET of the public port gets: page and SDK, documents about the node, Strata's own, or 404."""

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from waystation.core.answers import HttpAnswer
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.limits import TokenBucket
from waystation.engine.admission import address_key
from waystation.server.well_known import JSON_HEADERS, WellKnown

__all__ = ["PublicPages", "StaticAnswer"]

GETS_PER_MINUTE: Final = 600  # as strata allows; a page with its modules is a tenth of it
ADDRESSES_MAX: Final = 65_536  # buckets of the longest silent address are forgotten for the next one
_WINDOW_S: Final = 60

StaticAnswer = Callable[[str], HttpAnswer | None]
"""Gets a path as the request line has it, and returns the file that stands there, None for none."""


class PublicPages:
    """Answers GETs from whoever knows the path first."""

    def __init__(
        self,
        documents: WellKnown,
        clock: Callable[[], Instant],
        *,
        static: StaticAnswer | None = None,
        strata: Callable[[str, str, Instant], HttpAnswer] | None = None,
        limited: bool = True,
    ) -> None:
        """Put pages together.

        Args:
            documents: About the node.
            clock: Monotonic time.
            static: Files; None without any.
            strata: Gets path, address and time of what nobody else knows, and has a limit of its own; None for 404.
            limited: Whether an address is told 429 when it asks too often.
        """
        self._documents = documents
        self._clock = clock
        self._static = static
        self._strata = strata
        self._limited = limited
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def knows(self, path: str) -> bool:
        """Return whether a file stands at ``path``."""
        return self._static is not None and self._static(path) is not None

    def answer(self, path: str, host: str) -> HttpAnswer:
        """Return what a GET gets.

        Args:
            path: As the request line has it, percent-encoded and with its query.
            host: The asker's address.
        """
        address, now = address_key(host), self._clock()
        if self._strata is not None and not self._is_ours(path):
            return self._strata(path, address, now)
        wait_s = self._wait_s(address, now)
        if wait_s:
            return _error(429, "rate_limited", ("Retry-After", str(wait_s)))
        found = self._static(path) if self._static is not None else None
        return found or self._documents.answer(_name(path)) or _error(404, "no such page")

    def _is_ours(self, path: str) -> bool:
        return self.knows(path) or self._documents.has(_name(path))

    def _wait_s(self, address: str, now: Instant) -> int:
        """Spend one GET of an address; return after how many seconds it has one again, 0 when it had."""
        if not self._limited:
            return 0
        bucket = self._buckets.get(address)
        if bucket is None:
            if len(self._buckets) >= ADDRESSES_MAX:
                self._buckets.popitem(last=False)
            bucket = self._buckets[address] = TokenBucket(GETS_PER_MINUTE, GETS_PER_MINUTE, now, period_s=_WINDOW_S)
        else:
            self._buckets.move_to_end(address)
        if bucket.take(now):
            return 0
        return max(1, -(-(bucket.ready_at() - now) // MICROSECONDS_PER_SECOND))


def _name(path: str) -> str:
    return path.partition("?")[0]


def _error(status: int, why: str, *headers: tuple[str, str]) -> HttpAnswer:
    return HttpAnswer(status, (*JSON_HEADERS, *headers), json.dumps({"error": why}).encode())
