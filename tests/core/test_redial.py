"""Laws of core.redial."""

import random

import pytest

from waystation.core.redial import redial_wait_ms


@pytest.mark.parametrize(("failures", "step_ms"), [(0, 500), (1, 1_000), (3, 4_000), (4, 6_000), (10_000, 6_000)])
def test_waits_double_up_to_the_longest(failures, step_ms):
    """Each is drawn from the upper half of its step."""
    rng = random.Random(1)
    waits = [redial_wait_ms(failures, rng, first_ms=500, longest_ms=6_000) for _ in range(100)]

    assert all(step_ms // 2 <= wait <= step_ms for wait in waits)
    assert len(set(waits)) > 50
