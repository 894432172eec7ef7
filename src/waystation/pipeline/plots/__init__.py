"""Plots of the report: each is a ``Drawing``, which ``svg`` embeds in a page and ``png`` writes to a file."""

from waystation.pipeline.plots.canvas import Drawing, png, svg
from waystation.pipeline.plots.capacity import Day, plot_capacity
from waystation.pipeline.plots.hours import (
    Hourly,
    plot_connections,
    plot_findings,
    plot_outcomes,
    plot_queries,
    plot_verdicts,
)
from waystation.pipeline.plots.latency import Range, plot_latency, plot_ranges
from waystation.pipeline.plots.mesh import Server, plot_mesh
from waystation.pipeline.plots.rows import Hold, Interval, plot_convergence, plot_messages, plot_shares
from waystation.pipeline.plots.states import Lane, Stretch, plot_states

__all__ = [
    "Day",
    "Drawing",
    "Hold",
    "Hourly",
    "Interval",
    "Lane",
    "Range",
    "Server",
    "Stretch",
    "plot_capacity",
    "plot_connections",
    "plot_convergence",
    "plot_findings",
    "plot_latency",
    "plot_mesh",
    "plot_messages",
    "plot_outcomes",
    "plot_queries",
    "plot_ranges",
    "plot_shares",
    "plot_states",
    "plot_verdicts",
    "png",
    "svg",
]
