"""How a back-test reads, as JSON and as a table."""

import datetime
import json

from tests.journal.build import NOON_US
from waystation.pipeline.backtest import EXAMPLES_MAX, collate
from waystation.rules.policy import Action, Mode, PolicyRule

DATES = [datetime.date(2026, 5, 29), datetime.date(2026, 5, 30)]


def rule(action: Action, amount: int, kind: str = "peer") -> PolicyRule:
    """Return a rule for one subject."""
    return PolicyRule(kind, b"\xab" * 16, action, amount, "burst", 0, 10, "abuse-1", Mode.SHADOW)


RULES = [rule(Action.RATE, 60), rule(Action.BLOCK, 0), rule(Action.RATE, 10, "source")]
EXAMPLES = [(0, bytes([number]) * 16, NOON_US - number) for number in range(EXAMPLES_MAX + 2)]
REPORT = collate(DATES, RULES, [(0, "work", 5, 0), (0, "packet", 1_200, 600)], EXAMPLES)


def test_rules_keep_their_order_and_their_counts() -> None:
    """Each rule has what was counted of it, by kind, and the first few examples by time."""
    first, second, _ = REPORT.results

    assert (first.accepted, first.refused) == ({"packet": 1_200, "work": 5}, {"packet": 600, "work": 0})
    assert (second.accepted, second.refused, second.examples) == ({}, {}, ())
    assert [example.event_id[:2] for example in first.examples] == ["06", "05", "04", "03", "02"]
    assert first.examples[0].at == "2026-05-29T11:59:59.999994+00:00"


def test_the_document_is_json() -> None:
    """Dates, totals and every rule stand in it; a rule for a network says that it was not tried."""
    document = json.loads(json.dumps(REPORT.document()))

    assert document["dates"] == ["2026-05-29", "2026-05-30"]
    assert document["refused"] == 600
    assert [entry["tried"] for entry in document["rules"]] == [True, True, False]
    assert document["rules"][0]["subject_ref"] == "ab" * 16
    assert document["rules"][0]["action"] == "rate"


def test_the_table_is_for_people() -> None:
    """One line for each rule below the headings, with the share that it would refuse."""
    assert REPORT.table().splitlines() == [
        "rule   subject          action  amount  accepted  would refuse      share",
        "burst  peer abababab    rate        60     1,205           600     49.8 %",
        "burst  peer abababab    block        0         0             0          -",
        "burst  source abababab  rate        10         -             -  not tried",
    ]


def test_no_rules_are_no_table() -> None:
    """An empty policy says so."""
    assert collate(DATES, [], [], []).table() == "no rules"
