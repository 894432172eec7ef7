"""Report sections on other relays: states, scores and latency, and consistency of their stored packets.

``report.page`` passes the ``Summary``; each function returns a ``Section`` with tables and figures.
"""

from collections.abc import Sequence
from typing import Final

from waystation.pipeline.plots import Interval, Lane, Range, Stretch, plot_ranges, plot_shares, plot_states
from waystation.pipeline.plots.states import LANES_MAX
from waystation.pipeline.plots.units import bytes_text, duration_text, share_text
from waystation.pipeline.report.markup import Figure, Markup, Section, badge, moment, note, reference, table
from waystation.pipeline.report.summary import ConsistencyRow, RelayRow, Summary, TransitionRow
from waystation.pipeline.report.words import reason_text, short_names

__all__ = ["CONSISTENCY_BOUND", "consistency", "relays", "worst_first"]

CONSISTENCY_BOUND: Final = 0.95
"""A relay whose share is surely below this (its upper 95 % bound is) needs attention."""

_ORDER: Final = ("blacklisted", "probation", "backup", "active")
_SHORT: Final = 8
_CHANGES_SHOWN_MAX: Final = 50
_SHARES_RELAYS_MAX: Final = 12
_SHARES_DAYS_MAX: Final = 7
_DAY_S: Final = 86_400
_NONE: Final = "-"


def worst_first(rows: Sequence[RelayRow]) -> list[RelayRow]:
    """Return relays, the blacklisted first, then by score."""
    places = {state: place for place, state in enumerate(_ORDER)}
    return sorted(rows, key=lambda row: (places.get(row.state, len(_ORDER)), row.score, row.relay_id))


def relays(summary: Summary) -> Section:
    """Return the section on states, scores and latency of relays."""
    rows = worst_first(summary.relays)
    counts = {state: sum(row.state == state for row in rows) for state in _ORDER}
    states = ", ".join(f"{n:,} {state}" for state, n in counts.items() if n) or "none"
    meaning = f"How other relays served this lake's nodes over seven days, and what they are used for: {states}."
    return Section("relays", "Relays", meaning, "No relay was observed.", _parts(rows, summary.transitions))


def _parts(rows: Sequence[RelayRow], transitions: Sequence[TransitionRow]) -> list[Markup | Figure]:
    if not rows:
        return []
    ranges = [
        Range(row.relay_id[:_SHORT], row.state, row.p50_us, row.p95_us, row.p99_us)
        for row in rows
        if row.p50_us is not None and row.p95_us is not None and row.p99_us is not None
    ]
    parts: list[Markup | Figure] = [Figure(plot_states(_lanes(rows, transitions)), _changes(transitions)), _table(rows)]
    if ranges:
        parts.append(Figure(plot_ranges(ranges[:LANES_MAX]), Markup()))
    hidden = len(rows) - LANES_MAX
    return (
        [*parts, note(f"The plots show the {LANES_MAX} worst; {hidden:,} more are in the table.")]
        if hidden > 0
        else parts
    )


def _lanes(rows: Sequence[RelayRow], transitions: Sequence[TransitionRow]) -> list[Lane]:
    """Return a lane per relay: changes end a stretch and begin the next; the newest score ends the last."""
    moves: dict[str, list[TransitionRow]] = {}
    for move in transitions:
        if move.before != move.after:
            moves.setdefault(move.relay_id, []).append(move)
    shown = rows[:LANES_MAX]
    firsts = [moves[row.relay_id][0].at_s if row.relay_id in moves else row.since_s for row in shown]
    # What was before the first change is known as a state but not for how long: it is drawn from a common beginning.
    end = max(row.as_of_s for row in shown)
    start = max(min(firsts) - (end - min(firsts)) // 20, end - 365 * _DAY_S)
    return [Lane(row.relay_id[:_SHORT], _stretches(row, moves.get(row.relay_id, []), start)) for row in shown]


def _stretches(row: RelayRow, moves: Sequence[TransitionRow], start_s: int) -> list[Stretch]:
    if not moves:
        return [Stretch(row.state, max(row.since_s, start_s), max(row.as_of_s, row.since_s))]
    stretches, state, since = [], moves[0].before, start_s
    for move in moves:
        if move.at_s > since:
            stretches.append(Stretch(state, since, move.at_s))
        state, since = move.after, max(move.at_s, start_s)
    return [*stretches, Stretch(state, since, max(row.as_of_s, since))]


def _table(rows: Sequence[RelayRow]) -> Markup:
    head = ("relay", "state", "since (UTC)", "+because", ">score", ">p50", ">p95", ">uptime", ">connects", ">bytes/s",
            ">integrity faults", ">had", ">observed")  # fmt: skip
    lines = [
        (
            reference(row.relay_id),
            badge(row.state),
            moment(row.since_s),
            reason_text(row.reason),
            f"{row.score:.2f}",
            _NONE if row.p50_us is None else duration_text(row.p50_us),
            _NONE if row.p95_us is None else duration_text(row.p95_us),
            share_text(row.uptime_ratio),
            share_text(row.connect_ratio),
            _NONE if row.throughput_bps is None else bytes_text(row.throughput_bps),
            f"{row.integrity_faults:,}",
            share_text(row.consistency_ratio),
            f"{row.n_obs:,}",
        )
        for row in rows
    ]
    return table("Relays, the worst first", head, lines)


def _changes(transitions: Sequence[TransitionRow]) -> Markup:
    newest = sorted(transitions, key=lambda row: (-row.at_s, row.relay_id))[:_CHANGES_SHOWN_MAX]
    lines = [
        (
            moment(row.at_s),
            reference(row.relay_id),
            badge(row.before),
            badge(row.after),
            reason_text(row.reason),
            f"{row.score:.2f}",
        )
        for row in newest
    ]
    head = ("at (UTC)", "relay", "from", "to", "+because", ">score")
    return table("Changes of state, the newest first", head, lines) if lines else note("No relay changed its state.")


def consistency(summary: Summary) -> Section:
    """Return the section on what relays had of what they ought to have had."""
    days: dict[str, list[ConsistencyRow]] = {}
    for row in summary.consistency:
        days.setdefault(row.relay_id, []).append(row)
    meaning = (
        "Packets that enough other relays stored are expected of each relay; the bounds say how sure the share is, "
        "and a low one is evidence to look into, never a verdict."
    )
    title = "Consistency"
    empty = "No relay was compared with others."
    if not days:
        return Section("consistency", title, meaning, empty, ())
    numbers = _consistency_table(sorted(summary.consistency, key=lambda row: (-row.day.toordinal(), row.relay_id)))
    names = short_names(days)
    intervals = {
        names[relay]: [
            Interval(row.ratio, row.low, row.high)
            for row in rows[-_SHARES_DAYS_MAX:]
            if row.ratio is not None and row.low is not None and row.high is not None
        ]
        for relay, rows in days.items()
    }
    measured = {relay: each for relay, each in intervals.items() if each}
    worst = dict(sorted(measured.items(), key=lambda item: (item[1][-1].high, item[0]))[:_SHARES_RELAYS_MAX])
    if not worst:
        few = note("No relay was expected to have enough packets for a share to say anything.")
        return Section("consistency", title, meaning, empty, [few, numbers])
    return Section("consistency", title, meaning, empty, [Figure(plot_shares(worst, CONSISTENCY_BOUND), numbers)])


def _consistency_table(rows: Sequence[ConsistencyRow]) -> Markup:
    lines = [
        (
            row.day.isoformat(),
            reference(row.relay_id),
            f"{row.n_expected:,}",
            f"{row.n_missing:,}",
            share_text(row.ratio),
            f"{share_text(row.low)} to {share_text(row.high)}",
            f"{row.peers:,}",
            Markup(" ".join(map(reference, row.suspicious))),
        )
        for row in rows
    ]
    head = ("day", "relay", ">expected", ">missing", ">had", ">bounds", ">compared with", "+missing packets")
    return table("Consistency by day, the newest first", head, lines)
