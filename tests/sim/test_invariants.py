"""The base of invariants: each observation is shown to those that look at its kind, and a violation names its law."""

from typing import NamedTuple

import pytest

from tests.sim.build import broken_by_last
from waystation.core.instant import Instant
from waystation.sim.invariants import Invariant, Liveness, ViolationError, Watch
from waystation.sim.observations import Unfulfilled


class Counted(NamedTuple):
    """A number was seen."""

    number: int


class Ignored(NamedTuple):
    """Nothing looks at this."""


class Small(Invariant):
    """Numbers stay below three."""

    name = "small"

    def _on_counted(self, counted: Counted, now: Instant) -> None:
        if counted.number >= 3:
            raise self.broken(f"{counted.number} at {now}")


def test_observation_reaches_those_that_look_at_its_kind():
    """The first observation that breaks an invariant raises, with name and detail."""
    watch = Watch([Small()])
    watch.observe(Ignored(), Instant(1))
    watch.observe(Counted(2), Instant(2))

    with pytest.raises(ViolationError, match="small: 3 at 7") as raised:
        watch.observe(Counted(3), Instant(7))

    assert (raised.value.invariant, raised.value.detail) == ("small", "3 at 7")


def test_what_was_not_fulfilled_breaks_liveness():
    """Whoever did not get what was due says so, and that is a violation."""
    assert broken_by_last([Liveness()], [Unfulfilled("nothing came")]) == "liveness"


class Blind(Invariant):
    """Has no method that looks at an observation."""

    name = "blind"


def test_handlers_are_found_by_their_annotation():
    """What a method looks at is what it is annotated with; a checker that looks at nothing is a mistake of ours."""
    assert list(Small().handlers()) == [Counted]
    with pytest.raises(AssertionError, match="blind looks at nothing"):
        Blind().handlers()
