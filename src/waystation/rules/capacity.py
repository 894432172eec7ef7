"""Capacity forecast: daily growth of a store, and whole days until its disk is full.

``pipeline.transforms.capacity`` passes the store's size of each day and the disk's size. Growth is the Theil-Sen slope:
the median of the slopes between all pairs of days. One day of compaction or of unusual traffic therefore changes it
little. Fractions are exact; the result is rounded down once.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Final

__all__ = ["GROWTH_DAYS", "days_to_full", "growth", "nearest_rank", "per_second"]

GROWTH_DAYS: Final = 7
"""Days of the slope, that of the row the last: one week has every weekday once (PIPE-GROWTH)."""

_GIB: Final = 1_073_741_824


def growth(points: Sequence[tuple[int, int]]) -> int | None:
    """Return bytes per day, rounded down, or None with fewer than two days.

    Args:
        points: Number of the day, each once and ascending, and bytes at its end.

    Cost: O(points squared).
    """
    assert all(first < second for (first, _), (second, _) in pairwise(points))
    slopes = sorted(Fraction(late - early, day - before) for (before, early), (day, late) in combinations(points, 2))
    if not slopes:
        return None
    middle = len(slopes) // 2
    median = slopes[middle] if len(slopes) % 2 else (slopes[middle - 1] + slopes[middle]) / 2
    return median.numerator // median.denominator


def days_to_full(used_bytes: int, growth_bytes: int | None, disk_gib: int) -> int | None:
    """Return whole days until the disk is full, 0 when it is; None when it does not grow or ``disk_gib`` is 0."""
    if disk_gib == 0 or growth_bytes is None or growth_bytes <= 0:
        return None
    return max(0, disk_gib * _GIB - used_bytes) // growth_bytes


def nearest_rank(values: Sequence[int], percent: int) -> int:
    """Return the smallest value that ``percent`` (1 to 100) of them do not exceed; 0 when there are none."""
    assert 0 < percent <= 100
    return sorted(values)[-(-percent * len(values) // 100) - 1] if values else 0


def per_second(per_minute: int) -> float:
    """Return a count per minute as one per second, six digits."""
    return round(per_minute / 60, 6)
