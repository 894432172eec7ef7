"""Paths of datagrams."""

from itertools import pairwise

import pytest

from tests.sim.build import fixed_rng
from waystation.core.instant import Instant
from waystation.sim.net.datagram import DatagramSettings, FaultyLink
from waystation.sim.schedule import Schedule

COUNT = 4_000


def sent_through(settings, seed=7, count=COUNT):
    schedule, got = Schedule(), []
    link = FaultyLink(schedule, fixed_rng(seed), settings, lambda data: got.append((schedule.now, data)))
    for number in range(count):
        schedule.at(Instant(number * 1_000), lambda number=number: link(number.to_bytes(4, "big")))
    schedule.run(Instant(10**9))
    return got


def test_a_path_without_faults_is_only_late():
    """Everything arrives once, in order, between latency and latency plus jitter later."""
    got = sent_through(DatagramSettings(latency_us=20_000, jitter_us=5_000))

    assert [int.from_bytes(data, "big") for _, data in got] == list(range(COUNT))
    delays = [at - 1_000 * number for number, (at, _) in enumerate(got)]
    assert min(delays) >= 20_000
    assert max(delays) <= 25_000


def test_loss_loses_its_share():
    """Of many datagrams about the given share is lost."""
    got = sent_through(DatagramSettings(loss=0.25))

    assert 0.22 < 1 - len(got) / COUNT < 0.28


def test_duplicates_are_copies_and_have_their_share():
    """A doubled datagram arrives twice with the same bytes."""
    got = sent_through(DatagramSettings(duplicate=0.1))

    assert len({data for _, data in got}) == COUNT
    assert 0.08 < len(got) / COUNT - 1 < 0.12


def test_reordered_datagrams_are_overtaken():
    """Some arrive behind later ones, and none is lost."""
    numbers = [int.from_bytes(data, "big") for _, data in sent_through(DatagramSettings(reorder=0.05, jitter_us=0))]

    overtaken = sum(1 for first, second in pairwise(numbers) if first > second)
    assert sorted(numbers) == list(range(COUNT))
    assert 0.03 < overtaken / COUNT < 0.07


def test_one_seed_gives_one_path():
    """The same seed decides the same; another one decides differently."""
    settings = DatagramSettings(loss=0.2, duplicate=0.2, reorder=0.2)

    first, again, other = (sent_through(settings, seed, 300) for seed in (1, 1, 2))

    assert first == again
    assert first != other


@pytest.mark.parametrize(("fault", "count"), [("loss", 0), ("duplicate", 2 * COUNT), ("reorder", COUNT)])
def test_a_fault_at_certainty_befalls_everything(fault, count):
    """At chance 1 everything is lost, doubled or held back."""
    got = sent_through(DatagramSettings(latency_us=10, jitter_us=0, reorder_us=90, **{fault: 1.0}))

    assert len(got) == count
    assert [at % 1_000 for at, _ in got] == [100 if fault == "reorder" else 10] * count
