"""Latency plots: cumulative curves of histograms, and quantile ranges per relay.

``report.traffic`` and ``report.relays`` pass histograms (``rules.histogram``); the ``Drawing`` that comes out is
rendered by ``canvas``.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from waystation.pipeline.plots.canvas import INK, PAPER, Drawing, duration_axis, legend
from waystation.pipeline.plots.colours import CATEGORIES, OTHER, STATES
from waystation.pipeline.plots.units import duration_text, label
from waystation.rules.histogram import bounds_us, quantile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CURVES_MAX", "Range", "plot_latency", "plot_ranges"]

CURVES_MAX: Final = 8
"""Curves in one plot."""
_MARKS: Final = ((0.5, "o"), (0.95, "s"), (0.99, "^"))
_ROW_INCHES: Final = 0.27


class Range(NamedTuple):
    """Three quantiles of one relay, in microseconds."""

    name: str
    state: str
    p50_us: int
    p95_us: int
    p99_us: int


def plot_latency(histograms: Mapping[str, Mapping[int, int]]) -> Drawing:
    """Draw which share of attempts had its outcome within a time, a curve per protocol with p50, p95 and p99 marked.

    Args:
        histograms: Protocol to bucket to attempts; not empty, none of them empty. The first eight are drawn.
    """
    curves = dict(list(histograms.items())[:CURVES_MAX])

    def draw(figure: "Figure", narrow: bool) -> None:
        axes = figure.add_subplot()
        handles = []
        for colour, histogram in zip(CATEGORIES, curves.values(), strict=False):
            handles += axes.plot(*_curve(histogram), color=colour, linewidth=1.8)
            for q, mark in _MARKS:
                at, share = _edge(histogram, q), _share_at(histogram, q)
                axes.plot([at], [share], color=colour, marker=mark, markersize=6.5, markeredgecolor=PAPER, linestyle="")
        # The marks' meaning, drawn once in ink, not once per protocol.
        handles += [axes.plot([], [], color=INK, marker=mark, linestyle="")[0] for _, mark in _MARKS]
        axes.set(xscale="log", xlabel="time to outcome (logarithmic)", ylabel="attempts (%)")
        axes.set(ylim=(0, 105))
        duration_axis(axes, narrow)
        legend(figure, handles, [*map(label, curves), "p50", "p95", "p99"], narrow)

    medians = ", ".join(f"{label(name)} {duration_text(_edge(each, 0.5))}" for name, each in curves.items())
    alt = f"Cumulative share of attempts over time to outcome, one curve per protocol; medians at most: {medians}."
    return Drawing("latency", "Time from acceptance to outcome", alt, draw, 3.6, 3.8)


def _curve(histogram: Mapping[int, int]) -> tuple[list[int], list[float]]:
    total = sum(histogram.values())
    edges, shares, seen = [], [], 0
    for bucket in sorted(histogram):
        low, high = bounds_us(bucket)
        edges += [low, high or low]
        shares += [100 * seen / total, 100 * (seen + histogram[bucket]) / total]
        seen += histogram[bucket]
    return edges, shares


def _edge(histogram: Mapping[int, int], q: float) -> int:
    bucket = quantile(histogram, q)
    assert bucket is not None
    low, high = bounds_us(bucket)
    return high or low


def _share_at(histogram: Mapping[int, int], q: float) -> float:
    last = quantile(histogram, q)
    assert last is not None
    return 100 * sum(n for bucket, n in histogram.items() if bucket <= last) / sum(histogram.values())


def plot_ranges(ranges: Sequence[Range]) -> Drawing:
    """Draw per relay where half of its answers are, and 95 and 99 of 100, on one logarithmic axis.

    Args:
        ranges: From top to bottom; not empty.
    """

    def draw(figure: "Figure", narrow: bool) -> None:
        axes = figure.add_subplot()
        for row, each in enumerate(reversed(ranges)):
            colour = STATES.get(each.state, OTHER)
            axes.plot([each.p50_us, each.p99_us], [row, row], color=colour, linewidth=3, alpha=0.45)
            for (_, mark), at in zip(_MARKS, each[2:], strict=True):
                axes.plot([at], [row], color=colour, marker=mark, markersize=6, markeredgecolor=PAPER, linestyle="")
        axes.set_yticks(range(len(ranges)), [each.name for each in reversed(ranges)], family="monospace", fontsize=9)
        axes.set(xscale="log", xlabel="latency (logarithmic)", ylim=(-0.7, len(ranges) - 0.3))
        axes.grid(visible=False, axis="y")
        duration_axis(axes, narrow)
        handles = [axes.plot([], [], color=INK, marker=mark, linestyle="")[0] for _, mark in _MARKS]
        legend(figure, handles, ["p50", "p95", "p99"], narrow)

    alt = "Latency per relay, a line from the median to p99: " + ", ".join(
        f"{each.name} {duration_text(each.p50_us)} to {duration_text(each.p99_us)}" for each in ranges
    )
    height = 1.4 + _ROW_INCHES * len(ranges)
    return Drawing("relay_latency", "Latency per relay", f"{alt}.", draw, height, height + 0.2)
