"""What a node tells of itself."""

from collections import Counter
from itertools import pairwise

from tests.sim.workload.build import plan_of, played
from waystation.journal.events import NodeSampled, NodeStarted, NodeStopped, SubscriptionEnded, WorkJudged
from waystation.sim.workload.node_events import NodeEvents
from waystation.sim.workload.plan import DAY_US


def test_samples_come_at_their_interval_and_add_up():
    """A day's facts are the sums and peaks of its samples."""
    plan = plan_of(nodes=2)
    stage, (events, _) = played(plan, NodeEvents(plan))
    samples = [event for event in events if type(event) is NodeSampled]
    today = [event for event in samples if event.ts_us < plan.start_us + DAY_US]
    facts = stage.truth.capacity[plan.nodes[0].node_id, "2026-05-25"]

    assert len(samples) == plan.days * DAY_US // plan.sample_us
    assert facts["samples"] == len(today)
    assert facts["messages"] == sum(event.messages for event in today)
    day = stage.truth.document({})["capacity"]["days"][0]
    beyond = sum(event.messages > day["messages_p99"] for event in today)
    assert beyond * 100 <= len(today)
    assert facts["peak_connections"] == max(event.connections for event in today)
    assert facts["store_bytes"] == today[-1].store_bytes + today[-1].journal_bytes


def test_the_store_grows_as_the_truth_says():
    """From day to day the store grows by the amount that was decided, within a thousandth of it."""
    plan = plan_of(nodes=1)
    stage, _ = played(plan, NodeEvents(plan))
    node_id = plan.nodes[0].node_id
    sizes = [facts["store_bytes"] for _, facts in sorted(stage.truth.capacity.items())]
    growth = stage.truth.growth[node_id]

    assert all(abs(after - before - growth) < 200_000 for before, after in pairwise(sizes))


def test_a_killed_node_starts_again():
    """Each kill is followed by a start, and only the last node of all goes on running."""
    plan = plan_of(nodes=3)
    _, events = played(plan, NodeEvents(plan))

    for node, out in enumerate(events):
        kinds = Counter(type(event) for event in out)
        assert kinds[NodeStarted] == 1 + sum(killed == node for killed, _ in plan.kills)
        assert kinds[NodeStopped] == (node < 2)


def test_work_is_what_the_truth_counts():
    """Accepted and refused proofs of work come to the truth's numbers, and nobody farms."""
    plan = plan_of(nodes=1, events=20_000)
    stage, (events,) = played(plan, NodeEvents(plan))
    work = [event for event in events if type(event) is WorkJudged]
    accepted = [event for event in work if event.verdict == "accepted"]
    workers = Counter((event.peer_ref, event.ts_us // DAY_US) for event in accepted if event.peer_ref)

    days = stage.truth.capacity.values()
    assert sum(day["pow_accepted"] for day in days) == len(accepted)
    assert sum(day["pow_work"] for day in days) == sum(2**event.bits for event in accepted)
    assert sum(day["pow_turned_down"] for day in days) == len(work) - len(accepted)
    assert max(workers.values()) <= 3


def test_subscriptions_end_within_their_slot():
    """No subscription is cut in two by a kill, so that none needs to be looked for."""
    plan = plan_of(nodes=1, events=20_000)
    _, (events,) = played(plan, NodeEvents(plan))

    assert all(event.duration_us >= 0 for event in events if type(event) is SubscriptionEnded)
