"""Latency histograms with the same 300 bucket borders on every node, so that they can be added.

The pipeline counts latencies by bucket and reads quantiles for report and plots from the sums. Bucket ``b`` begins at
the smallest whole number of microseconds whose natural logarithm times ten is at least ``b``. A bucket is about ten per
cent wide. The borders are a table of integers, so no rounding error can move a latency into another bucket. Counts are
integers: sums over nodes do not depend on the order of addition.
"""

import decimal
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

__all__ = ["BUCKETS_COUNT", "THRESHOLDS_US", "bounds_us", "bucket_of", "merge", "quantile"]

BUCKETS_COUNT: Final = 300
"""The last bucket begins after 110 days and has no end."""

_PER_E_FOLD: Final = 10  # ten buckets per factor e: about 10 % relative width (docs/decisions/pipeline.md)
_DIGITS: Final = 50  # e^29.9 has 13 digits before the point; the rest is safety against a border that is nearly whole
_RANK_PRECISION: Final = 10_000  # quantiles are meant as at most four decimal digits, not as the nearest double


def _thresholds() -> tuple[int, ...]:
    with decimal.localcontext() as context:
        context.prec = _DIGITS
        exact = ((decimal.Decimal(bucket) / _PER_E_FOLD).exp() for bucket in range(BUCKETS_COUNT))
        return tuple(int(value.to_integral_value(rounding=decimal.ROUND_CEILING)) for value in exact)


THRESHOLDS_US: Final = _thresholds()
"""First whole microsecond of each bucket; buckets that no whole number falls into begin where their successor does."""


def bucket_of(latency_us: int) -> int:
    """Return the bucket, 0 to 299, of a latency in microseconds; 0 counts as 1.

    Cost: O(log buckets).
    """
    assert latency_us >= 0
    return bisect_right(THRESHOLDS_US, max(latency_us, 1)) - 1


def bounds_us(bucket: int) -> tuple[int, int | None]:
    """Return the first microsecond of a bucket and the first one after it (None after the last bucket)."""
    last = bucket == BUCKETS_COUNT - 1
    return THRESHOLDS_US[bucket], None if last else THRESHOLDS_US[bucket + 1]


def merge(histograms: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the sum of histograms (bucket to count) in order of buckets."""
    total: dict[int, int] = {}
    for histogram in histograms:
        for bucket, count in histogram.items():
            total[bucket] = total.get(bucket, 0) + count
    return dict(sorted(total.items()))


def quantile(histogram: Mapping[int, int], q: float) -> int | None:
    """Return the smallest bucket up to which at least the share ``q`` of all counts lies.

    Args:
        histogram: Bucket to count.
        q: Above 0, up to 1, taken as a decimal fraction of four digits.

    Returns:
        A bucket, or None for an empty histogram.
    """
    total = sum(histogram.values())
    if total == 0:
        return None
    rank = max(Fraction(q).limit_denominator(_RANK_PRECISION) * total, Fraction(1))
    seen = 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= rank:
            return bucket
    return None
