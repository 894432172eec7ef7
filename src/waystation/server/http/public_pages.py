"""Answers plain GETs on a web port: the console's page and SDK, node documents, a protocol's pages, or 404.

``server.listeners`` gives ``answer`` to each web port's site: a path and a host go in, an ``HttpAnswer`` comes out. A
rate limit for each address applies, because nobody has proved an identity yet.
"""

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from waystation.core.answers import HttpAnswer
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.limits import TokenBucket
from waystation.engine.admission import AdmissionRefusal, address_key
from waystation.server.config.settings import LimitSettings
from waystation.server.http.well_known import JSON_HEADERS, WellKnown

__all__ = ["PublicPages", "StaticAnswer"]

ADDRESSES_MAX: Final = 65_536  # buckets of the longest silent address are forgotten for the next one
_WINDOW_S: Final = 60
_DEFAULT_LIMITS: Final = LimitSettings()  # a page with its modules is a tenth of a minute's GETs

StaticAnswer = Callable[[str], HttpAnswer | None]
"""Gets a path as the request line has it, and returns the file at that path, None for none."""


class PublicPages:
    """Answers GETs from the first source that has the path."""

    def __init__(
        self,
        documents: WellKnown,
        clock: Callable[[], Instant],
        *,
        static: StaticAnswer | None = None,
        fallback: Callable[[str, str, Instant, str], HttpAnswer] | None = None,
        limited: bool = True,
        limits: LimitSettings = _DEFAULT_LIMITS,
        on_refused: Callable[[AdmissionRefusal, Instant, str], None] = lambda _refusal, _now, _address: None,
    ) -> None:
        """Put pages together.

        Args:
            documents: About the node.
            clock: Monotonic time.
            static: Files; None without any.
            fallback: Gets path, address, time and ``Host`` of a GET of any other path, and has a limit of its own; None
                for 404.
            limited: Whether an address gets 429 when it asks too often.
            limits: How often that is; ``use_limits`` replaces them.
            on_refused: Gets the reason of each 429, its time, and what the address is counted under.
        """
        self._documents = documents
        self._clock = clock
        self._static = static
        self._fallback = fallback
        self._limited = limited
        self._limits = limits
        self._on_refused = on_refused
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def use_limits(self, limits: LimitSettings) -> None:
        """Hold addresses to these limits from their next GET on."""
        self._limits = limits

    def knows(self, path: str) -> bool:
        """Return whether there is a file at ``path``."""
        return self._static is not None and self._static(path) is not None

    def answer(self, path: str, host: str, named: str = "") -> HttpAnswer:
        """Return what a GET gets.

        Args:
            path: As the request line has it, percent-encoded and with its query.
            host: The asker's address.
            named: ``Host`` of the request, empty when it is unknown.
        """
        address, now = address_key(host), self._clock()
        if self._fallback is not None and not self._is_ours(path):
            return self._fallback(path, address, now, named)
        wait_s = self._wait_s(address, now)
        if wait_s:
            self._on_refused(AdmissionRefusal.GETS_RATE, now, address)
            return _error(429, "rate_limited", ("Retry-After", str(wait_s)))
        found = self._static(path) if self._static is not None else None
        return found or self._documents.answer(_name(path)) or _error(404, "no such page")

    def _is_ours(self, path: str) -> bool:
        return self.knows(path) or self._documents.has(_name(path))

    def _wait_s(self, address: str, now: Instant) -> int:
        """Spend one GET of an address; return after how many seconds it has one again, 0 when it had."""
        if not self._limited:
            return 0
        rate = self._limits.gets_per_minute
        bucket = self._buckets.get(address)
        if bucket is None:
            if len(self._buckets) >= ADDRESSES_MAX:
                self._buckets.popitem(last=False)
            bucket = self._buckets[address] = TokenBucket(rate, rate, now, period_s=_WINDOW_S)
        else:
            self._buckets.move_to_end(address)
            bucket.change(rate, rate)  # here and not for all at a reload, which is a long loop
        if bucket.take(now):
            return 0
        return max(1, -(-(bucket.ready_at() - now) // MICROSECONDS_PER_SECOND))


def _name(path: str) -> str:
    return path.partition("?")[0]


def _error(status: int, why: str, *headers: tuple[str, str]) -> HttpAnswer:
    return HttpAnswer(status, (*JSON_HEADERS, *headers), json.dumps({"error": why}).encode())
