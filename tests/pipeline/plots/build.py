"""One drawing of every kind, small."""

import datetime

from waystation.pipeline.plots import (
    Day,
    Hold,
    Hourly,
    Interval,
    Lane,
    Range,
    Server,
    Stretch,
    plot_capacity,
    plot_connections,
    plot_convergence,
    plot_findings,
    plot_latency,
    plot_mesh,
    plot_messages,
    plot_outcomes,
    plot_queries,
    plot_ranges,
    plot_shares,
    plot_states,
    plot_verdicts,
)

HOUR_S = 1_780_056_000
"""2026-05-29 12:00 UTC."""

DRAWINGS = {
    "outcomes": lambda: plot_outcomes({(HOUR_S, "ok"): 5, (HOUR_S + 3_600, "new $outcome$"): 2}),
    "verdicts": lambda: plot_verdicts({(HOUR_S, "accepted"): 5, (HOUR_S, "rate_limited"): 2, (HOUR_S, "new"): 1}),
    "findings": lambda: plot_findings({(HOUR_S, "burst"): 5}),
    "queries": lambda: plot_queries({HOUR_S: 3}, {HOUR_S: 5}),
    "latency": lambda: plot_latency({"bhumi": {60: 5, 80: 1, 299: 1}, "strata": {0: 1}}),
    "relay_latency": lambda: plot_ranges([Range("ab12cd34", "active", 3_000, 9_000, 80_000)]),
    "relay_states": lambda: plot_states([Lane("ab12cd34", [Stretch("probation", HOUR_S, HOUR_S + 60)])]),
    "mesh": lambda: plot_mesh([Server("aa", "a", ["bb", "gone"], "aa", True), Server("bb", "b", ["aa"], "aa", False)]),
    "messages": lambda: plot_messages({"g1": (5, 4, 3, 2, 1), "g2": (0, 0, 0, 0, 0)}),
    "convergence": lambda: plot_convergence([Hold("g1", 5_000_000, 0, 9_000_000)]),
    "consistency": lambda: plot_shares({"ab12cd34": [Interval(0.9, 0.85, 0.94), Interval(1.0, 0.98, 1.0)]}, 0.95),
    "capacity": lambda: plot_capacity({"n1": [Day(datetime.date(2026, 5, 29), 5, 0.5, 1 << 20, 1 << 30)]}),
    "connections": lambda: plot_connections([Hourly(HOUR_S, 3, 1)], [Hourly(HOUR_S, 9, 9)]),
}
"""Name of each drawing to what makes it."""


def words_of(drawing: str) -> str:
    """Return what can be read in a drawing."""
    import xml.etree.ElementTree as ET  # noqa: PLC0415 - only here

    return " ".join(text for text in ET.fromstring(f"<div>{drawing}</div>").itertext() if text.strip())
