"""Actors: each does what its name says, and the truth names it."""

from collections import Counter

import pytest

from tests.sim.workload.build import journal_rows, made

SIZE = {"nodes": 2, "days": 2, "events": 1_200}


def count_of(row):
    attrs = row["attrs"]
    return int(attrs.get("n") or attrs.get("tries") or 1)


def rows_naming(files, ref):
    named = ("author_ref", "source_ref")
    return [
        row
        for row in journal_rows(files)
        if row["peer_ref"] == ref or any((row["attrs"] or {}).get(key) == ref for key in named)
    ]


@pytest.mark.parametrize(
    ("scenario", "rules", "words"),
    [
        ("replay_attacker", ["replay"], {"duplicate", "invalid_timestamp"}),
        ("burst_flooder", ["burst", "burst"], {"rate_limited", "address_full"}),
        ("work_farmer", ["work_farming"], {"accepted"}),
        ("spent_capabilities", ["spent_capability"], {"bad_capability"}),
    ],
)
def test_an_actor_does_what_the_truth_says(scenario, rules, words):
    """All rows of an actor's reference are its deeds, as many and in the time that the truth says, at one node."""
    files, truth = made(scenario, **SIZE)
    found = set()
    for actor in truth["actors"]:
        rows = rows_naming(files, actor["ref"])
        found |= {row["outcome"] or row["reason"] for row in rows}
        assert {row["node_id"] for row in rows} == {actor["node_id"]}
        assert sum(map(count_of, rows)) == actor["n"]
        assert (min(row["ts"] for row in rows), max(row["ts"] for row in rows)) == (actor["first_us"], actor["last_us"])

    assert [actor["rule"] for actor in truth["actors"]] == rules
    assert found == words


def test_nobody_else_comes_near_an_actor():
    """In the honest load no reference does in an hour what would be a tenth of an attack."""
    files, _ = made(nodes=2, events=6_000)
    bad = Counter()
    for row in journal_rows(files):
        hour, attrs = row["ts"] // 3_600_000_000, row["attrs"] or {}
        if row["outcome"] in {"bad_capability", "rate_limited", "invalid_timestamp"}:
            bad[row["node_id"], hour, row["outcome"], row["peer_ref"] or attrs.get("author_ref")] += count_of(row)
        elif row["outcome"] == "duplicate" and attrs["source"] == "client":
            bad[row["node_id"], hour, "duplicate", attrs["author_ref"]] += count_of(row)
        elif row["reason"] == "address_full":
            bad[row["node_id"], hour, "address_full", attrs["source_ref"]] += count_of(row)

    assert max(bad.values()) < 12
