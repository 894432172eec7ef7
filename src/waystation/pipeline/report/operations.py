"""Report sections on node capacity, and on connections, refusals and pipeline runs.

``report.page`` passes the ``Summary``; each function returns a ``Section`` with tables and figures.
"""

from collections.abc import Sequence
from typing import Final

from waystation.pipeline.jobs.step import Problem
from waystation.pipeline.plots import Day, plot_capacity, plot_connections
from waystation.pipeline.plots.units import bytes_text, counted, duration_text
from waystation.pipeline.report.markup import Figure, Markup, Section, badge, moment, note, reference, table
from waystation.pipeline.report.summary import CapacityRow, RunFacts, Summary
from waystation.pipeline.report.words import short_names

__all__ = ["capacity", "problems_of", "runs"]

_PROBLEMS_SHOWN_MAX: Final = 100
_STEP_HEAD: Final = ("step", ">rows in", ">rows out", ">left out", ">seconds")
_STEP_HEAD_LATE: Final = ("step", ">rows in", ">rows out", ">left out", ">late", ">seconds")


def capacity(summary: Summary) -> Section:
    """Return the section on what each node carried."""
    nodes: dict[str, list[CapacityRow]] = {}
    for row in summary.capacity:
        nodes.setdefault(row.node_id, []).append(row)
    names = short_names(nodes)
    days = {
        names[node] + _full_text(rows[-1]): [
            Day(row.day, row.peak_connections, row.messages_per_s, row.bytes_in + row.bytes_out, row.store_bytes)
            for row in rows
        ]
        for node, rows in nodes.items()
    }
    parts: list[Markup | Figure] = []
    if nodes:
        parts = [_newest(list(nodes.values())), Figure(plot_capacity(days), _days(summary.capacity))]
    full = [row.days_to_full for rows in nodes.values() for row in rows[-1:] if row.days_to_full is not None]
    forecast = f"the first disk is full in {min(full):,} days" if full else "no disk is known to fill up"
    return Section("capacity", "Capacity", f"What the nodes carried; {forecast}.", "No node reported its load.", parts)


def _full_text(row: CapacityRow) -> str:
    return "" if row.days_to_full is None else f", full in {counted(row.days_to_full, 'day')}"


def _newest(nodes: Sequence[Sequence[CapacityRow]]) -> Markup:
    lines = [
        (
            reference(rows[-1].node_id),
            rows[-1].day.isoformat(),
            bytes_text(rows[-1].store_bytes),
            "-" if rows[-1].growth_bytes is None else bytes_text(rows[-1].growth_bytes),
            "-" if rows[-1].days_to_full is None else f"{rows[-1].days_to_full:,}",
            bytes_text(rows[-1].memory_bytes),
            duration_text(rows[-1].cpu_us),
            f"{rows[-1].pow_accepted:,}",
            f"{rows[-1].pow_turned_down:,}",
        )
        for rows in nodes
    ]
    head = ("node", "day", ">store", ">growth a day", ">days to full", ">memory", ">processor", ">proofs of work",
            ">rejected")  # fmt: skip
    return table("Nodes on their last day", head, lines)


def _days(rows: Sequence[CapacityRow]) -> Markup:
    lines = [
        (
            row.day.isoformat(),
            reference(row.node_id),
            f"{row.peak_connections:,}",
            f"{row.messages:,}",
            f"{row.messages_per_s:,.3g}",
            bytes_text(row.bytes_in),
            bytes_text(row.bytes_out),
            bytes_text(row.store_bytes),
        )
        for row in sorted(rows, key=lambda row: (-row.day.toordinal(), row.node_id))
    ]
    head = ("day", "node", ">connections", ">messages", ">a second", ">in", ">out", ">store")
    return table("Capacity by day, the newest first", head, lines)


def runs(summary: Summary, facts: RunFacts) -> Section:
    """Return the section on connections, refusals and what the pipeline did."""
    parts: list[Markup | Figure] = []
    if summary.connections or summary.anonymous:
        lines = [
            (moment(row.hour_s), kind, f"{row.opened:,}", f"{row.closed:,}")
            for kind, rows in (("identified", summary.connections), ("anonymous", summary.anonymous))
            for row in rows
        ]
        numbers = table("Connections by hour", ("hour (UTC)", "kind", ">opened", ">closed"), lines, rows_max=400)
        parts.append(Figure(plot_connections(summary.connections, summary.anonymous), numbers))
        parts.append(note("Anonymous connections are only ever counted by the minute."))
    else:
        parts.append(note("No connections."))
    refused = [(row.protocol, row.reason, f"{row.n:,}") for row in summary.refusals]
    head = ("protocol", "reason", ">times")
    parts.append(table("Refused frames and connections", head, refused) if refused else note("Nothing was refused."))
    parts += _pipeline_parts(summary, facts)
    meaning = "What the pipeline read, made and rejected, so that every number above can be traced."
    return Section("runs", "Runs", meaning, "", parts)


def _pipeline_parts(summary: Summary, facts: RunFacts) -> list[Markup]:
    parts = []
    steps = facts.steps or _last_steps(summary)
    if facts.lines:
        parts.append(table("This run", ("fact", "value"), facts.lines))
    if steps:
        parts.append(table("Steps", _STEP_HEAD if len(steps[0]) == len(_STEP_HEAD) else _STEP_HEAD_LATE, steps))
    rows = [(name, f"{n:,}") for name, n in summary.row_counts]
    parts.append(table("Rows by dataset", ("dataset", ">rows"), rows))
    if summary.quarantine:
        lines = [(row.dataset, row.reason, f"{row.n:,}") for row in summary.quarantine]
        parts.append(table("Lines that were not taken", ("dataset", "reason", ">lines"), lines))
    if summary.retention:
        parts.append(_retention(summary))
    if summary.runs:
        parts.append(_earlier(summary))
    return [*parts, _problems(problems_of(summary, facts))]


def _last_steps(summary: Summary) -> list[tuple[str, ...]]:
    return [
        (step.name, f"{step.rows_in:,}", f"{step.rows_out:,}", f"{step.rows_rejected:,}", f"{step.seconds:.1f}")
        for run in summary.runs[:1]
        for step in run.steps
    ]


def _retention(summary: Summary) -> Markup:
    lines = [
        (
            row.dataset,
            badge("holds" if row.holds else "broken"),
            f"{row.days:,}",
            "-" if row.oldest is None else row.oldest.isoformat(),
            f"{row.deleted_rows:,}",
            f"{row.files:,}",
            moment(row.as_of_s),
        )
        for row in sorted(summary.retention, key=lambda row: (row.holds, row.dataset))
    ]
    head = ("dataset", "limit", ">days kept", "oldest left", ">rows deleted", ">files left", "as of (UTC)")
    return table("Proof that nothing is kept too long", head, lines)


def _earlier(summary: Summary) -> Markup:
    lines = [
        (
            reference(run.run_id),
            run.started_at,
            f"{sum(step.seconds for step in run.steps):,.1f}",
            f"{run.steps[0].rows_in if run.steps else 0:,}",
            f"{sum(step.rows_rejected for step in run.steps):,}",
            f"{len(run.problems):,}",
        )
        for run in summary.runs
    ]
    head = ("run", "started (UTC)", ">seconds", ">rows read", ">left out", ">notes")
    return table("Runs, the newest first", head, lines)


def problems_of(summary: Summary, facts: RunFacts) -> Sequence[Problem]:
    """Return the notes on segments: of this run, or of the last one when this one read none."""
    return facts.problems or (summary.runs[0].problems if summary.runs and not facts.steps else ())


def _problems(problems: Sequence[Problem]) -> Markup:
    if not problems:
        return note("Every segment was in order.")
    lines = [(p.segment, p.problem) for p in problems[:_PROBLEMS_SHOWN_MAX]]
    hidden = len(problems) - _PROBLEMS_SHOWN_MAX
    listed = table("Notes on segments", ("segment", "problem"), lines)
    return Markup(listed + (note(f"{hidden:,} more stand in the run report.") if hidden > 0 else ""))
