"""Laws of growth, of what is left of a disk, and of a nearest rank."""

import math
import random
from fractions import Fraction
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waystation.rules.capacity import days_to_full, growth, nearest_rank, per_second

sizes = st.integers(0, 2**50)
series = st.dictionaries(st.integers(730_000, 730_030), sizes, max_size=12).map(lambda days: sorted(days.items()))


@settings(max_examples=200)
@given(series)
def test_growth_is_the_median_slope(points: list[tuple[int, int]]) -> None:
    """It is the floor of the median over all pairs, by the standard library's median of exact fractions."""
    slopes = [Fraction(b2 - b1, d2 - d1) for i, (d1, b1) in enumerate(points) for d2, b2 in points[i + 1 :]]

    assert growth(points) == (math.floor(median(slopes)) if slopes else None)


@settings(max_examples=200)
@given(st.integers(-(2**40), 2**40), sizes, st.integers(2, 12))
def test_a_line_has_its_own_slope(slope: int, start: int, days: int) -> None:
    """Even growth is found exactly, and one wild day among five does not move it."""
    line = [(day, start + slope * day) for day in range(days)]

    assert growth(line) == slope
    if days >= 6:
        assert growth([*line[:-1], (days - 1, 2**55)]) == slope


def test_growth_rounds_down() -> None:
    """Half a byte less a day is one byte less."""
    assert growth([(1, 10), (3, 11)]) == 0
    assert growth([(1, 11), (3, 10)]) == -1
    assert growth([(1, 11)]) is growth([]) is None


@settings(max_examples=200)
@given(sizes, st.none() | st.integers(-(2**30), 2**45), st.integers(0, 2**20))
def test_days_to_full_fill_the_disk(used: int, rate: int | None, disk_gib: int) -> None:
    """After so many days it is not over-full yet, after one more it is; None where it never fills."""
    days = days_to_full(used, rate, disk_gib)

    if rate is None or rate <= 0 or disk_gib == 0:
        assert days is None
    else:
        size = disk_gib * 2**30
        assert days is not None
        assert days >= 0
        assert used + days * rate <= max(size, used)
        assert used + (days + 1) * rate > size


@settings(max_examples=200)
@given(st.lists(st.integers(0, 50), max_size=300), st.integers(1, 100))
def test_nearest_rank_is_its_definition(values: list[int], percent: int) -> None:
    """It is the smallest value that at least so many per cent do not exceed."""
    enough = [value for value in values if 100 * sum(each <= value for each in values) >= percent * len(values)]

    assert nearest_rank(values, percent) == min(enough, default=0)


def test_nearest_rank_ignores_order() -> None:
    """Any order of the minutes has the same rank."""
    values = list(range(1_440))
    random.Random(1).shuffle(values)

    assert nearest_rank(values, 99) == 1_425


@pytest.mark.parametrize(("minute", "second"), [(0, 0.0), (60, 1.0), (100, 1.666667), (1, 0.016667)])
def test_per_second_has_six_digits(minute: int, second: float) -> None:
    """A rate is rounded once, to six digits."""
    assert per_second(minute) == second
