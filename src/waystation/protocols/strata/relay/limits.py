"""Rate limits per minute, for each authenticated identity, or for the address of an anonymous client.

A session asks before it counts a request; ``pages`` asks for GETs. Each has one token bucket per kind of request, which
stores one minute's allowance and refills evenly. An authenticated client uses its own, larger buckets. Identities are
free to create, so the bytes of all clients of one address are also counted together. Spec: RFC-0004 6.1;
specs/strata.md 8, 14, clarification 9.
"""

from collections import OrderedDict
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple, cast

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.core.limits import TokenBucket, surplus
from waystation.core.settings import InForce
from waystation.protocols.strata.limits import StrataLimits
from waystation.protocols.strata.refusals import Code, Refusal

__all__ = ["Kind", "Limits", "Rank", "Scope", "rate_name", "rate_of"]

WINDOW_S: Final = 60


class Kind(Enum):
    """The kind of a counted request."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    AUTH = "auth"
    BYTES = "bytes"
    HTTP = "http"
    KEY_EVENTS = "key_events"
    SEARCHES = "searches"


class Rank(Enum):
    """The rank that an allowance belongs to."""

    ANONYMOUS = "anonymous"
    AUTHENTICATED = "authenticated"
    REPLICATING = "replicating"


class Scope(NamedTuple):
    """The subject of a count: a DID or an address key, and its rank."""

    subject: str
    rank: Rank


_SUFFIXES: Final = {Rank.ANONYMOUS: "_anonymous", Rank.AUTHENTICATED: "", Rank.REPLICATING: "_replicating"}
_NAMES: Final = {
    **{
        (rank, kind): f"{kind.value}_per_minute{suffix}"
        for rank, suffix in _SUFFIXES.items()
        for kind in (Kind.PUBLISH, Kind.SUBSCRIBE, Kind.BYTES, Kind.KEY_EVENTS, Kind.SEARCHES)
    },
    (Rank.ANONYMOUS, Kind.AUTH): "auth_per_minute",
    (Rank.ANONYMOUS, Kind.HTTP): "http_per_minute",
}
"""The setting of each allowance."""


def rate_name(rank: Rank, kind: Kind) -> str:
    """Return the name of the limit that says how many of a kind a rank may have in a minute."""
    return _NAMES[rank, kind]


def rate_of(limits: StrataLimits, rank: Rank, kind: Kind) -> int:
    """Return how many of a kind a rank may have in a minute."""
    return cast("int", getattr(limits, _NAMES[rank, kind]))


class Limits:
    """All buckets of one relay."""

    def __init__(self, limits: InForce[StrataLimits], *, enabled: bool) -> None:
        """Start with full buckets; without ``enabled`` every request passes."""
        self._limits = limits
        self._enabled = enabled
        self._buckets: OrderedDict[Scope, dict[Kind, TokenBucket]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, scope: Scope, kind: Kind, now: Instant, count: int = 1) -> Refusal | None:
        """Spend ``count``, or return ``rate_limited`` with when to come back."""
        # Spec 24.9: limits.enabled = false lifts allowances.
        if not self._enabled:
            return None
        bucket = self._bucket(scope, kind, now)
        if bucket.take(now, count):
            return None
        # Spec 11: retry_after is 1 or more; limit, remaining and window_seconds come with allowances of a minute.
        wait_us = bucket.ready_at(count) - now
        return Refusal(
            Code.RATE_LIMITED,
            kind.value,
            extra=(
                ("retry_after", max(1, -(-wait_us // MICROSECONDS_PER_SECOND))),
                ("limit", rate_of(self._limits.now, scope.rank, kind)),
                ("remaining", bucket.left),
                ("window_seconds", WINDOW_S),
            ),
        )

    def take_of_all(self, payers: Sequence[Scope], kind: Kind, now: Instant, count: int = 1) -> Refusal | None:
        """Spend ``count`` of every payer, or return the refusal of the first that has not got them."""
        for payer in payers:
            # An identity costs nothing, so the address that it comes from pays as well.
            refusal = self.take(payer, kind, now, count)
            if refusal is not None:
                return refusal
        return None

    def wait_s(self, payers: Sequence[Scope], kind: Kind, now: Instant) -> int:
        """Spend one of every payer and return 0, or return in how many seconds to ask again."""
        refusal = self.take_of_all(payers, kind, now)
        return 0 if refusal is None else int(dict(refusal.extra)["retry_after"])

    def charge_bytes(self, payers: Sequence[Scope], now: Instant, count: int) -> None:
        """Spend ``count`` bytes of every payer for something that was already done, or as many as it has left."""
        # Spec 14: what has been sent already is charged as far as there is something left.
        for payer in payers if self._enabled else ():
            bucket = self._bucket(payer, Kind.BYTES, now)
            bucket.refill(now)
            bucket.take(now, min(count, bucket.left))

    def _bucket(self, scope: Scope, kind: Kind, now: Instant) -> TokenBucket:
        # Spec 14: buckets per DID after AUTH, else per address.
        kinds = self._buckets.get(scope)
        if kinds is None:
            for _ in range(surplus(len(self._buckets) + 1, self._limits.now.scopes)):
                # A scope that returns later starts with full buckets: forgetting favours the client.
                self._buckets.popitem(last=False)
            kinds = self._buckets[scope] = {}
        else:
            self._buckets.move_to_end(scope)
        bucket, rate = kinds.get(kind), rate_of(self._limits.now, scope.rank, kind)
        if bucket is None:
            # Spec 14: a minute's allowance, refilled evenly.
            bucket = kinds[kind] = TokenBucket(rate, rate, now, period_s=WINDOW_S)
        bucket.change(rate, rate)  # a reload has replaced it, perhaps
        return bucket
