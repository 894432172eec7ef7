"""Plots that can stand inside a page."""

import xml.etree.ElementTree as ET

import pytest

from waystation.pipeline.plots import Hourly, plot_connections, plot_latency, plot_outcomes, plot_verdicts

HOUR_S = 1_780_056_000
PLOTS = {
    "outcomes": lambda: plot_outcomes({(HOUR_S, "ok"): 5, (HOUR_S + 3_600, "new_outcome"): 2}),
    "verdicts": lambda: plot_verdicts({(HOUR_S, "accepted"): 5, (HOUR_S, "rate_limited"): 2, (HOUR_S, "new"): 1}),
    "latency": lambda: plot_latency({60: 5, 80: 1, 299: 1}),
    "connections": lambda: plot_connections([Hourly(HOUR_S, 3, 1)], [Hourly(HOUR_S, 9, 9)]),
    "only anonymous": lambda: plot_connections([], [Hourly(HOUR_S, 9, 9)]),
}
WORDS = {
    "outcomes": ["Delivery attempts by outcome", "hour (UTC)", "attempts per hour", "new_outcome"],
    "verdicts": ["Packets by verdict", "packets per hour", "accepted", "rate_limited", "new"],
    "latency": ["Time from acceptance to outcome", "latency (ms, logarithmic)", "attempts (%)", "p50", "p95", "p99"],
    "connections": ["Connections", "hour (UTC)", "anonymous, opened"],
    "only anonymous": ["Connections", "anonymous, opened"],
}


@pytest.mark.parametrize("name", PLOTS)
def test_plot_is_svg_with_title_axes_and_units(name: str) -> None:
    """A plot is one well-formed SVG element whose words are text."""
    drawing = PLOTS[name]()
    text = " ".join(ET.fromstring(drawing).itertext())

    assert drawing.startswith("<svg role=")
    assert all(word in text for word in WORDS[name])


@pytest.mark.parametrize("name", PLOTS)
def test_same_numbers_give_the_same_bytes(name: str) -> None:
    """A plot holds no date and no chance."""
    assert PLOTS[name]() == PLOTS[name]()
