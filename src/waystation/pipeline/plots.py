"""The report's plots, as SVG text that can stand inside a page: no script, no font file, no reference outwards."""

import datetime
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from waystation.rules.histogram import bounds_us, quantile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Hourly", "plot_connections", "plot_latency", "plot_outcomes", "plot_verdicts"]

_HOUR_S: Final = 3_600
_TICK_STEPS_S: Final = tuple(hours * _HOUR_S for hours in (1, 2, 3, 6, 12, *(24 * 2**power for power in range(20))))
_TICKS_MAX: Final = 10
_US_PER_MS: Final = 1_000
_SIZE_INCHES: Final = (9.0, 3.2)
_COLOURS: Final[dict[str, str]] = {
    "ok": "#2a7f62",
    "cached": "#5fb49c",
    "offline": "#e0a030",
    "timeout": "#d9662b",
    "bad_capability": "#b23a48",
    "gone": "#8e6c8a",
    "refused": "#6b2737",
    "unfinished": "#9aa0a6",
    "accepted": "#2a7f62",
    "duplicate": "#9aa0a6",
}
_REFUSALS: Final = ("#b23a48", "#d9662b", "#e0a030", "#8e6c8a", "#6b2737", "#4a6fa5", "#7a5c3e", "#c9879b")
"""Colours of verdicts that say no, in the order of their names."""
_OTHER: Final = "#4a6fa5"
_STYLE: Final[dict[str, Any]] = {
    "svg.fonttype": "none",  # text stays text: small, searchable, in the reader's own font
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e6ea",
    "axes.edgecolor": "#9aa0a6",
}
_PROLOGUE: Final = re.compile(r"\A.*?(?=<svg)", re.DOTALL)
_METADATA: Final = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)


class Hourly(NamedTuple):
    """Connections opened and closed in one hour."""

    hour_s: int
    """Beginning of the hour, seconds UTC since 1970."""
    opened: int
    closed: int


def plot_outcomes(counts: Mapping[tuple[int, str], int]) -> str:
    """Draw attempts by hour, one colour per outcome.

    Args:
        counts: Hour (seconds UTC) and outcome to attempts; not empty.
    """
    present = {outcome for _, outcome in counts}
    ordered = [name for name in _COLOURS if name in present] + sorted(present - set(_COLOURS))
    colours = {name: _COLOURS.get(name, _OTHER) for name in ordered}
    return _stacked("outcomes", counts, colours, "Delivery attempts by outcome", "attempts per hour")


def plot_verdicts(counts: Mapping[tuple[int, str], int]) -> str:
    """Draw packets by hour, one colour per verdict.

    Args:
        counts: Hour (seconds UTC) and verdict to packets; not empty.
    """
    present = {verdict for _, verdict in counts}
    colours: dict[str, str] = {name: _COLOURS[name] for name in ("accepted", "duplicate") if name in present}
    for index, name in enumerate(sorted(present - set(colours))):
        colours[name] = _REFUSALS[index % len(_REFUSALS)]
    return _stacked("verdicts", counts, colours, "Packets by verdict", "packets per hour")


def _stacked(
    name: str, counts: Mapping[tuple[int, str], int], colours: Mapping[str, str], title: str, unit: str
) -> str:
    hours = sorted({hour for hour, _ in counts})

    def draw(axes: "Axes") -> None:
        bottoms = [0] * len(hours)
        for label, colour in colours.items():
            heights = [counts.get((hour, label), 0) for hour in hours]
            axes.bar(_times(hours), heights, width=0.9 / 24, bottom=bottoms, color=colour, label=label, align="edge")
            bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
        axes.set(title=title, xlabel="hour (UTC)", ylabel=unit)
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        _hour_axis(axes, hours)

    return _svg(name, draw)


def plot_latency(histogram: Mapping[int, int]) -> str:
    """Draw which share of attempts had its outcome within a time, with the median, p95 and p99 marked.

    Args:
        histogram: Bucket to attempts; not empty.
    """
    total = sum(histogram.values())
    edges, shares, seen = [], [], 0
    for bucket in sorted(histogram):
        low, high = bounds_us(bucket)
        edges += [low / _US_PER_MS, (high or low) / _US_PER_MS]
        shares += [100 * seen / total, 100 * (seen + histogram[bucket]) / total]
        seen += histogram[bucket]

    def draw(axes: "Axes") -> None:
        axes.plot(edges, shares, color=_COLOURS["ok"], linewidth=2)
        for label, q, colour in (("p50", 0.5, "#4a6fa5"), ("p95", 0.95, "#d9662b"), ("p99", 0.99, "#b23a48")):
            bucket = quantile(histogram, q)
            assert bucket is not None
            low, high = bounds_us(bucket)
            at = (high or low) / _US_PER_MS
            axes.axvline(at, color=colour, linewidth=1.2, linestyle="--", label=f"{label} ≤ {at:,.3g} ms")
        axes.set(title="Time from acceptance to outcome", xlabel="latency (ms, logarithmic)", ylabel="attempts (%)")
        axes.set(xscale="log", ylim=(0, 102))
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))

    return _svg("latency", draw)


def plot_connections(identified: Sequence[Hourly], anonymous: Sequence[Hourly]) -> str:
    """Draw connections opened by hour, identified and anonymous, and how many identified ones stay open.

    Args:
        identified: In order of hours.
        anonymous: In order of hours; one of the two is not empty.
    """
    hours = sorted({row.hour_s for row in (*identified, *anonymous)})

    def draw(axes: "Axes") -> None:
        for rows, name, colour, shift in (
            (identified, "identified, opened", "#2a7f62", 0.0),
            (anonymous, "anonymous, opened", "#e0a030", 0.45),
        ):
            times = [time + datetime.timedelta(hours=shift) for time in _times([row.hour_s for row in rows])]
            axes.bar(times, [row.opened for row in rows], width=0.45 / 24, color=colour, label=name, align="edge")
        still_open, level = [], 0
        for row in identified:
            level += row.opened - row.closed
            still_open.append(level)
        times = _times([row.hour_s for row in identified])
        axes.plot(times, still_open, color="#4a6fa5", marker="o", markersize=5, label="identified, open at its end")
        axes.set(title="Connections", xlabel="hour (UTC)", ylabel="connections")
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        _hour_axis(axes, hours)

    return _svg("connections", draw)


def _times(hours: Sequence[int]) -> list[Any]:
    return [datetime.datetime.fromtimestamp(hour, datetime.UTC) for hour in hours]


def _hour_axis(axes: "Axes", hours: Sequence[int]) -> None:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - part of an extra

    # An hour of margin on both sides: a single hour would else be drawn as wide as the page.
    first, last = hours[0] - _HOUR_S, hours[-1] + 2 * _HOUR_S
    step = next(step for step in _TICK_STEPS_S if (last - first) // step <= _TICKS_MAX)
    ticks = _times(range(-(-first // step) * step, last + 1, step))
    axes.set_xticks(ticks, [f"{tick:%d %b\n%H:%M}" for tick in ticks])
    axes.set_xlim(*_times([first, last]))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def _svg(name: str, draw: "Callable[[Any], None]") -> str:
    import matplotlib as mpl  # noqa: PLC0415 - slow to import, part of an extra
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    settings: Any = {**_STYLE, "svg.hashsalt": name}
    with mpl.rc_context(settings):
        figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
        figure.patch.set_alpha(0)
        draw(figure.add_subplot())
        buffer = io.StringIO()
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})  # type: ignore[no-untyped-call]
    drawing = _METADATA.sub("", _PROLOGUE.sub("", buffer.getvalue()))
    return drawing.replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)
