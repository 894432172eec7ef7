"""The section on abuse and policy."""

from tests.pipeline.report.build import DAY_S, HOUR_S, NODE, finding_row
from waystation.pipeline.report import PolicyRow, Summary
from waystation.pipeline.report.markup import section_html
from waystation.pipeline.report.policy import abuse, action_text

RULE = PolicyRow(NODE, HOUR_S, "peer", "deadbeef", "rate", 60, "burst", 2, HOUR_S + DAY_S, "shadow")


def test_rule_says_why() -> None:
    """A rule of policy names what was counted in its worst window, and what is allowed."""
    findings = [finding_row(), finding_row(n=51_002), finding_row(actor="0badcafe", n=99_999)]
    made = section_html(abuse(Summary(findings=findings, policy=[RULE])))

    assert "burst, 2 findings: 51,002 where 3,000 are allowed" in made
    assert "at most 60 messages a minute" in made
    assert "Enforced: 0 rules; in shadow, where nodes only count what they would do: 1 rule." in made


def test_rule_without_its_findings_still_says_which() -> None:
    """Findings that are gone leave the rule's name and their number."""
    made = section_html(abuse(Summary(policy=[RULE._replace(evidence=1, mode="enforce")])))

    assert "burst, 1 finding<" in made
    assert "<span class='badge bad'>enforce</span>" in made


def test_findings_without_policy_are_said_to_do_nothing() -> None:
    """Findings alone change nothing at a node, and the page says so."""
    made = section_html(abuse(Summary(findings=[finding_row()], findings_hourly=[(HOUR_S, "burst", 1)])))

    assert "nodes do nothing about them" in made
    assert "48,211" in made
    assert "<svg" in made


def test_actions_are_sentences() -> None:
    """Known actions are told in words, an unknown one stays as it is."""
    assert action_text("pow", 4) == "4 more bits of proof of work"
    assert action_text("block", 0) == "blocked"
    assert action_text("odd {x}", 1) == "odd {x}"
