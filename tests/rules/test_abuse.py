"""Laws of what is abuse and of what follows from it."""

from collections.abc import Iterable
from statistics import median_low

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waystation.rules.abuse import (
    AMOUNTS,
    COPIES_PER_PACKET,
    PACKETS_FACTOR,
    PACKETS_MAX,
    STANDARDS,
    Activity,
    Decided,
    Evidence,
    Finding,
    Measure,
    Rule,
    Severity,
    Suggestion,
    decide,
    judge,
    packets_limit,
    severity,
)

HOUR_US = 3_600_000_000
AS_OF = 1_000 * HOUR_US

amounts = st.integers(1, 400) | st.integers(400, 400_000)
activities = st.lists(
    st.builds(
        Activity,
        actor_kind=st.just("peer"),
        actor_ref=st.binary(min_size=1, max_size=1),
        measure=st.sampled_from(Measure),
        n=amounts,
        first_us=st.just(1),
        last_us=st.just(2),
    ),
    unique_by=lambda one: (one.actor_ref, one.measure),
    max_size=30,
)
evidence = st.builds(
    Evidence,
    actor_kind=st.sampled_from(["peer", "source"]),
    actor_ref=st.sampled_from([b"a", b"b", b"c"]),
    rule=st.sampled_from(Rule),
    window_us=st.integers(960, 1_001).map(lambda hour: hour * HOUR_US),
    severity=st.sampled_from([Severity.MEDIUM, Severity.HIGH]),
    action=st.sampled_from([Suggestion.NONE, Suggestion.POW, Suggestion.RATE]),
    expires_us=st.integers(990, 1_030).map(lambda hour: hour * HOUR_US),
)
findings = st.lists(evidence, max_size=25)


def did(measure: Measure, n: int, actor: bytes = b"a", kind: str = "peer") -> Activity:
    """Return what one actor did."""
    return Activity(kind, actor, measure, n, 10, 20)


def fired(*activities: Activity) -> list[tuple[bytes, Rule, int, int]]:
    """Return what is found: actor, rule, count and limit."""
    return [(found.actor_ref, found.rule, found.n, found.limit) for found in judge(activities)]


def plain_judge(activities: Iterable[Activity]) -> set[Finding]:
    """Judge by the words of the rules: every measure of every actor by itself, then the worst of each rule."""
    everything = list(activities)
    found: dict[tuple[bytes, Rule], list[Finding]] = {}
    for one in everything:
        if one.measure is Measure.KNOWN:
            continue
        standard = STANDARDS[one.measure]
        limit = standard.limit
        if one.measure is Measure.COPIES:
            mine = sum(
                each.n for each in everything if (each.actor_ref, each.measure) == (one.actor_ref, Measure.KNOWN)
            )
            limit = max(limit, COPIES_PER_PACKET * mine)
        if one.measure is Measure.PACKETS:
            others = [each.n for each in everything if each.measure is Measure.PACKETS and each is not one]
            limit = min(PACKETS_MAX, max(limit, PACKETS_FACTOR * (median_low(others) if others else 0)))
        if one.n > limit:
            how_bad = severity(one.n, limit)
            action = Suggestion.NONE if how_bad is Severity.LOW else standard.action
            finding = Finding("peer", one.actor_ref, standard.rule, one.n, limit, 1, 2, how_bad, action)
            found.setdefault((one.actor_ref, standard.rule), []).append(finding)
    worst = set()
    for several in found.values():
        several.sort(key=lambda finding: (list(Suggestion).index(finding.action), finding.n / finding.limit))
        worst.add(several[-1])
    return worst


@settings(max_examples=200)
@given(activities, st.randoms(use_true_random=False))
def test_judging_is_what_the_rules_say(seen: list[Activity], rng) -> None:
    """Any hour of any actors, in any order, has the findings of a plain reading of the rules."""
    shuffled = list(seen)
    rng.shuffle(shuffled)
    found = judge(seen)

    assert found == judge(shuffled)
    assert len({(each.actor_ref, each.rule) for each in found}) == len(found)
    assert {each[:4] for each in found} == {each[:4] for each in plain_judge(seen)}
    assert {each.severity for each in found} == {each.severity for each in plain_judge(seen)}


@pytest.mark.parametrize("measure", STANDARDS)
def test_the_limit_itself_is_allowed(measure: Measure) -> None:
    """As many as the limit is no finding, one more is, with its exact numbers and its first and last time."""
    limit = STANDARDS[measure].limit
    found = judge([did(measure, limit + 1)])

    assert judge([did(measure, limit)]) == []
    assert [(each.n, each.limit, each.first_us, each.last_us) for each in found] == [(limit + 1, limit, 10, 20)]
    assert found[0].severity is Severity.LOW
    assert found[0].action is Suggestion.NONE


@pytest.mark.parametrize(("n", "wanted"), [(101, "low"), (200, "low"), (201, "medium"), (800, "medium"), (801, "high")])
def test_severity_goes_by_multiples(n: int, wanted: str) -> None:
    """Twice the limit is still low, eight times still medium."""
    assert severity(n, 100).value == wanted


@settings(max_examples=300)
@given(st.lists(amounts, min_size=1, max_size=40), st.data())
def test_what_is_usual_is_the_median_of_the_others(counts: list[int], data: st.DataObject) -> None:
    """The limit follows the others' lower median between its two fixed ends, and nobody's own count moves it."""
    index = data.draw(st.integers(0, len(counts) - 1))
    own = counts[index]
    others = counts[:index] + counts[index + 1 :]
    usual = PACKETS_FACTOR * median_low(others) if others else 0
    limit = packets_limit(sorted(counts), own)

    assert limit == min(PACKETS_MAX, max(STANDARDS[Measure.PACKETS].limit, usual))
    assert limit == packets_limit(sorted([*others, own + 1_000_000]), own + 1_000_000)


def test_many_flooders_do_not_hide_each_other() -> None:
    """What everybody does is still a burst above the fixed end."""
    flood = [did(Measure.PACKETS, PACKETS_MAX + 1, bytes([number])) for number in range(9)]

    assert len(judge(flood)) == 9
    assert judge([one._replace(n=PACKETS_MAX) for one in flood]) == []


def test_copies_are_measured_by_what_is_copied() -> None:
    """A busy author on several relays has many copies; the same copies of few packets are a replay."""
    copies = did(Measure.COPIES, 2_000)

    assert fired(copies, did(Measure.KNOWN, 500)) == []
    assert fired(copies, did(Measure.KNOWN, 499)) == [(b"a", Rule.REPLAY, 2_000, 1_996)]
    assert fired(copies, did(Measure.KNOWN, 500, b"b")) == [(b"a", Rule.REPLAY, 2_000, 120)]


def test_honest_programs_are_not_found() -> None:
    """A re-sent outbox, a busy publisher, a limit met now and then, a climb to the work demanded: no findings."""
    honest = [
        *(did(Measure.COPIES, 40, b"a"), did(Measure.KNOWN, 10, b"a"), did(Measure.PACKETS, 10, b"a")),
        *(did(Measure.PACKETS, 3_600, b"b"), did(Measure.KNOWN, 3_600, b"b"), did(Measure.COPIES, 3_600, b"b")),
        *(did(Measure.LIMITED, 60, b"b"), did(Measure.BAD_WORK, 20, b"c"), did(Measure.GRANTS, 2, b"c")),
        *(did(Measure.SPENT, 5, b"d"), did(Measure.TURNED_AWAY, 300, b"n", "source")),
    ]

    assert judge(honest) == []


def test_the_measure_further_above_tells() -> None:
    """Two measures of one rule make one finding: what may lead to something first, then the one further above."""
    author = fired(did(Measure.OVER_BUDGET, 10**6), did(Measure.PACKETS, 7_300))
    found = fired(did(Measure.LIMITED, 1_300), did(Measure.PACKETS, 7_300), did(Measure.GRANTS, 31))

    assert found == [(b"a", Rule.BURST, 1_300, 600), (b"a", Rule.WORK_FARMING, 31, 30)]
    assert author == [(b"a", Rule.BURST, 10**6, 600)]


def test_victims_are_left_alone() -> None:
    """Copies of an author's packets and a recipient's spent capabilities are found, and lead to nothing."""
    found = judge([did(Measure.COPIES, 10**6), did(Measure.SPENT, 10**6, b"b")])

    assert {each.severity for each in found} == {Severity.HIGH}
    assert {each.action for each in found} == {Suggestion.NONE}


def plain_decide(findings: list[Evidence]) -> set[tuple[str, bytes, Suggestion]]:
    """Return the strongest action for each subject."""
    strongest: dict[tuple[str, bytes], Suggestion] = {}
    ranks = list(Suggestion)
    for one in findings:
        if one.action is Suggestion.NONE or one.window_us + HOUR_US > AS_OF or one.expires_us <= AS_OF:
            continue
        hours = {
            each.window_us
            for each in findings
            if (each.actor_kind, each.actor_ref, each.rule) == (one.actor_kind, one.actor_ref, one.rule)
            and each.severity is Severity.HIGH
            and each.action is not Suggestion.NONE
            and each.window_us + HOUR_US <= AS_OF < each.expires_us
        }
        action = Suggestion.BLOCK if len(hours) > 1 and one.actor_kind == "peer" else one.action
        before = strongest.get((one.actor_kind, one.actor_ref), Suggestion.NONE)
        strongest[one.actor_kind, one.actor_ref] = max(before, action, key=ranks.index)
    return {(*subject, action) for subject, action in strongest.items()}


@settings(max_examples=200)
@given(findings, st.integers(1, 168), st.randoms(use_true_random=False))
def test_each_subject_gets_its_strongest_rule(found: list[Evidence], hours: int, rng) -> None:
    """One rule per subject whatever the order, never longer than its evidence, and no network is blocked."""
    shuffled = list(found)
    rng.shuffle(shuffled)
    decided = decide(found, AS_OF, hours, "shadow")

    assert decided == decide(shuffled, AS_OF, hours, "shadow")
    assert {each[:3] for each in decided} == plain_decide(found)
    assert len({each[:2] for each in decided}) == len(decided)
    for each in decided:
        mine = [one for one in found if (*one[:2], one.rule) == (*each[:2], each.rule)]
        told = [
            one.window_us
            for one in mine
            if one.action is not Suggestion.NONE and one.window_us + HOUR_US <= AS_OF < one.expires_us
        ]
        assert each.valid_from_us == max(told)
        assert each.valid_from_us < AS_OF < each.valid_until_us <= AS_OF + hours * HOUR_US
        assert each.valid_until_us <= max(one.expires_us for one in mine)
        assert 1 <= each.evidence <= len(mine)
        assert each.amount in {amount for (action, _), amount in AMOUNTS.items() if action is each.action}
        assert (each.subject_kind, each.action) != ("source", Suggestion.BLOCK)


def high(hour: int, rule: Rule = Rule.BURST, kind: str = "peer") -> Evidence:
    """Return a high finding that suggests a rate."""
    start = AS_OF - hour * HOUR_US
    return Evidence(kind, b"a", rule, start, Severity.HIGH, Suggestion.RATE, start + 25 * HOUR_US)


def test_blocking_takes_two_hours_of_one_rule() -> None:
    """One high hour limits, a second one of the same rule blocks, one of another rule or of a network does not."""
    times = AS_OF - HOUR_US, AS_OF + 24 * HOUR_US
    limited = Decided("peer", b"a", Suggestion.RATE, 10, Rule.BURST, 1, *times, "enforce")

    assert decide([high(1)], AS_OF, 24, "enforce") == [limited]
    assert [each.action.value for each in decide([high(1), high(1)], AS_OF, 24, "enforce")] == ["rate"]
    assert [each.action.value for each in decide([high(1), high(2)], AS_OF, 24, "enforce")] == ["block"]
    assert [each.action.value for each in decide([high(1), high(2, Rule.REPLAY)], AS_OF, 24, "enforce")] == ["rate"]
    networks = [high(1, kind="source"), high(2, kind="source")]
    assert [each.action.value for each in decide(networks, AS_OF, 24, "enforce")] == ["rate"]


def test_the_lower_rate_is_the_stronger() -> None:
    """Of two rates the one that leaves less is told, whichever rule it comes from."""
    milder = high(1, Rule.REPLAY)._replace(severity=Severity.MEDIUM)
    other = [high(1)._replace(severity=Severity.MEDIUM), high(1, Rule.REPLAY)]

    assert [(each.rule, each.amount) for each in decide([high(1), milder], AS_OF, 24, "shadow")] == [(Rule.BURST, 10)]
    assert [(each.rule, each.amount) for each in decide(other, AS_OF, 24, "shadow")] == [(Rule.REPLAY, 10)]


def test_a_finding_counts_from_its_end_until_it_expires() -> None:
    """An hour that is not over decides nothing, nor does one that has expired."""
    assert decide([high(1)], AS_OF - 1, 24, "shadow") == []
    assert len(decide([high(24)], AS_OF, 24, "shadow")) == 1
    assert decide([high(25)], AS_OF, 24, "shadow") == []
