"""What the truth keeps, and how it is told."""

from waystation.sim.workload.truth import Truth


def test_counts_of_one_key_add_up():
    """Deliveries and verdicts are summed by their key."""
    truth = Truth(["a"])
    truth.delivered(0, "bhumi", "ok", 1, 10)
    truth.delivered(0, "bhumi", "ok", 2, 20)
    truth.judged(3_600, "accepted", None, 1, 5)
    counts = truth.document({})["counts"]

    assert counts["deliveries"] == [{"hour": 0, "protocol": "bhumi", "outcome": "ok", "n": 3, "bytes": 30}]
    wanted = {"hour": 3_600, "protocol": "strata", "verdict": "accepted", "detail": "", "n": 1, "bytes": 5}
    assert counts["packets"] == [wanted]


def test_capacity_is_counted_by_day():
    """Work that was paid for is the sum of powers of two."""
    truth = Truth(["a"])
    facts = truth.capacity_day("a", "2026-05-25")
    truth.worked(facts, 3)
    truth.worked(facts, 4)

    assert truth.capacity_day("a", "2026-05-25") is facts
    assert truth.document({})["capacity"]["days"][0] | {"pow_accepted": 2, "pow_work": 24} == {
        **facts,
        "node_id": "a",
        "day": "2026-05-25",
        "messages_p99": None,
    }
