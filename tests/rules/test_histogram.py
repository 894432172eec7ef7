"""Histograms: borders, sums and quantiles."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.rules.histogram import BUCKETS_COUNT, THRESHOLDS_US, bounds_us, bucket_of, merge, quantile

LATENCIES = st.integers(0, 10**13)
HISTOGRAMS = st.dictionaries(st.integers(0, BUCKETS_COUNT - 1), st.integers(1, 1_000), max_size=20)


def test_borders_are_where_the_logarithm_says() -> None:
    """Each border is the first whole number whose logarithm times ten reaches the bucket."""
    exact = [bucket for bucket, border in enumerate(THRESHOLDS_US) if bucket and border > 1]

    assert all(math.log(THRESHOLDS_US[bucket]) * 10 >= bucket - 1e-9 for bucket in exact)
    assert all(math.log(THRESHOLDS_US[bucket] - 1) * 10 < bucket for bucket in exact if THRESHOLDS_US[bucket] > 1)
    assert len(THRESHOLDS_US) == BUCKETS_COUNT
    assert THRESHOLDS_US[:10] == (1, 2, 2, 2, 2, 2, 2, 3, 3, 3)


@given(LATENCIES)
def test_a_latency_lies_inside_its_bucket(latency_us: int) -> None:
    """The bounds of a latency's bucket enclose it, within ten and a half per cent for all but the smallest."""
    low, high = bounds_us(bucket_of(latency_us))

    assert low <= max(latency_us, 1)
    assert high is None or latency_us < high
    assert high is None or low < 100 or high - low <= 0.11 * low


@given(LATENCIES, LATENCIES)
def test_buckets_keep_order(one: int, other: int) -> None:
    """A longer latency never falls into an earlier bucket."""
    low, high = sorted((one, other))

    assert bucket_of(low) <= bucket_of(high)


def test_extremes_have_buckets() -> None:
    """Zero counts as one microsecond, and nothing is too long."""
    assert bucket_of(0) == bucket_of(1) == 0
    assert bucket_of(2**63) == BUCKETS_COUNT - 1


@given(st.lists(HISTOGRAMS, max_size=5), st.randoms(use_true_random=False))
def test_sums_do_not_depend_on_order(histograms: list[dict[int, int]], rng) -> None:
    """Histograms add up to the same sum in any order and grouping."""
    shuffled = list(histograms)
    rng.shuffle(shuffled)

    assert merge(shuffled) == merge([merge(histograms[:2]), merge(histograms[2:])])
    assert sum(merge(histograms).values()) == sum(sum(one.values()) for one in histograms)


@given(
    st.lists(st.integers(1, 10**9), min_size=1, max_size=60), st.sampled_from([0.01, 0.1, 0.5, 0.9, 0.95, 0.99, 1.0])
)
def test_quantile_is_the_bucket_of_the_ranked_latency(latencies: list[int], q: float) -> None:
    """The quantile of a histogram is the bucket of the same quantile of what was measured."""
    histogram = merge([{bucket_of(latency): 1} for latency in latencies])
    rank = -(-round(q * 10_000) * len(latencies) // 10_000)

    assert quantile(histogram, q) == bucket_of(sorted(latencies)[max(rank, 1) - 1])


def test_decimal_shares_are_exact() -> None:
    """A tenth of ten is one, whatever the nearest double says."""
    assert quantile({1: 1, 2: 9}, 0.1) == 1
    assert quantile({1: 95, 2: 5}, 0.95) == 1


@pytest.mark.parametrize("histogram", [{}, {3: 0}])
def test_nothing_has_no_quantile(histogram: dict[int, int]) -> None:
    """An empty histogram has no quantile."""
    assert quantile(histogram, 0.5) is None
