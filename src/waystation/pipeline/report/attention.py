"""First section of the report: conditions that need the operator's attention, the most severe first.

``report.page`` calls it with the ``Summary`` and facts of the run, and gets a ``Section``. Each condition links to the
section that shows it.
"""

from collections.abc import Iterator
from html import escape
from typing import Final, NamedTuple

from waystation.pipeline.plots.units import counted, moment_text, share_text
from waystation.pipeline.report.markup import Markup, Section, badge, link, note, reference
from waystation.pipeline.report.operations import problems_of
from waystation.pipeline.report.relays import CONSISTENCY_BOUND, worst_first
from waystation.pipeline.report.summary import ConsistencyRow, FindingRow, RunFacts, Summary
from waystation.pipeline.report.words import reason_text

__all__ = ["DAYS_TO_FULL_MIN", "Attention", "attention", "attentions"]

DAYS_TO_FULL_MIN: Final = 30
"""Fewer days until a disk is full need attention."""

_SHOWN_MAX: Final = 40
_SOON_DAYS: Final = 7
_SEVERITIES: Final = ("high", "medium", "low")


class Attention(NamedTuple):
    """One thing that needs attention."""

    severity: str
    """``high``, ``medium`` or ``low``."""
    about: str
    """Id or reference it is about; empty for none."""
    text: str
    section: str
    """Key of the section that has more."""


def attentions(summary: Summary, facts: RunFacts) -> list[Attention]:
    """Return everything that needs attention, the most severe first."""
    found = [
        *_relays(summary),
        *_abuse(summary),
        *_groups(summary),
        *_machines(summary),
        *_consistency(summary),
        *_mesh(summary),
        *_pipeline(summary, facts),
    ]
    return sorted(found, key=lambda each: _SEVERITIES.index(each.severity))


def attention(summary: Summary, facts: RunFacts) -> Section:
    """Return the section that stands at the top."""
    found = attentions(summary, facts)
    counts = [(name, sum(each.severity == name for each in found)) for name in _SEVERITIES]
    counts_text = ", ".join(f"{n:,} {name}" for name, n in counts if n)
    meaning = f"What needs attention, the most severe first: {counts_text}." if found else "What to look at first."
    items = "\n".join(
        f"<li>{badge(each.severity)} <span>{reference(each.about) + ' ' if each.about else ''}"
        f"{escape(each.text)} {link(each.section, f'see {each.section}')}"
        "</span></li>"
        for each in found[:_SHOWN_MAX]
    )
    parts = [Markup(f"<ul class='attention'>{items}</ul>")] if found else []
    if len(found) > _SHOWN_MAX:
        parts.append(note(f"{len(found) - _SHOWN_MAX:,} less severe ones are not listed here."))
    return Section("attention", "Top findings", meaning, "Nothing needs attention.", parts)


def _relays(summary: Summary) -> Iterator[Attention]:
    red = {row.relay_id for row in summary.relays if row.state == "blacklisted"}
    for row in worst_first(summary.relays):
        if row.relay_id in red:
            text = f"is blacklisted since {moment_text(row.since_s)} UTC: {reason_text(row.reason)}"
            yield Attention("high", row.relay_id[:8], text, "relays")
    was = {row.relay_id: row for row in summary.transitions if row.after == "blacklisted" != row.before}
    for relay, move in sorted(was.items()):
        if relay not in red:
            text = f"was blacklisted at {moment_text(move.at_s)} UTC: {reason_text(move.reason)}"
            yield Attention("medium", relay[:8], text, "relays")


def _abuse(summary: Summary) -> Iterator[Attention]:
    worst: dict[tuple[str, str, str, str], list[FindingRow]] = {}
    for row in summary.findings:
        if summary.as_of_s is None or row.expires_s > summary.as_of_s:
            worst.setdefault((row.actor_kind, row.actor, row.rule, row.node_id), []).append(row)
    for rows in worst.values():
        row = min(rows, key=lambda each: (_SEVERITIES.index(_severity(each)), -each.n))
        windows = f" in {len(rows):,} windows" if len(rows) > 1 else ""
        action = "nothing" if row.action == "none" else row.action
        text = (
            f"({row.actor_kind}, {row.protocol}) broke the rule {row.rule}{windows}: {row.n:,} where {row.limit:,} are"
            f" allowed; suggested: {action}"
        )
        yield Attention(_severity(row), row.actor, text, "abuse")


def _severity(row: FindingRow) -> str:
    return row.severity if row.severity in _SEVERITIES else "low"


def _groups(summary: Summary) -> Iterator[Attention]:
    for root in summary.roots:
        others = f"makes {counted(root.n_invalid, 'other')} invalid" if root.n_invalid else "nothing depends on it"
        text = f"(group {root.group}) is an invalid message and {others}"
        yield Attention("high" if root.n_invalid else "medium", root.root, text, "groups")
    reported = {(root.node_id, root.group) for root in summary.roots}
    for row in summary.groups:
        if row.n_invalid_root and (row.node_id, row.group) not in reported:
            yield Attention(
                "high", row.group, f"(group) has {counted(row.n_invalid_root, 'invalid message')}", "groups"
            )


def _machines(summary: Summary) -> Iterator[Attention]:
    newest = {row.node_id: row for row in summary.capacity}
    for node, row in sorted(newest.items()):
        if row.days_to_full is not None and row.days_to_full < DAYS_TO_FULL_MIN:
            severity = "high" if row.days_to_full < _SOON_DAYS else "medium"
            yield Attention(
                severity, node[:8], f"has a disk that is full in {counted(row.days_to_full, 'day')}", "capacity"
            )


def _consistency(summary: Summary) -> Iterator[Attention]:
    newest: dict[str, ConsistencyRow] = {}
    for row in summary.consistency:
        if row.ratio is not None:
            newest[row.relay_id] = row
    for relay, row in sorted(newest.items()):
        if row.high is not None and row.high < CONSISTENCY_BOUND:
            text = (
                f"had {share_text(row.ratio)} of {row.n_expected:,} expected packets on {row.day.isoformat()}, surely"
                f" below {share_text(CONSISTENCY_BOUND)}"
            )
            yield Attention("medium", relay[:8], text, "consistency")


def _mesh(summary: Summary) -> Iterator[Attention]:
    for row in summary.servers:
        if row.is_articulation:
            text = f"is a server whose loss would split {row.component_size:,} servers of the mesh"
            yield Attention("medium", row.server[:8], text, "mesh")


def _pipeline(summary: Summary, facts: RunFacts) -> Iterator[Attention]:
    for row in summary.retention:
        if not row.holds:
            yield Attention("high", "", f"{row.dataset} holds rows that are older than they may be", "runs")
    problems = problems_of(summary, facts)
    if problems:
        yield Attention("low", "", f"{counted(len(problems), 'note')} on segments that were not in order", "runs")
    lines = sum(row.n for row in summary.quarantine)
    if lines:
        yield Attention("low", "", f"{counted(lines, 'line')} of segments not taken", "runs")
