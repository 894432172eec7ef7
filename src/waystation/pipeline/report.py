"""The report: one page that needs nothing but itself.

Drawn from a ``Summary``, which holds plain numbers; no Spark here. Plots are inline SVG, the style is in the page,
there is no script and no reference outwards, so that it can be mailed, archived and read offline.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final, NamedTuple

from waystation.pipeline.jobs.step import Problem
from waystation.pipeline.plots import Hourly, plot_connections, plot_latency, plot_outcomes, plot_verdicts
from waystation.pipeline.tables import OUTCOMES
from waystation.rules.histogram import bounds_us, merge, quantile

__all__ = ["EMPTY", "CheckRow", "Hourly", "OutcomeRow", "RefusalRow", "RunFacts", "Summary", "VerdictRow", "render"]

EMPTY: Final = "The journal holds no events yet: let the node run for a while, then run the pipeline again."

_PROBLEMS_SHOWN_MAX: Final = 100


class OutcomeRow(NamedTuple):
    """One row of ``gold.delivery_outcomes``."""

    hour_s: int
    """Beginning of the hour, seconds UTC since 1970."""
    protocol: str
    outcome: str
    n: int
    bytes: int
    histogram: Mapping[int, int]


class RefusalRow(NamedTuple):
    """How often one protocol turned something down for one reason."""

    protocol: str
    reason: str
    n: int


class VerdictRow(NamedTuple):
    """One row of ``gold.packet_verdicts``."""

    hour_s: int
    """Beginning of the hour, seconds UTC since 1970."""
    protocol: str
    verdict: str
    detail: str
    n: int
    bytes: int


class CheckRow(NamedTuple):
    """How many archived packets of one protocol a check found to be so."""

    protocol: str
    verdict: str
    n: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What the lake says."""

    outcomes: Sequence[OutcomeRow] = ()
    connections: Sequence[Hourly] = ()
    anonymous: Sequence[Hourly] = ()
    refusals: Sequence[RefusalRow] = ()
    row_counts: Sequence[tuple[str, int]] = ()
    verdicts: Sequence[VerdictRow] = ()
    checks: Sequence[CheckRow] = ()

    def is_empty(self) -> bool:
        """Tell whether nothing at all was recorded."""
        return not any(rows for _, rows in self.row_counts)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the run says about itself."""

    lines: Sequence[tuple[str, str]] = ()
    """Name and value, in order."""
    steps: Sequence[Sequence[str]] = ()
    """Step, rows in, out, rejected, seconds."""
    problems: Sequence[Problem] = field(default=())


def render(summary: Summary, facts: RunFacts) -> str:
    """Return the page as HTML."""
    body = [f"<p class='empty'>{EMPTY}</p>"] if summary.is_empty() else _sections(summary)
    body += [
        _section("Rows", _table(("dataset", "rows"), [(name, f"{rows:,}") for name, rows in summary.row_counts])),
        _section("This run", _table(("fact", "value"), facts.lines) + _steps(facts.steps)),
        _section("Notes on segments", _problems(facts.problems)),
    ]
    return _PAGE.format(style=_STYLE, body="\n".join(body))


def _sections(summary: Summary) -> list[str]:
    return [
        _tiles(summary),
        _section("Deliveries", _deliveries(summary.outcomes)),
        _section("Latency", _latency(summary.outcomes)),
        _section("Connections", _connections(summary)),
        _section("Packets", _packets(summary.verdicts)),
        _section("Archive", _archive(summary.checks)),
        _section("Refused frames and connections", _refusals(summary.refusals)),
    ]


def _tiles(summary: Summary) -> str:
    attempts = sum(row.n for row in summary.outcomes)
    answered = sum(row.n for row in summary.outcomes if row.outcome in {"ok", "cached"})
    share = f"{100 * answered / attempts:.1f} %" if attempts else "none"
    tiles = [
        ("delivery attempts", f"{attempts:,}"),
        ("answered", share),
        ("median latency", _quantile_text(merge(row.histogram for row in summary.outcomes), 0.5)),
        ("identified connections", f"{sum(row.opened for row in summary.connections):,}"),
        ("packets accepted", f"{sum(row.n for row in summary.verdicts if row.verdict == 'accepted'):,}"),
        ("refused frames and connections", f"{sum(row.n for row in summary.refusals):,}"),
    ]
    boxes = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in tiles)
    return f"<div class='tiles'>{boxes}</div>"


def _deliveries(rows: Sequence[OutcomeRow]) -> str:
    if not rows:
        return "<p>No deliveries.</p>"
    counts: dict[tuple[int, str], int] = {}
    totals: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        counts[row.hour_s, row.outcome] = counts.get((row.hour_s, row.outcome), 0) + row.n
        total = totals.setdefault((row.protocol, row.outcome), [0, 0])
        total[0] += row.n
        total[1] += row.bytes
    table = [(*key, f"{n:,}", f"{size:,}") for key, (n, size) in sorted(totals.items())]
    note = "<p>Every request a sender made is an attempt, its retries too, so one impatient sender can add many.</p>"
    seen = {row.outcome for row in rows}
    meanings = _table(("outcome", "means"), [(name, means) for name, means in OUTCOMES.items() if name in seen])
    return plot_outcomes(counts) + _table(("protocol", "outcome", "attempts", "bytes"), table) + note + meanings


def _latency(rows: Sequence[OutcomeRow]) -> str:
    by_protocol = {
        protocol: merge(row.histogram for row in rows if row.protocol == protocol)
        for protocol in sorted({row.protocol for row in rows})
    }
    everything = merge(by_protocol.values())
    if not everything:
        return "<p>No attempt has a latency yet.</p>"
    table = [
        (protocol, f"{sum(histogram.values()):,}", *(_quantile_text(histogram, q) for q in (0.5, 0.95, 0.99)))
        for protocol, histogram in by_protocol.items()
    ]
    return plot_latency(everything) + _table(("protocol", "measured", "p50", "p95", "p99"), table)


def _quantile_text(histogram: Mapping[int, int], q: float) -> str:
    bucket = quantile(histogram, q)
    if bucket is None:
        return "none"
    low, high = bounds_us(bucket)
    return f"≤ {(high or low) / 1_000:,.3g} ms"


def _connections(summary: Summary) -> str:
    if not summary.connections and not summary.anonymous:
        return "<p>No connections.</p>"
    note = "<p class='note'>Anonymous connections are only ever counted by the minute.</p>"
    return plot_connections(summary.connections, summary.anonymous) + note


def _packets(rows: Sequence[VerdictRow]) -> str:
    if not rows:
        return "<p>No packets.</p>"
    counts: dict[tuple[int, str], int] = {}
    totals: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        counts[row.hour_s, row.verdict] = counts.get((row.hour_s, row.verdict), 0) + row.n
        total = totals.setdefault((row.protocol, row.verdict, row.detail), [0, 0])
        total[0] += row.n
        total[1] += row.bytes
    table = [(*key, f"{n:,}", f"{size:,}") for key, (n, size) in sorted(totals.items())]
    return plot_verdicts(counts) + _table(("protocol", "verdict", "detail", "packets", "bytes"), table)


def _archive(rows: Sequence[CheckRow]) -> str:
    if not rows:
        return "<p>No packets were archived.</p>"
    table = [(row.protocol, row.verdict, f"{row.n:,}", f"{row.bytes:,}") for row in rows]
    note = "<p class='note'>Ids and signatures of stored packets, checked again from their signed bytes.</p>"
    return _table(("protocol", "found", "packets", "bytes"), table) + note


def _refusals(rows: Sequence[RefusalRow]) -> str:
    if not rows:
        return "<p>Nothing was refused.</p>"
    return _table(("protocol", "reason", "times"), [(row.protocol, row.reason, f"{row.n:,}") for row in rows])


def _steps(steps: Sequence[Sequence[str]]) -> str:
    return _table(("step", "rows in", "rows out", "rejected", "seconds"), steps) if steps else ""


def _problems(problems: Sequence[Problem]) -> str:
    if not problems:
        return "<p>None.</p>"
    table = _table(("segment", "problem"), [(p.segment, p.problem) for p in problems[:_PROBLEMS_SHOWN_MAX]])
    hidden = len(problems) - _PROBLEMS_SHOWN_MAX
    return table + (f"<p>{hidden:,} more stand in the run report.</p>" if hidden > 0 else "")


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>\n{content}</section>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>\n{lines}\n</tbody></table>"


_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #22262b; background: #f6f7f9; margin: 0 auto; max-width: 60rem;
       padding: 1.5rem; }
h1 { font-size: 1.6rem; margin: 0 0 1rem; } h2 { font-size: 1.1rem; margin: 0 0 .6rem; }
section { background: #fff; border: 1px solid #e4e6ea; border-radius: 8px; padding: 1rem 1.2rem; margin: 0 0 1rem;
          overflow-x: auto; }
svg { width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; margin: .4rem 0; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #eef0f3; vertical-align: top; }
th { color: #5c6670; font-weight: 600; }
td + td { overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .8rem; margin: 0 0 1rem; }
.tiles div { background: #fff; border: 1px solid #e4e6ea; border-radius: 8px; padding: .7rem 1rem; }
.tiles b { display: block; font-size: 1.3rem; } .tiles span, .note { color: #5c6670; font-size: .85rem; }
.empty { background: #fff; border-left: 4px solid #e0a030; padding: .8rem 1rem; }
@media print { body { background: #fff; } }
"""

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>waystation report</title>
<style>{style}</style>
</head>
<body>
<h1>waystation report</h1>
{body}
</body>
</html>
"""
