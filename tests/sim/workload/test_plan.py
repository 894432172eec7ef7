"""The frame of a workload."""

import pytest

from tests.sim.workload.build import plan_of
from waystation.core.errors import LocalError
from waystation.core.ids import node_id_of
from waystation.sim.workload.plan import DAY_US, HOUR_US, MINUTE_US


def test_slots_fill_the_days():
    """Slots divide every date evenly, whatever their length."""
    for events in (100, 100_000, 10_000_000):
        plan = plan_of(events=events)
        assert DAY_US % plan.slot_us == 0
        assert plan.slots * plan.slot_us == plan.end_us - plan.start_us


def test_more_events_make_more_segments_and_samples():
    """A large workload is cut by the hour and sampled by the minute, a small one is not."""
    assert plan_of(events=10_000_000).slot_us == HOUR_US
    assert plan_of(events=10_000_000).sample_us == MINUTE_US
    assert plan_of(events=100).slot_us == DAY_US


def test_nodes_are_named_by_their_keys():
    """A node's name is the beginning of its public key, and no two are the same."""
    plan = plan_of(nodes=5)

    assert [node.node_id for node in plan.nodes] == [node_id_of(node.key_pair.public) for node in plan.nodes]
    assert len({node.node_id for node in plan.nodes}) == 5


def test_references_change_weekly_and_by_node():
    """Nobody joins two weeks, or two nodes, by reference."""
    first, second, *_ = plan_of().nodes

    assert first.reference(0, b"x") == first.reference_once(0, b"x")
    assert len({first.reference(0, b"x"), first.reference(1, b"x"), second.reference(0, b"x")}) == 3


def test_weeks_are_seven_days():
    """The key changes at the end of the seventh day."""
    plan = plan_of(days=9)

    assert plan.week_of(plan.start_us + 7 * DAY_US - 1) == 0
    assert plan.week_of(plan.start_us + 7 * DAY_US) == 1
    assert plan.is_quiet(plan.start_us + 7 * DAY_US - 1)
    assert plan.is_quiet(plan.end_us - 1)
    assert not plan.is_quiet(plan.start_us)


def test_only_the_skewed_node_has_a_wrong_clock():
    """Clock skew is one node's, and nobody's without the scenario."""
    assert [node.skew_us for node in plan_of("clock_skew").nodes] == [0, 420_000_000, 0, 0]
    assert not any(node.skew_us for node in plan_of().nodes)


@pytest.mark.parametrize("wrong", [{"nodes": 0}, {"days": 36}, {"events": 0}, {"start_us": 1}, {"signed_per_day": -1}])
def test_impossible_frames_are_refused(wrong):
    """Numbers out of range and a start within a day are the caller's mistake."""
    with pytest.raises(LocalError):
        plan_of(**wrong)
