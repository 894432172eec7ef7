"""Bar charts of hourly counts, combined into days when there are too many hours.

The report's sections pass counts by hour; the ``Drawing`` that comes out is rendered by ``canvas``.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from waystation.pipeline.plots.canvas import HOUR_S, INK, Drawing, bars, legend, time_axis
from waystation.pipeline.plots.colours import CATEGORIES, OTHER, OUTCOMES, REFUSALS, SEVERE
from waystation.pipeline.plots.units import label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Hourly", "plot_connections", "plot_findings", "plot_outcomes", "plot_queries", "plot_verdicts"]

_HOURS_MAX: Final = 8 * 24
"""Longer spans are drawn by the day."""
_DAY_S: Final = 24 * HOUR_S
_KINDS_MAX: Final = 10
"""Colours in one plot; the rarest kinds beyond are drawn together."""
_REST: Final = "others"
_BAR_SHARE: Final = 0.9


class Hourly(NamedTuple):
    """Connections opened and closed in one hour."""

    hour_s: int
    """Beginning of the hour, seconds UTC since 1970."""
    opened: int
    closed: int


def plot_outcomes(counts: Mapping[tuple[int, str], int]) -> Drawing:
    """Draw attempts by hour, one colour per outcome.

    Args:
        counts: Hour (seconds UTC) and outcome to attempts; not empty.
    """
    present = {outcome for _, outcome in counts}
    ordered = [name for name in OUTCOMES if name in present] + sorted(present - set(OUTCOMES))
    colours = {name: OUTCOMES.get(name, OTHER) for name in ordered}
    return _stacked("outcomes", counts, colours, "Delivery attempts by outcome", "attempts")


def plot_verdicts(counts: Mapping[tuple[int, str], int]) -> Drawing:
    """Draw packets by hour, one colour per verdict.

    Args:
        counts: Hour (seconds UTC) and verdict to packets; not empty.
    """
    colours = _coloured({verdict for _, verdict in counts}, ("accepted", "duplicate"), REFUSALS)
    return _stacked("verdicts", counts, colours, "Packets by verdict", "packets")


def plot_findings(counts: Mapping[tuple[int, str], int]) -> Drawing:
    """Draw abuse findings by hour, one colour per rule.

    Args:
        counts: Hour (seconds UTC) and rule to findings; not empty.
    """
    colours = _coloured({rule for _, rule in counts}, (), SEVERE)
    return _stacked("findings", counts, colours, "Abuse findings by rule", "findings")


def plot_queries(found: Mapping[int, int], asked: Mapping[int, int]) -> Drawing:
    """Draw look-ups of the mesh by hour: those that found the client, and those that did not.

    Args:
        found: Hour (seconds UTC) to look-ups that found it.
        asked: Hour (seconds UTC) to look-ups; not empty, holds every hour of ``found``.
    """
    counts = {(hour, "found"): found.get(hour, 0) for hour in asked}
    counts |= {(hour, "not found"): n - found.get(hour, 0) for hour, n in asked.items()}
    colours = {"found": OUTCOMES["ok"], "not found": OUTCOMES["offline"]}
    return _stacked("queries", counts, colours, "Look-ups in the mesh", "look-ups")


def _coloured(present: set[str], first: Sequence[str], rest: Sequence[str]) -> dict[str, str]:
    colours = {name: OUTCOMES[name] for name in first if name in present}
    for index, name in enumerate(sorted(present - set(colours))):
        colours[name] = rest[index % len(rest)]
    return colours


def _stacked(
    name: str, counts: Mapping[tuple[int, str], int], colours: Mapping[str, str], title: str, unit: str
) -> Drawing:
    counts, width, per = _binned(counts)
    counts, colours = _fewer(counts, colours)
    starts = sorted({start for start, _ in counts})

    def draw(figure: "Figure", narrow: bool) -> None:
        axes = figure.add_subplot()
        bottoms = [0.0] * len(starts)
        handles = []
        for kind, colour in colours.items():
            heights = [counts.get((start, kind), 0) for start in starts]
            handles.append(bars(axes, starts, width * _BAR_SHARE, bottoms, heights, colour))
            bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
        axes.set(xlabel="UTC", ylabel=f"{unit} per {per}")
        legend(figure, handles, [label(kind) for kind in colours], narrow)
        _span(axes, starts, width, narrow)

    total = sum(counts.values())
    alt = f"{title}: {total:,} {unit} in stacked bars by the {per}, {', '.join(map(label, colours))}."
    return Drawing(name, f"{title}, by the {per}", alt, draw, 3.2, 3.4)


def _binned(counts: Mapping[tuple[int, str], int]) -> tuple[dict[tuple[int, str], int], int, str]:
    hours = [hour for hour, _ in counts]
    width, per = (HOUR_S, "hour") if max(hours) - min(hours) < _HOURS_MAX * HOUR_S else (_DAY_S, "day")
    binned: dict[tuple[int, str], int] = {}
    for (hour, kind), n in counts.items():
        key = hour // width * width, kind
        binned[key] = binned.get(key, 0) + n
    return binned, width, per


def _fewer(
    counts: Mapping[tuple[int, str], int], colours: Mapping[str, str]
) -> tuple[Mapping[tuple[int, str], int], Mapping[str, str]]:
    if len(colours) <= _KINDS_MAX:
        return counts, colours
    totals: dict[str, int] = {}
    for (_, kind), n in counts.items():
        totals[kind] = totals.get(kind, 0) + n
    kept = set(sorted(totals, key=lambda kind: (-totals[kind], kind))[: _KINDS_MAX - 1])
    merged: dict[tuple[int, str], int] = {}
    for (start, kind), n in counts.items():
        key = start, kind if kind in kept else _REST
        merged[key] = merged.get(key, 0) + n
    return merged, {kind: colour for kind, colour in colours.items() if kind in kept} | {_REST: CATEGORIES[-1]}


def plot_connections(identified: Sequence[Hourly], anonymous: Sequence[Hourly]) -> Drawing:
    """Draw connections opened by hour, identified and anonymous, and how many identified ones stay open.

    Args:
        identified: In order of hours.
        anonymous: In order of hours; one of the two is not empty.
    """
    levels: list[int] = []
    for row in identified:
        levels.append((levels[-1] if levels else 0) + row.opened - row.closed)
    hours = sorted({row.hour_s for row in (*identified, *anonymous)})

    def draw(figure: "Figure", narrow: bool) -> None:
        axes = figure.add_subplot()
        handles = []
        for shift, rows, colour in ((0, identified, OUTCOMES["ok"]), (HOUR_S * 9 // 20, anonymous, CATEGORIES[0])):
            lefts = [row.hour_s + shift for row in rows]
            opened = [row.opened for row in rows]
            handles.append(bars(axes, lefts, HOUR_S * 9 / 20, [0] * len(rows), opened, colour))
        ends = [row.hour_s + HOUR_S for row in identified]
        handles += axes.plot(ends, levels, color=INK, linewidth=1.4, marker="o", markersize=3.5)
        axes.set(xlabel="UTC", ylabel="connections")
        legend(figure, handles, ["identified, opened", "anonymous, opened", "identified, open at its end"], narrow)
        _span(axes, hours, HOUR_S, narrow)

    opened = sum(row.opened for row in identified), sum(row.opened for row in anonymous)
    alt = f"Connections by the hour: {opened[0]:,} identified and {opened[1]:,} anonymous ones were opened."
    return Drawing("connections", "Connections, by the hour", alt, draw, 3.2, 3.4)


def _span(axes: "Axes", starts: Sequence[int], width: int, narrow: bool) -> None:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - part of an extra

    # One bin of margin on both sides: a single bar would else be drawn as wide as the page.
    time_axis(axes, starts[0] - width, starts[-1] + 2 * width, narrow)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(visible=False, axis="x")
