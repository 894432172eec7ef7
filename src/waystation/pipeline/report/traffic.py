"""Report sections on deliveries, their latency, and packet verdicts.

``report.page`` passes the ``Summary``; each function returns a ``Section`` with tables and figures.
"""

from collections.abc import Mapping, Sequence

from waystation.pipeline.plots import plot_latency, plot_outcomes, plot_verdicts
from waystation.pipeline.plots.units import bytes_text, duration_text, moment_text, share_text
from waystation.pipeline.report.markup import Figure, Markup, Section, note, table
from waystation.pipeline.report.summary import OutcomeRow, Summary
from waystation.pipeline.tables import OUTCOMES
from waystation.rules.histogram import bounds_us, merge, quantile

__all__ = ["deliveries", "latency", "packets", "quantile_text"]

_ANSWERED = frozenset({"ok", "cached"})


def deliveries(summary: Summary) -> Section:
    """Return the section on delivery outcomes."""
    rows = summary.outcomes
    attempts = sum(row.n for row in rows)
    answered = sum(row.n for row in rows if row.outcome in _ANSWERED)
    share = share_text(answered / attempts if attempts else None)
    meaning = f"Of {attempts:,} delivery attempts {share} were answered; every retry of a sender is an attempt."
    return Section("deliveries", "Deliveries", meaning, "No deliveries.", _outcome_parts(rows) if rows else ())


def _outcome_parts(rows: Sequence[OutcomeRow]) -> list[Figure]:
    counts: dict[tuple[int, str], int] = {}
    totals: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        counts[row.hour_s, row.outcome] = counts.get((row.hour_s, row.outcome), 0) + row.n
        total = totals.setdefault((row.protocol, row.outcome), [0, 0])
        total[0] += row.n
        total[1] += row.bytes
    lines = [
        (protocol, outcome, f"{n:,}", bytes_text(size), OUTCOMES.get(outcome, ""))
        for (protocol, outcome), (n, size) in sorted(totals.items())
    ]
    head = ("protocol", "outcome", ">attempts", ">bytes", "+which means")
    return [Figure(plot_outcomes(counts), table("Attempts by protocol and outcome", head, lines))]


def latency(summary: Summary) -> Section:
    """Return the section on how long deliveries took."""
    by_protocol = {
        protocol: merge(row.histogram for row in summary.outcomes if row.protocol == protocol)
        for protocol in sorted({row.protocol for row in summary.outcomes})
    }
    measured = {protocol: histogram for protocol, histogram in by_protocol.items() if sum(histogram.values())}
    lines = [
        (protocol, f"{sum(each.values()):,}", *(quantile_text(each, q) for q in (0.5, 0.95, 0.99)))
        for protocol, each in measured.items()
    ]
    head = ("protocol", ">measured", ">p50", ">p95", ">p99")
    parts = [Figure(plot_latency(measured), table("Time to outcome", head, lines))] if measured else []
    meaning = "A curve further left is faster; where it crosses 50 % half of the attempts had their outcome."
    return Section("latency", "Latency", meaning, "No attempt has a latency yet.", parts)


def quantile_text(histogram: Mapping[int, int], q: float) -> str:
    """Return the upper edge of the bucket a quantile lies in, as text."""
    bucket = quantile(histogram, q)
    if bucket is None:
        return "-"
    low, high = bounds_us(bucket)
    return f"≤ {duration_text(high or low)}"


def packets(summary: Summary) -> Section:
    """Return the section on verdicts, and on the archive that was checked again."""
    parts: list[Markup | Figure] = []
    rows = summary.verdicts
    if rows:
        counts: dict[tuple[int, str], int] = {}
        totals: dict[tuple[str, str, str], list[int]] = {}
        for row in rows:
            counts[row.hour_s, row.verdict] = counts.get((row.hour_s, row.verdict), 0) + row.n
            total = totals.setdefault((row.protocol, row.verdict, row.detail), [0, 0])
            total[0] += row.n
            total[1] += row.bytes
        lines = [(*key, f"{n:,}", bytes_text(size)) for key, (n, size) in sorted(totals.items())]
        head = ("protocol", "verdict", "detail", ">packets", ">bytes")
        parts.append(Figure(plot_verdicts(counts), table("Packets by verdict", head, lines)))
    checks = [(row.protocol, row.verdict, f"{row.n:,}", bytes_text(row.bytes)) for row in summary.checks]
    if checks:
        parts.append(table("Archived packets", ("protocol", "found", ">packets", ">bytes"), checks))
        parts.append(note("Ids and signatures of stored packets, checked again from their signed bytes."))
    accepted = sum(row.n for row in rows if row.verdict == "accepted")
    since = f" since {moment_text(min(row.hour_s for row in rows))}" if rows else ""
    meaning = f"Each packet that came in was accepted or refused by a named rule: {accepted:,} were accepted{since}."
    return Section("packets", "Packets", meaning, "No packets.", parts)
