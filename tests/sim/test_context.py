"""What all actors share."""

from tests.sim.merk.build import QUIET
from waystation.core.instant import Instant
from waystation.sim.context import Context
from waystation.sim.observations import Unfulfilled
from waystation.sim.schedule import Schedule


def make():
    """Return a context and what was observed in it."""
    observed = []
    return Context(Schedule(), QUIET, observed.append), observed


def test_connections_have_numbers():
    """No two connections share one."""
    context, _ = make()

    assert [context.next_connection() for _ in range(3)] == [1, 2, 3]


def test_clocks_go_with_the_schedule():
    """Wall clocks move with simulated time; one that is set wrong stays so."""
    context, _ = make()
    before = context.wall_s, context.wall_ms(-5)
    context.schedule.run(Instant(2_000_000))

    assert (context.wall_s, context.wall_ms(-5)) == (before[0] + 2, before[1] + 2_000)
    assert context.wall_ms() == context.wall_ms(-5) + 5


def test_what_has_not_come_true_is_reported():
    """Each pending expectation is a complaint, in their order."""
    context, observed = make()
    context.pending.update({b"a": "one", b"b": "two", b"c": "three"})
    context.pending.pop(b"b")
    context.report_pending()

    assert observed == [Unfulfilled("one"), Unfulfilled("three")]
