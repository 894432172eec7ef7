"""Curves and ranges of latency."""

from tests.pipeline.plots.build import words_of
from waystation.pipeline.plots import svg
from waystation.pipeline.plots.latency import CURVES_MAX, Range, plot_latency, plot_ranges


def test_each_protocol_has_a_curve_and_its_quantiles() -> None:
    """Median, p95 and p99 are marked, and the sentence names each median."""
    drawing = plot_latency({"bhumi": {70: 99, 140: 1}, "strata": {299: 2}})

    assert all(word in words_of(svg(drawing)) for word in ("bhumi", "strata", "p50", "p95", "p99", "attempts (%)"))
    assert "bhumi 1.21 ms, strata" in drawing.alt


def test_curves_are_bounded() -> None:
    """More protocols than colours leave the last ones out."""
    drawing = plot_latency({f"p{number}": {9: 1} for number in range(CURVES_MAX + 1)})

    assert f"p{CURVES_MAX - 1}" in drawing.alt
    assert f"p{CURVES_MAX}" not in drawing.alt


def test_relays_are_named_in_their_row() -> None:
    """Each relay's name and range stand in the plot and in its sentence."""
    drawing = plot_ranges([Range("ab12cd34", "active", 3_000, 9_000, 80_000), Range("ff", "odd", 1, 2, 3)])

    assert "ab12cd34" in words_of(svg(drawing))
    assert "ab12cd34 3 ms to 80 ms" in drawing.alt
