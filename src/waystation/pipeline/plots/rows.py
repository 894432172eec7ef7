"""Plots with one row per relay or group: consistency intervals, convergence times and message states.

``report.relays`` and ``report.graphs`` pass the rows; the ``Drawing`` that comes out is rendered by ``canvas``.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from waystation.pipeline.plots.canvas import INK, PAPER, Drawing, bars, duration_axis, legend
from waystation.pipeline.plots.colours import CATEGORIES, OUTCOMES, STATES
from waystation.pipeline.plots.units import duration_text, label, share_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Hold", "Interval", "plot_convergence", "plot_messages", "plot_shares"]

_ROW_INCHES: Final = 0.27
_DAY_INCHES: Final = 0.13
_MESSAGES: Final = {
    "delivered": OUTCOMES["ok"],
    "waiting": OUTCOMES["offline"],
    "invalid": OUTCOMES["bad_capability"],
    "because of another": "#d58aa0",
    "deleted": OUTCOMES["unfinished"],
}


class Interval(NamedTuple):
    """One share of 0 to 1 with its bounds."""

    ratio: float
    low: float
    high: float


class Hold(NamedTuple):
    """How long one group took until all known peers held a message."""

    name: str
    now_us: int
    least_us: int
    most_us: int


def plot_shares(relays: Mapping[str, Sequence[Interval]], bound: float) -> Drawing:
    """Draw shares with their bounds: a row per relay, in it a line per day, the newest lowest and strongest.

    Args:
        relays: Name to days, oldest first, each with at least one; not empty. From top to bottom.
        bound: What a share ought to reach.
    """
    rows = sum(len(days) + 1 for days in relays.values())

    def draw(figure: "Figure", narrow: bool) -> None:
        axes = figure.add_subplot()
        at, ticks = rows, []
        for days in relays.values():
            top = at
            for age, day in enumerate(reversed(days)):
                colour = STATES["blacklisted"] if day.high < bound else OUTCOMES["ok"]
                y, strength = top - len(days) + age + 1, 1.0 if age == 0 else 0.45
                axes.plot([day.low, day.high], [y, y], color=colour, linewidth=1.6, alpha=strength)
                axes.plot([day.ratio], [y], "o", color=colour, markersize=4.5, markeredgecolor=PAPER, alpha=strength)
            ticks.append(top - (len(days) - 1) / 2)
            at -= len(days) + 1
        line = axes.axvline(bound, color=INK, linewidth=1, linestyle=":")
        axes.set_yticks(ticks, list(relays), family="monospace", fontsize=9)
        axes.set(ylim=(0.5, rows + 0.9), xlabel="share of expected packets it had, with 95 % bounds")
        lowest = min(day.low for days in relays.values() for day in days)
        axes.set_xlim(max(0.0, lowest - 0.03), 1.005)
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        axes.grid(visible=False, axis="y")
        legend(figure, [line], [f"{share_text(bound)}; red: surely below it"], narrow)

    ends = ", ".join(f"{name} {share_text(days[-1].ratio)}" for name, days in relays.items())
    height = 1.35 + max(_DAY_INCHES * rows, _ROW_INCHES * len(relays))
    alt = f"Share of expected packets per relay and day with 95 % bounds; on the last day: {ends}."
    return Drawing("consistency", "What relays had of what they ought to have", alt, draw, height)


def plot_convergence(groups: Sequence[Hold]) -> Drawing:
    """Draw how long each group took until known peers held a message: now, and from least to most over the dates.

    Args:
        groups: From top to bottom; not empty.
    """

    def draw(figure: "Figure", narrow: bool) -> None:
        axes = figure.add_subplot()
        for row, group in enumerate(reversed(groups)):
            span = [max(group.least_us, 1), max(group.most_us, 1)]
            axes.plot(span, [row, row], color=CATEGORIES[0], linewidth=3, alpha=0.45)
            axes.plot([max(group.now_us, 1)], [row], "o", color=CATEGORIES[0], markersize=6, markeredgecolor=PAPER)
        _rows_axis(axes, [group.name for group in groups])
        axes.set(xscale="log", xlabel="longest time to a peer's word (logarithmic)")
        duration_axis(axes, narrow)
        names = ["now", "range over the dates"]
        handles = [
            axes.plot([], [], "o", color=CATEGORIES[0])[0],
            axes.plot([], [], color=CATEGORIES[0], linewidth=3)[0],
        ]
        handles[1].set_alpha(0.45)
        legend(figure, handles, names, narrow)

    summary = ", ".join(f"{group.name} {duration_text(group.now_us)}" for group in groups)
    alt = f"Longest time until a peer held a message, per group: {summary}."
    return Drawing("convergence", "Time until peers hold a message", alt, draw, 1.4 + _ROW_INCHES * len(groups))


def plot_messages(groups: Mapping[str, Sequence[int]]) -> Drawing:
    """Draw the messages of each group by state.

    Args:
        groups: Name to numbers of delivered, waiting, invalid, invalid because of another, and deleted messages; not
            empty. From top to bottom.
    """

    def draw(figure: "Figure", narrow: bool) -> None:
        from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - part of an extra

        axes = figure.add_subplot()
        lefts = [0] * len(groups)
        handles = []
        lows = [row - 0.36 for row in range(len(groups))]
        for index, colour in enumerate(_MESSAGES.values()):
            numbers = [parts[index] for parts in reversed(list(groups.values()))]
            handle = None
            for left, low, number in zip(lefts, lows, numbers, strict=True):
                handle = bars(axes, [left], number, [low], [0.72 if number else 0], colour)
            handles.append(handle)
            lefts = [left + number for left, number in zip(lefts, numbers, strict=True)]
        _rows_axis(axes, list(groups))
        axes.set(xlabel="messages", xlim=(0, max(*lefts, 1) * 1.02))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4 if narrow else 8, integer=True))
        legend(figure, handles, list(_MESSAGES), narrow)

    totals = [sum(parts[index] for parts in groups.values()) for index in range(len(_MESSAGES))]
    summary = ", ".join(f"{n:,} {name}" for name, n in zip(_MESSAGES, totals, strict=True))
    height = 1.4 + _ROW_INCHES * len(groups)
    return Drawing(
        "messages", "Messages of groups by state", f"Messages of groups: {summary}.", draw, height, height + 0.4
    )


def _rows_axis(axes: "Axes", names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [label(name) for name in reversed(names)], family="monospace", fontsize=9)
    axes.set_ylim(-0.7, len(names) - 0.3)
    axes.grid(visible=False, axis="y")
