"""Laws of engine.gathering: what is summed up, what the sum keeps, and when it is written."""

from typing import NamedTuple

import pytest

from waystation.core.instant import Instant
from waystation.engine.gathering import Gathering, Rule


class Knock(NamedTuple):
    """A fact to sum up."""

    protocol: str
    who: str | None
    token: str | None = None
    secret: str | None = None
    size: int = 1
    times: int = 1


class Ring(NamedTuple):
    """Another kind of fact."""

    protocol: str
    times: int = 1


RULE = Rule(Knock, sums=("size", "times"), alone=("token",), named=("who",), dropped=("secret",))


def make(*rules, **options):
    """Return a gathering of two seconds and what it writes."""
    written = []
    return Gathering(lambda fact, at: written.append((fact, at)), 2_000, *(rules or (RULE,)), **options), written


def test_facts_that_share_all_but_their_sums_are_one() -> None:
    """Sums are added up; what only one of them has is left out."""
    gathering, written = make()
    for number in range(3):
        gathering.add(Knock("p", "alice", token=str(number), size=number), Instant(number))
    gathering.wake(Instant(2_000_000))

    assert written == [(Knock("p", "alice", None, None, 3, 3), 2_000_000)]


def test_single_fact_stays_as_it_was() -> None:
    """It keeps what is its own, but for what is always dropped."""
    gathering, written = make()
    gathering.add(Knock("p", "alice", token="t", secret="s"), Instant(0))
    gathering.add(Knock("p", "bob", token="u"), Instant(1))
    gathering.flush(Instant(5))

    assert [fact for fact, _ in written] == [Knock("p", "alice", token="t"), Knock("p", "bob", token="u")]


def test_too_many_rows_lose_their_names() -> None:
    """Beyond the limit names are left out, also of a single fact; the count is not."""
    gathering, written = make(keys_max=2)
    for name in "abcd":
        gathering.add(Knock("p", name, token="t"), Instant(0))
    gathering.flush(Instant(5))

    assert [(fact.who, fact.token, fact.times) for fact, _ in written] == [
        ("a", "t", 1),
        ("b", "t", 1),
        (None, None, 2),
    ]


def test_nothing_is_written_before_its_time() -> None:
    """A span begins with the first fact; afterwards nothing is due."""
    gathering, written = make()
    idle = gathering.deadline()
    gathering.add(Knock("p", "alice"), Instant(7))
    due = gathering.deadline()
    gathering.wake(Instant(due - 1))
    early = list(written)
    gathering.wake(due)

    assert (idle, due, early, gathering.deadline()) == (None, 2_000_007, [], None)
    assert len(written) == 1


@pytest.mark.parametrize(("dated_back", "at"), [(False, 9_000_000), (True, 7)])
def test_sum_has_the_time_of_its_end_or_of_its_beginning(dated_back, at) -> None:
    """Counts of a minute bear the time at which it began."""
    gathering, written = make(dated_back=dated_back)
    gathering.add(Knock("p", "alice"), Instant(7))
    gathering.flush(Instant(9_000_000))

    assert [time for _, time in written] == [at]


def test_kinds_share_a_span_and_leave_in_their_order() -> None:
    """The first fact of any kind begins the span of all."""
    gathering, written = make(RULE, Rule(Ring, sums=("times",)))
    gathering.add(Ring("p"), Instant(0))
    gathering.add(Knock("p", "alice"), Instant(1))
    gathering.wake(Instant(2_000_000))

    assert [type(fact) for fact, _ in written] == [Knock, Ring]
