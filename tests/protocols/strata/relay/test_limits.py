"""Laws of protocols.strata.limits."""

import itertools
from dataclasses import replace

import pytest

from tests.protocols.strata.build import in_force
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.protocols.strata.limits import DEFAULT_LIMITS
from waystation.protocols.strata.refusals import Code
from waystation.protocols.strata.relay.limits import Kind, Limits, Rank, Scope, rate_of

HOST = Scope("192.0.2.1", Rank.ANONYMOUS)


def at(seconds):
    """Return an instant."""
    return Instant(int(seconds * MICROSECONDS_PER_SECOND))


@pytest.mark.parametrize(
    ("rank", "kind"),
    [
        *itertools.product(Rank, (Kind.PUBLISH, Kind.SUBSCRIBE)),
        (Rank.ANONYMOUS, Kind.AUTH),
        (Rank.ANONYMOUS, Kind.HTTP),
    ],
)
def test_a_minute_holds_its_allowance(rank, kind):
    """Exactly so many pass at once, the next is refused with when to come back, and then it passes."""
    allowed, scope = Limits(in_force(), enabled=True), Scope("x", rank)
    rate = rate_of(DEFAULT_LIMITS, rank, kind)
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
    rates = [rate_of(DEFAULT_LIMITS, rank, kind) for rank in (anonymous, authenticated, relay)
             for kind in (Kind.PUBLISH, Kind.SUBSCRIBE)]  # fmt: skip

    assert rates == [30, 30, 600, 120, 6_000, 60]
    assert rate_of(DEFAULT_LIMITS, anonymous, Kind.AUTH) == 20


def test_bucket_follows_a_new_limit_at_its_next_request():
    """Nothing is done for the others: a reload costs the same however many scopes are counted."""
    limits = in_force(publish_per_minute_anonymous=2)
    allowed = Limits(limits, enabled=True)
    before = [allowed.take(HOST, Kind.PUBLISH, at(0)) is None for _ in range(3)]
    limits.now = replace(limits.now, publish_per_minute_anonymous=60)
    raised = [allowed.take(HOST, Kind.PUBLISH, at(3)) is None for _ in range(4)]
    limits.now = replace(limits.now, publish_per_minute_anonymous=1)
    lowered = [allowed.take(HOST, Kind.PUBLISH, at(600)) is None for _ in range(2)]

    assert before == [True, True, False]
    assert raised == [True] * 3 + [False]
    assert lowered == [True, False]


def test_scopes_and_kinds_do_not_touch_each_other():
    """One host's flood takes nothing from another's, nor its packets from its subscriptions."""
    allowed = Limits(in_force(), enabled=True)
    for _ in range(31):
        allowed.take(HOST, Kind.PUBLISH, at(0))

    assert allowed.take(HOST, Kind.SUBSCRIBE, at(0)) is None
    assert allowed.take(Scope("192.0.2.2", Rank.ANONYMOUS), Kind.PUBLISH, at(0)) is None
    assert allowed.take(HOST, Kind.PUBLISH, at(0)) is not None


def test_large_requests_say_how_long_they_wait():
    """What needs more than is left waits for all of it, and spends nothing meanwhile."""
    allowed = Limits(in_force(), enabled=True)
    rate = rate_of(DEFAULT_LIMITS, Rank.ANONYMOUS, Kind.BYTES)
    assert allowed.take(HOST, Kind.BYTES, at(0), rate) is None
    refusal = dict(allowed.take(HOST, Kind.BYTES, at(0), rate // 2).extra)

    assert refusal["retry_after"] == 30
    assert allowed.take(HOST, Kind.BYTES, at(29), rate // 2) is not None
    assert allowed.take(HOST, Kind.BYTES, at(30), rate // 2) is None


def test_switched_off_everything_passes():
    """Without rate limits nothing is counted or kept."""
    lifted = Limits(in_force(), enabled=False)

    assert all(lifted.take(HOST, Kind.PUBLISH, at(0)) is None for _ in range(1_000))
    assert len(lifted) == 0


def test_scopes_are_bounded():
    """The longest silent scope is forgotten for a new one, and one that is active keeps its count."""
    allowed = Limits(in_force(scopes=3), enabled=True)
    for number in range(31):
        allowed.take(HOST, Kind.PUBLISH, at(0))
        allowed.take(Scope(f"host {number}", Rank.ANONYMOUS), Kind.PUBLISH, at(0))

    assert len(allowed) == 3
    assert allowed.take(HOST, Kind.PUBLISH, at(0)) is not None
