"""Plot of the mesh: servers, their links, and the servers whose loss would split it.

``report.graphs`` passes the servers of one hour; the ``Drawing`` that comes out is rendered by ``canvas``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from waystation.pipeline.plots.canvas import PAPER, Drawing, clear_axes, legend
from waystation.pipeline.plots.colours import CATEGORIES, STATES
from waystation.pipeline.plots.layout import places

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SERVERS_MAX", "Server", "plot_mesh"]

SERVERS_MAX: Final = 60
"""Servers in one drawing."""
_NAMED_MAX: Final = 30
"""Above this only the servers that matter most are named."""
_NAMED_NARROW_MAX: Final = 14
_ASPECT_WIDE: Final = 1.9
_ASPECT_NARROW: Final = 1.0


class Server(NamedTuple):
    """One server of the mesh."""

    name: str
    short: str
    neighbours: Sequence[str]
    """Names."""
    component: str
    splits: bool
    """Its loss would split its part of the mesh."""


def plot_mesh(servers: Sequence[Server]) -> Drawing:
    """Draw the mesh: one colour per part, a red square for servers whose loss would split their part.

    Args:
        servers: Not empty; the first 60 are drawn, and the links among them.
    """
    servers = servers[:SERVERS_MAX]
    names = {server.name for server in servers}
    links = sorted({tuple(sorted((s.name, other))) for s in servers for other in s.neighbours if other in names})
    components = sorted({server.component for server in servers})
    colours = {component: CATEGORIES[index % len(CATEGORIES)] for index, component in enumerate(components)}
    graph: dict[str, set[str]] = {server.name: set() for server in servers}
    for one, other in links:
        graph[one].add(other)
        graph[other].add(one)

    def draw(figure: "Figure", narrow: bool) -> None:
        at = places(graph, _ASPECT_NARROW if narrow else _ASPECT_WIDE)
        axes = figure.add_subplot()
        clear_axes(axes)
        axes.margins(0.06)
        for one, other in links:
            (x1, y1), (x2, y2) = at[one], at[other]
            axes.plot([x1, x2], [y1, y2], color="#9aa0a6", linewidth=0.9, zorder=1)
        for server in servers:
            colour = STATES["blacklisted"] if server.splits else colours[server.component]
            mark, size = ("s", 10.0) if server.splits else ("o", 7.5)
            axes.plot(*at[server.name], marker=mark, markersize=size, color=colour, markeredgecolor=PAPER, zorder=2)
            if server.splits or len(servers) <= (_NAMED_NARROW_MAX if narrow else _NAMED_MAX):
                # On paper of its own: a name that crosses a link stays readable.
                box = {"facecolor": PAPER, "alpha": 0.75, "linewidth": 0, "pad": 0.4}
                text = axes.annotate(server.short, at[server.name], (0, 7), textcoords="offset points", bbox=box)
                text.set(ha="center", fontsize=8, zorder=3)
        marks = [
            ("o", "server, a colour per part", CATEGORIES[0]),
            ("s", "its loss splits the part", STATES["blacklisted"]),
        ]
        handles = [axes.plot([], [], marker=mark, color=colour, linestyle="")[0] for mark, _, colour in marks]
        legend(figure, handles, [text for _, text, _ in marks], narrow)

    critical = [server.short for server in servers if server.splits]
    sentence = f"loss of {', '.join(critical)} would split a part" if critical else "no single loss would split a part"
    alt = f"Mesh of {len(servers)} servers with {len(links)} links in {len(components)} parts; {sentence}."
    return Drawing("mesh", "The mesh in its last hour", alt, draw, 4.2, 4.6)
