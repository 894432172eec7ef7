"""Canvas for plots: renders one description as SVG for wide and narrow screens, or as PNG.

The plot modules describe a ``Drawing``, ``report.page`` has it drawn. The SVG contains no script, no font file and no
external reference, so it can be embedded in a page. It uses the page's own colours, light or dark. Equal input gives
equal bytes.
"""

import datetime
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from waystation.pipeline.plots.units import duration_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "HOUR_S",
    "INK",
    "PAPER",
    "Drawing",
    "bars",
    "clear_axes",
    "duration_axis",
    "legend",
    "png",
    "svg",
    "time_axis",
]

HOUR_S: Final = 3_600
INK: Final = "#22262b"
PAPER: Final = "#fefefe"
_LINE: Final = "#e4e6ea"
_AXIS: Final = "#8b939c"
_THEME: Final = {INK: "var(--ink)", PAPER: "var(--paper)", _LINE: "var(--line)", _AXIS: "var(--axis)"}
"""Colours that the page chooses; no data has one of these."""

_WIDE_INCHES: Final = 8.6
_NARROW_INCHES: Final = 4.1
_TICK_STEPS_S: Final = tuple(hours * HOUR_S for hours in (1, 2, 3, 6, 12, *(24 * 2**power for power in range(20))))
_TICKS_WIDE: Final = 9
_TICKS_NARROW: Final = 4
_DAY_S: Final = 24 * HOUR_S
_PNG_DPI: Final = 120
_DURATIONS_US: Final = (
    *(10**power for power in range(8)),  # to 10 s
    *(60_000_000 * minutes for minutes in (1, 10, 60, 600)),
    *(86_400_000_000 * days for days in (1, 10, 100)),
)
_DURATIONS_MIN: Final = 3
"""With fewer round durations on an axis, those between them are marked too."""
_STYLE: Final[dict[str, Any]] = {
    "svg.fonttype": "none",  # text stays text: small, searchable, in the reader's own font
    "text.parse_math": False,  # names from outside may hold a dollar sign
    "font.family": "sans-serif",
    "font.size": 10,
    "figure.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "axes.edgecolor": _AXIS,
    "axes.labelcolor": INK,
    "grid.color": _LINE,
    "text.color": INK,
    "xtick.color": _AXIS,
    "ytick.color": _AXIS,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.columnspacing": 1.2,
    "legend.handlelength": 1.2,
}
_PROLOGUE: Final = re.compile(r"\A.*?(?=<svg)", re.DOTALL)
_METADATA: Final = re.compile(r"\s*<(metadata|style)\b.*?</\1>", re.DOTALL)
"""Matplotlib's style would hold for the whole page; the page has the same for its plots."""
_REFERENCE: Final = re.compile(r'(\bid="|xlink:href="#|url\(#)')
_SIZE: Final = re.compile(r' (?:width|height)="[\d.]+pt"')


class Drawing(NamedTuple):
    """A plot that can be drawn in any size."""

    name: str
    """Lower-case letters and underscores: prefix of ids, name of a file."""
    title: str
    alt: str
    """What it shows, for those who do not see it."""
    draw: Callable[["Figure", bool], None]
    """Draws on an empty figure; the flag says that it is narrow."""
    height_inches: float = 3.0
    height_narrow_inches: float | None = None
    """None for the same."""


def svg(drawing: Drawing) -> str:
    """Return two SVG elements, of the classes ``wide`` and ``narrow``; the page shows one of them."""
    return "\n".join(_svg(drawing, narrow) for narrow in (False, True))


def png(drawing: Drawing, path: Path) -> None:
    """Write the wide form as PNG; raises OSError."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - slow to import, part of an extra

    with _drawn(drawing, narrow=False) as figure:
        figure.patch.set_facecolor(PAPER)
        buffer = io.BytesIO()
        figure.set_dpi(_PNG_DPI)
        FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None})  # type: ignore[no-untyped-call]
    path.write_bytes(buffer.getvalue())


def _svg(drawing: Drawing, narrow: bool) -> str:
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415 - slow to import, part of an extra

    with _drawn(drawing, narrow=narrow) as figure:
        figure.patch.set_visible(False)
        buffer = io.StringIO()
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})  # type: ignore[no-untyped-call]
    form = "narrow" if narrow else "wide"
    text = _METADATA.sub("", _PROLOGUE.sub("", buffer.getvalue()))
    text = _REFERENCE.sub(rf"\g<1>{drawing.name}-{form}-", text)
    for colour, variable in _THEME.items():
        text = text.replace(colour, variable)
    head, end, rest = text.partition(">")
    head = _SIZE.sub("", head).replace(
        "<svg ", f'<svg class="{form}" role="img" aria-label="{_plain(drawing.alt)}" ', 1
    )
    return head + end + rest.strip()


@contextmanager
def _drawn(drawing: Drawing, *, narrow: bool) -> Iterator["Figure"]:
    import matplotlib as mpl  # noqa: PLC0415 - slow to import, part of an extra
    from matplotlib.figure import Figure  # noqa: PLC0415

    width = _NARROW_INCHES if narrow else _WIDE_INCHES
    height = drawing.height_narrow_inches if narrow and drawing.height_narrow_inches else drawing.height_inches
    settings: Any = {**_STYLE, "svg.hashsalt": drawing.name}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(width, height), layout="constrained")
        drawing.draw(figure, narrow)
        figure.suptitle(drawing.title, x=0.01, ha="left", weight="bold")
        yield figure


def _plain(text: str) -> str:
    from html import escape  # noqa: PLC0415 - only here

    return escape(text)


def legend(figure: "Figure", handles: Sequence[Any], names: Sequence[str], narrow: bool) -> None:
    """Put the legend below, in as many columns as fit."""
    columns = min(len(names), 2 if narrow else 6)
    figure.legend(handles, names, loc="outside lower left", ncols=columns, fontsize=9)


def bars(
    axes: "Axes", lefts: Sequence[float], width: float, bottoms: Sequence[float], heights: Sequence[float], colour: str
) -> Any:
    """Draw upright bars as one path: a month of hours stays small. Return it for the legend."""
    from matplotlib.patches import PathPatch  # noqa: PLC0415 - part of an extra
    from matplotlib.path import Path as Outline  # noqa: PLC0415

    corners, codes = [], []
    for left, bottom, height in zip(lefts, bottoms, heights, strict=True):
        if height:
            right, top = left + width, bottom + height
            corners += [(left, bottom), (left, top), (right, top), (right, bottom), (left, bottom)]
            codes += [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY]
    patch = PathPatch(Outline(corners or [(0.0, 0.0)], codes or None), facecolor=colour, linewidth=0)
    axes.add_patch(patch)
    if corners:
        axes.update_datalim(corners)
        axes.autoscale_view()
    return patch


def time_axis(axes: "Axes", first_s: int, last_s: int, narrow: bool) -> None:
    """Label an axis whose unit is seconds UTC since 1970."""
    most = _TICKS_NARROW if narrow else _TICKS_WIDE
    step = next(step for step in _TICK_STEPS_S if (last_s - first_s) // step <= most)
    ticks = list(range(-(-first_s // step) * step, last_s + 1, step))
    pattern = "%d %b" if step >= _DAY_S else "%d %b\n%H:%M"
    names = [f"{datetime.datetime.fromtimestamp(tick, datetime.UTC):{pattern}}" for tick in ticks]
    axes.set_xticks(ticks, names)
    axes.set_xlim(first_s, last_s)


def duration_axis(axes: "Axes", narrow: bool) -> None:
    """Label a logarithmic axis of microseconds with round durations."""
    from matplotlib.ticker import FixedLocator, NullLocator  # noqa: PLC0415 - part of an extra

    low, high = axes.get_xlim()
    ticks = [us for us in _DURATIONS_US if low <= us <= high]
    if len(ticks) < _DURATIONS_MIN:
        ticks = [us * times for us in _DURATIONS_US for times in (1, 2, 5) if low <= us * times <= high]
    most = _TICKS_NARROW if narrow else _TICKS_WIDE
    axes.xaxis.set_major_locator(FixedLocator(ticks[:: -(-len(ticks) // most) or 1]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: duration_text(round(value)))


def clear_axes(axes: "Axes") -> None:
    """Take ticks, frame and grid away."""
    axes.set_axis_off()
    axes.set_aspect("equal")
