"""Laws of protocols.strata.limits."""

import pytest

from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.strata import limits
from waystation.protocols.strata.limits import RATES_PER_MINUTE, Kind, Limits, Rank, Scope
from waystation.protocols.strata.refusals import Code

HOST = Scope("192.0.2.1", Rank.ANONYMOUS)


def at(seconds):
    """Return an instant."""
    return Instant(int(seconds * MICROSECONDS_PER_SECOND))


@pytest.mark.parametrize(("rank", "kind"), [pair for pair in RATES_PER_MINUTE if pair[1] is not Kind.BYTES])
def test_a_minute_holds_its_allowance(rank, kind):
    """Exactly so many pass at once, the next is refused with when to come back, and then it passes."""
    allowed, scope = Limits(enabled=True), Scope("x", rank)
    rate = RATES_PER_MINUTE[rank, kind]
    assert all(allowed.take(scope, kind, at(0)) is None for _ in range(rate))
    refusal = allowed.take(scope, kind, at(0))

    extra = dict(refusal.extra)
    assert (refusal.code, refusal.detail) == (Code.RATE_LIMITED, kind.value)
    assert extra == {
        "retry_after": max(1, -(-60 // rate)),
        "limit": rate,
        "remaining": 0,
        "window_seconds": 60,
    }
    assert allowed.take(scope, kind, at(extra["retry_after"])) is None


def test_spec_rates():
    """specs/strata.md 14 gives these numbers."""
    anonymous, authenticated, relay = Rank.ANONYMOUS, Rank.AUTHENTICATED, Rank.REPLICATING
    rates = [RATES_PER_MINUTE[rank, kind] for rank in (anonymous, authenticated, relay)
             for kind in (Kind.PUBLISH, Kind.SUBSCRIBE)]  # fmt: skip

    assert rates == [30, 30, 600, 120, 6_000, 60]
    assert RATES_PER_MINUTE[anonymous, Kind.AUTH] == 20


def test_scopes_and_kinds_do_not_touch_each_other():
    """One host's flood takes nothing from another's, nor its packets from its subscriptions."""
    allowed = Limits(enabled=True)
    for _ in range(31):
        allowed.take(HOST, Kind.PUBLISH, at(0))

    assert allowed.take(HOST, Kind.SUBSCRIBE, at(0)) is None
    assert allowed.take(Scope("192.0.2.2", Rank.ANONYMOUS), Kind.PUBLISH, at(0)) is None
    assert allowed.take(HOST, Kind.PUBLISH, at(0)) is not None


def test_large_requests_say_how_long_they_wait():
    """What needs more than is left waits for all of it, and spends nothing meanwhile."""
    allowed = Limits(enabled=True)
    rate = RATES_PER_MINUTE[Rank.ANONYMOUS, Kind.BYTES]
    assert allowed.take(HOST, Kind.BYTES, at(0), rate) is None
    refusal = dict(allowed.take(HOST, Kind.BYTES, at(0), rate // 2).extra)

    assert refusal["retry_after"] == 30
    assert allowed.take(HOST, Kind.BYTES, at(29), rate // 2) is not None
    assert allowed.take(HOST, Kind.BYTES, at(30), rate // 2) is None


def test_switched_off_everything_passes():
    """Without rate limits nothing is counted or kept."""
    lifted = Limits(enabled=False)

    assert all(lifted.take(HOST, Kind.PUBLISH, at(0)) is None for _ in range(1_000))
    assert len(lifted) == 0


def test_scopes_are_bounded(monkeypatch):
    """The longest silent scope is forgotten for a new one, and one that is active keeps its count."""
    monkeypatch.setattr(limits, "SCOPES_MAX", 3)
    allowed = Limits(enabled=True)
    for number in range(31):
        allowed.take(HOST, Kind.PUBLISH, at(0))
        allowed.take(Scope(f"host {number}", Rank.ANONYMOUS), Kind.PUBLISH, at(0))

    assert len(allowed) == 3
    assert allowed.take(HOST, Kind.PUBLISH, at(0)) is not None
