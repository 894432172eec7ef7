"""Rate limits: what one identity, or else one address, may do in a minute.

Each scope has a bucket per kind that holds one minute's allowance and refills evenly. Whoever authenticates leaves the
address's buckets for its own, larger ones; but identities cost nothing, so the bytes of all that come from one address
are counted together as well. Spec: RFC-0004 6.1; specs/strata.md 8, 14, clarification 9.
"""

from collections import OrderedDict
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.limits import TokenBucket
from waystation.protocols.strata.refusals import Code, Refusal

__all__ = ["RATES_PER_MINUTE", "Kind", "Limits", "Rank", "Scope"]

SCOPES_MAX: Final = 65_536  # buckets of the longest silent scope are forgotten for the next one
WINDOW_S: Final = 60
_MIB: Final = 1_048_576


class Kind(Enum):
    """What is counted."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    AUTH = "auth"
    BYTES = "bytes"
    HTTP = "http"


class Rank(Enum):
    """Whose allowance holds."""

    ANONYMOUS = "anonymous"
    AUTHENTICATED = "authenticated"
    REPLICATING = "replicating"


class Scope(NamedTuple):
    """Who is counted: a DID or an address key, and with which allowance."""

    subject: str
    rank: Rank


RATES_PER_MINUTE: Final = {
    (Rank.ANONYMOUS, Kind.PUBLISH): 30,
    (Rank.ANONYMOUS, Kind.SUBSCRIBE): 30,
    (Rank.ANONYMOUS, Kind.AUTH): 20,
    (Rank.ANONYMOUS, Kind.BYTES): 8 * _MIB,
    (Rank.ANONYMOUS, Kind.HTTP): 600,
    (Rank.AUTHENTICATED, Kind.PUBLISH): 600,
    (Rank.AUTHENTICATED, Kind.SUBSCRIBE): 120,
    (Rank.AUTHENTICATED, Kind.BYTES): 160 * _MIB,
    (Rank.REPLICATING, Kind.PUBLISH): 6_000,
    (Rank.REPLICATING, Kind.SUBSCRIBE): 60,
    (Rank.REPLICATING, Kind.BYTES): 1_600 * _MIB,
}
"""Publish, subscribe and AUTH are those of specs/strata.md 14; bytes let every publish be of the largest size."""


class Limits:
    """All buckets of one relay."""

    def __init__(self, *, enabled: bool) -> None:
        """Start with full buckets; without ``enabled`` every request passes."""
        self._enabled = enabled
        self._buckets: OrderedDict[Scope, dict[Kind, TokenBucket]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, scope: Scope, kind: Kind, now: Instant, count: int = 1) -> Refusal | None:
        """Spend ``count``, or return ``rate_limited`` with when to come back."""
        if not self._enabled:
            return None
        bucket = self._bucket(scope, kind, now)
        if bucket.take(now, count):
            return None
        wait_us = bucket.ready_at(count) - now
        return Refusal(
            Code.RATE_LIMITED,
            kind.value,
            extra=(
                ("retry_after", max(1, -(-wait_us // MICROSECONDS_PER_SECOND))),
                ("limit", RATES_PER_MINUTE[scope.rank, kind]),
                ("remaining", bucket.left),
                ("window_seconds", WINDOW_S),
            ),
        )

    def take_bytes(self, payers: Sequence[Scope], now: Instant, count: int) -> Refusal | None:
        """Spend ``count`` bytes of every payer, or return the refusal of the first that has not got them."""
        for payer in payers:
            refusal = self.take(payer, Kind.BYTES, now, count)
            if refusal is not None:
                return refusal
        return None

    def charge_bytes(self, payers: Sequence[Scope], now: Instant, count: int) -> None:
        """Spend ``count`` bytes of every payer for something that was already done, or as many as it has left."""
        for payer in payers if self._enabled else ():
            bucket = self._bucket(payer, Kind.BYTES, now)
            bucket.refill(now)
            bucket.take(now, min(count, bucket.left))

    def _bucket(self, scope: Scope, kind: Kind, now: Instant) -> TokenBucket:
        kinds = self._buckets.get(scope)
        if kinds is None:
            if len(self._buckets) >= SCOPES_MAX:
                self._buckets.popitem(last=False)
            kinds = self._buckets[scope] = {}
        else:
            self._buckets.move_to_end(scope)
        bucket = kinds.get(kind)
        if bucket is None:
            rate = RATES_PER_MINUTE[scope.rank, kind]
            bucket = kinds[kind] = TokenBucket(rate, rate, now, period_s=WINDOW_S)
        return bucket
