"""Report section on abuse findings and the policy rules derived from them.

``report.page`` passes the ``Summary``; ``abuse`` returns a ``Section``. Peers appear as keyed references, because the
journal names nobody.
"""

from collections.abc import Sequence

from waystation.pipeline.plots import plot_findings
from waystation.pipeline.plots.units import counted
from waystation.pipeline.report.markup import Figure, Markup, Section, badge, moment, note, reference, table
from waystation.pipeline.report.summary import FindingRow, PolicyRow, Summary
from waystation.pipeline.report.words import ACTIONS

__all__ = ["abuse", "action_text"]


def abuse(summary: Summary) -> Section:
    """Return the section on findings of abuse and the policy made of them."""
    parts: list[Markup | Figure] = []
    hourly: dict[tuple[int, str], int] = {}
    for hour, rule, n in summary.findings_hourly:
        hourly[hour, rule] = hourly.get((hour, rule), 0) + n
    if hourly:
        parts.append(Figure(plot_findings(hourly), _by_rule(summary.findings_hourly)))
    if summary.findings:
        parts.append(_findings(summary.findings))
    if summary.policy:
        parts += [_policy(summary.policy, summary.findings), _modes(summary.policy)]
    elif parts:
        parts.append(note("No policy was made of these findings: nodes do nothing about them."))
    meaning = (
        "Actors beyond the limit of a rule, by a reference that only the node can resolve, and the rules for nodes."
    )
    return Section("abuse", "Abuse and policy", meaning, "No actor did more than the rules allow.", parts)


def _by_rule(hourly: Sequence[tuple[int, str, int]]) -> Markup:
    totals: dict[str, int] = {}
    for _, rule, n in hourly:
        totals[rule] = totals.get(rule, 0) + n
    return table("Findings by rule", ("rule", ">findings"), [(rule, f"{n:,}") for rule, n in sorted(totals.items())])


def _findings(findings: Sequence[FindingRow]) -> Markup:
    lines = [
        (
            badge(row.severity),
            row.rule,
            row.protocol,
            row.actor_kind,
            reference(row.actor),
            f"{row.n:,}",
            f"{row.limit:,}",
            moment(row.first_s),
            moment(row.last_s),
            row.action,
            reference(row.node_id),
        )
        for row in findings
    ]
    head = ("severity", "rule", "protocol", "who", "reference", ">counted", ">limit", "first (UTC)", "last (UTC)",
            "suggested", "node")  # fmt: skip
    return table("Findings, the most severe first", head, lines)


def _policy(policy: Sequence[PolicyRow], findings: Sequence[FindingRow]) -> Markup:
    lines = [
        (
            badge(row.mode),
            row.subject_kind,
            reference(row.subject),
            action_text(row.action, row.amount),
            _why(row, findings),
            moment(row.valid_until_s),
            reference(row.node_id),
        )
        for row in policy
    ]
    head = ("mode", "who", "reference", "+what", "+why", "until (UTC)", "node")
    return table("Published policy", head, lines)


def _why(row: PolicyRow, findings: Sequence[FindingRow]) -> str:
    wanted = row.node_id, row.subject_kind, row.subject, row.rule
    same = [each for each in findings if (each.node_id, each.actor_kind, each.actor, each.rule) == wanted]
    finding = f"{row.rule}, {counted(row.evidence, 'finding')}"
    if not same:
        return finding
    worst = max(same, key=lambda each: (each.n - each.limit, each.window_s))
    return f"{finding}: {worst.n:,} where {worst.limit:,} are allowed"


def _modes(policy: Sequence[PolicyRow]) -> Markup:
    enforced = sum(row.mode == "enforce" for row in policy)
    shadowed = len(policy) - enforced
    return note(
        f"Enforced: {counted(enforced, 'rule')}; in shadow, where nodes only count what they would do: "
        f"{counted(shadowed, 'rule')}. An operator's own lists always win."
    )


def action_text(action: str, amount: int) -> str:
    """Return what a rule of policy does; an unknown action stays as it is."""
    return ACTIONS.get(action, action.replace("{", "{{").replace("}", "}}")).format(amount=amount)
