"""Timeline plot of relay states: one row per relay, one coloured bar per period in a state.

``report.relays`` passes the periods; the ``Drawing`` that comes out is rendered by ``canvas``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from waystation.pipeline.plots.canvas import HOUR_S, Drawing, bars, legend, time_axis
from waystation.pipeline.plots.colours import OTHER, STATES
from waystation.pipeline.plots.units import label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["LANES_MAX", "Lane", "Stretch", "plot_states"]

LANES_MAX: Final = 30
"""Relays in one plot."""
_LANE_INCHES: Final = 0.27
_BAR_SHARE: Final = 0.72


class Stretch(NamedTuple):
    """One state from one moment to another, seconds UTC since 1970."""

    state: str
    first_s: int
    last_s: int


class Lane(NamedTuple):
    """One relay."""

    name: str
    stretches: Sequence[Stretch]


def plot_states(lanes: Sequence[Lane]) -> Drawing:
    """Draw the states of relays over time.

    Args:
        lanes: From top to bottom, each with a stretch; not empty. The first 30 are drawn.
    """
    lanes = lanes[:LANES_MAX]
    stretches = [stretch for lane in lanes for stretch in lane.stretches]
    first, last = min(stretch.first_s for stretch in stretches), max(stretch.last_s for stretch in stretches)
    present = {stretch.state for stretch in stretches}
    states = [state for state in STATES if state in present] + sorted(present - set(STATES))

    def draw(figure: "Figure", narrow: bool) -> None:
        axes = figure.add_subplot()
        handles = {}
        for row, lane in enumerate(reversed(lanes)):
            for stretch in lane.stretches:
                # A stretch of seconds in a month would be invisible: it is drawn at least as wide as a hair.
                width = max(stretch.last_s - stretch.first_s, (last - first) / 400)
                colour = STATES.get(stretch.state, OTHER)
                bottom = row - _BAR_SHARE / 2
                handles[stretch.state] = bars(axes, [stretch.first_s], width, [bottom], [_BAR_SHARE], colour)
        axes.set_yticks(range(len(lanes)), [lane.name for lane in reversed(lanes)], family="monospace", fontsize=9)
        axes.set(xlabel="UTC", ylim=(-0.6, len(lanes) - 0.4))
        axes.grid(visible=False, axis="y")
        time_axis(axes, first, max(last, first + HOUR_S), narrow)
        legend(figure, [handles[state] for state in states], [label(state) for state in states], narrow)

    ends = ", ".join(f"{lane.name} {label(lane.stretches[-1].state)}" for lane in lanes)
    height = 1.4 + _LANE_INCHES * len(lanes)
    return Drawing("relay_states", "States of relays", f"States of relays over time; at the end: {ends}.", draw, height)
