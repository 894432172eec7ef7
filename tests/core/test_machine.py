"""Laws of core.machine."""

import pytest

from waystation.core.instant import Instant
from waystation.core.machine import AsksNothing


def test_answer_that_nobody_asked_for_is_a_bug():
    """A machine that asks nothing does not swallow an answer silently."""
    machine = AsksNothing()

    with pytest.raises(AssertionError, match="committed 3"):
        machine.committed(3, Instant(1))
    with pytest.raises(AssertionError, match="not committed 3"):
        machine.not_committed(3, Instant(1))
    with pytest.raises(AssertionError, match="verified 4 with 2 answers"):
        machine.verified(4, [0, -1], Instant(1))
