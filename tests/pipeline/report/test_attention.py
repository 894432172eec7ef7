"""What needs attention."""

import pytest

from tests.pipeline.report.build import (
    DAY_S,
    FACTS,
    HOUR_S,
    NODE,
    capacity_row,
    consistency_row,
    finding_row,
    full_summary,
    group_row,
    relay_id,
    relay_row,
)
from waystation.pipeline.jobs.step import Problem
from waystation.pipeline.report import (
    QuarantineRow,
    RetentionRow,
    RootRow,
    RunFacts,
    ServerRow,
    Summary,
    TransitionRow,
)
from waystation.pipeline.report.attention import DAYS_TO_FULL_MIN, attention, attentions

RED = relay_row(1, state="blacklisted", since_s=HOUR_S, reason="violations")


def told(facts: RunFacts | None = None, **parts) -> list[tuple[str, str, str]]:
    """Return severity, what it is about and the section of everything found."""
    return [(each.severity, each.about, each.section) for each in attentions(Summary(**parts), facts or RunFacts())]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"relays": [RED]}, ("high", relay_id(1)[:8], "relays")),
        (
            {"transitions": [TransitionRow("aabbccddeeff0011", HOUR_S, "active", "blacklisted", "unreachable", 0.1)]},
            ("medium", "aabbccdd", "relays"),
        ),
        ({"findings": [finding_row()]}, ("high", "deadbeef", "abuse")),
        ({"findings": [finding_row(severity="medium")]}, ("medium", "deadbeef", "abuse")),
        ({"findings": [finding_row(severity="odd")]}, ("low", "deadbeef", "abuse")),
        ({"roots": [RootRow(NODE, "a0a0a0a0", "bad0bad0", 3, 2)]}, ("high", "bad0bad0", "groups")),
        ({"roots": [RootRow(NODE, "a0a0a0a0", "bad0bad0", 0, 0)]}, ("medium", "bad0bad0", "groups")),
        ({"groups": [group_row(n_invalid_root=2)]}, ("high", "a0b0c0d1", "groups")),
        ({"capacity": [capacity_row(NODE, 0, days_to_full=6)]}, ("high", NODE[:8], "capacity")),
        ({"capacity": [capacity_row(NODE, 0, days_to_full=DAYS_TO_FULL_MIN - 1)]}, ("medium", NODE[:8], "capacity")),
        ({"consistency": [consistency_row(1, 0, 90)]}, ("medium", relay_id(1)[:8], "consistency")),
        (
            {"servers": [ServerRow("aabbccddeeff0011", HOUR_S, [], 2, "aa", 5, True, 0, 0, None)]},
            ("medium", "aabbccdd", "mesh"),
        ),
        ({"retention": [RetentionRow("silver.pow", HOUR_S, 14, 0, 0, 1, None, False)]}, ("high", "", "runs")),
        ({"quarantine": [QuarantineRow("bronze.events", "not json", 3)]}, ("low", "", "runs")),
        ({"facts": RunFacts(problems=[Problem("s", "torn")])}, ("low", "", "runs")),
    ],
)
def test_each_kind_is_found(parts, expected) -> None:
    """What is wrong by itself is told once, with its severity and where to read more."""
    assert told(**parts) == [expected]


@pytest.mark.parametrize(
    "parts",
    [
        {"relays": [relay_row(1), relay_row(2, state="backup"), relay_row(3, state="probation")]},
        {"transitions": [TransitionRow("aa", HOUR_S, "blacklisted", "blacklisted", "violations", 0.1)]},
        {"findings": [finding_row(expires_s=HOUR_S)], "as_of_s": HOUR_S},
        {"groups": [group_row(1)]},
        {"capacity": [capacity_row(NODE, 0, days_to_full=DAYS_TO_FULL_MIN), capacity_row(NODE, 0, days_to_full=None)]},
        {"capacity": [capacity_row(NODE, 1, days_to_full=3), capacity_row(NODE, 0, days_to_full=None)]},
        {"consistency": [consistency_row(1, 1, 90), consistency_row(1, 0, 20)]},
        {"servers": [ServerRow("aa", HOUR_S, [], 2, "aa", 5, False, 0, 0, None)]},
        {"retention": [RetentionRow("silver.pow", HOUR_S, 14, 0, 0, 1, None, True)]},
    ],
)
def test_what_is_in_order_is_not_told(parts) -> None:
    """What is good, uncertain, over, or was put right since needs nobody."""
    assert told(**parts) == []


def test_the_most_severe_come_first() -> None:
    """High before medium before low, whatever they are about."""
    severities = [each.severity for each in attentions(full_summary(), FACTS)]

    assert severities == sorted(severities, key=["high", "medium", "low"].index)
    assert set(severities) == {"high", "medium", "low"}


def test_one_actor_is_told_once_per_rule() -> None:
    """A flooder of a whole day is one line, with its worst window."""
    windows = [finding_row(window_s=HOUR_S + 3_600 * hour, n=4_000 + hour) for hour in range(24)]
    found = attentions(Summary(findings=windows), RunFacts())

    assert len(found) == 1
    assert "in 24 windows: 4,023 where 3,000 are allowed; suggested: block" in found[0].text


def test_red_relay_is_told_with_its_reason() -> None:
    """A relay that is blacklisted now is not told a second time for having become so."""
    change = TransitionRow(RED.relay_id, HOUR_S - DAY_S, "active", "blacklisted", "violations", 0.1)
    found = attentions(Summary(relays=[RED], transitions=[change]), RunFacts())

    assert len(found) == 1
    assert "is blacklisted since 2026-05-29 12:00 UTC: integrity violations" in found[0].text


def test_list_is_cut_with_a_number() -> None:
    """Forty lines are listed, and how many more there are is said."""
    findings = [finding_row(actor=f"{number:08x}") for number in range(55)]
    section = attention(Summary(findings=findings), RunFacts())

    assert section.parts[0].count("<li>") == 40
    assert "15 less severe ones" in section.parts[1]


def test_nothing_is_said_as_nothing() -> None:
    """Without anything to look at there is no list."""
    section = attention(Summary(), RunFacts())

    assert (section.empty, list(section.parts)) == ("Nothing needs attention.", [])
