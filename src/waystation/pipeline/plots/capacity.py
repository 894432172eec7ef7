"""Plot of the daily load of each node: connections, messages, bytes and store size on a shared time axis.

``report.operations`` passes a list of days for each node; the ``Drawing`` that comes out is rendered by ``canvas``.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from waystation.pipeline.plots.canvas import HOUR_S, Drawing, legend, time_axis
from waystation.pipeline.plots.colours import CATEGORIES
from waystation.pipeline.plots.units import bytes_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["NODES_MAX", "Day", "plot_capacity"]

NODES_MAX: Final = 8
"""Nodes in one plot."""
_DAY_S: Final = 24 * HOUR_S
_BINARY_STEPS: Final = 4
_PANELS: Final = (
    ("most connections at once", "peak_connections", False),
    ("messages per second (p99 of minutes)", "messages_per_s", False),
    ("bytes in and out per day", "moved_bytes", True),
    ("store and journal", "store_bytes", True),
)


class Day(NamedTuple):
    """One node and day."""

    day: datetime.date
    peak_connections: int
    messages_per_s: float
    moved_bytes: int
    store_bytes: int


def plot_capacity(nodes: Mapping[str, Sequence[Day]]) -> Drawing:
    """Draw connections, messages, bytes and the store of each node over the days.

    Args:
        nodes: Short name to days in order, each with at least one; not empty. The first eight are drawn.
    """
    nodes = dict(list(nodes.items())[:NODES_MAX])

    def draw(figure: "Figure", narrow: bool) -> None:
        from matplotlib.ticker import MaxNLocator, MultipleLocator  # noqa: PLC0415 - part of an extra

        panels = figure.subplots(4 if narrow else 2, 1 if narrow else 2, sharex=True, squeeze=False)
        handles = []
        for axes, (title, name, is_bytes) in zip(panels.flat, _PANELS, strict=True):
            handles = _panel(axes, nodes, lambda day, name=name: getattr(day, name))  # type: ignore[misc]
            axes.set_title(title, loc="left", fontsize=9.5)
            top = max(float(getattr(day, name)) for days in nodes.values() for day in days)
            axes.set_ylim(0, max(top, 1) * 1.1)
            axes.yaxis.set_major_locator(MultipleLocator(_binary_step(top)) if is_bytes else MaxNLocator(nbins=4))
            if is_bytes:
                axes.yaxis.set_major_formatter(lambda value, _: bytes_text(int(value)))
            else:
                axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.3g}" if value < 1_000 else f"{value:,.0f}")
        first, last = (pick(_at(day) for days in nodes.values() for day in days) for pick in (min, max))
        time_axis(panels.flat[0], first - _DAY_S // 2, last + _DAY_S // 2, narrow=True)
        legend(figure, handles, list(nodes), narrow)

    ends = ", ".join(f"{name} {bytes_text(days[-1].store_bytes)}" for name, days in nodes.items())
    alt = f"Connections, messages, bytes and store per node over the days; the store on the last day: {ends}."
    return Drawing("capacity", "What each node carried", alt, draw, 4.6, 7.6)


def _panel(axes: "Axes", nodes: Mapping[str, Sequence[Day]], value: Callable[[Day], float]) -> list[object]:
    handles: list[object] = []
    for colour, days in zip(CATEGORIES, nodes.values(), strict=False):
        times, values = [_at(day) for day in days], [value(day) for day in days]
        handles += axes.plot(times, values, color=colour, linewidth=1.6, marker="o", markersize=3.5)
    return handles


def _binary_step(top: float) -> int:
    """Return a power of two, so that marks of bytes are whole numbers of their unit."""
    return 1 << max(int(top / _BINARY_STEPS).bit_length(), 0)


def _at(day: Day) -> int:
    noon = datetime.datetime.combine(day.day, datetime.time(12), datetime.UTC)
    return int(noon.timestamp())
