"""Renders the report: one self-contained HTML page.

``pipeline.run`` calls it and writes the text to a file. Input is a ``Summary`` of plain values, so no Spark is needed.
Plots are inline SVG and the style is in the page. There is no script and no external reference, so the page can be
mailed, archived and read offline.
"""

from html import escape
from pathlib import Path
from typing import Final

from waystation.pipeline.plots import png
from waystation.pipeline.plots.units import moment_text
from waystation.pipeline.report.attention import attention
from waystation.pipeline.report.graphs import groups, mesh
from waystation.pipeline.report.markup import Section, link, section_html
from waystation.pipeline.report.operations import capacity, runs
from waystation.pipeline.report.policy import abuse
from waystation.pipeline.report.relays import consistency, relays
from waystation.pipeline.report.style import PAGE, STYLE
from waystation.pipeline.report.summary import RunFacts, Summary
from waystation.pipeline.report.traffic import deliveries, latency, packets, quantile_text
from waystation.rules.histogram import merge

__all__ = ["EMPTY", "render", "sections", "write_pictures"]

EMPTY: Final = "The journal holds no events yet: let the node run for a while, then run the pipeline again."


def render(summary: Summary, facts: RunFacts) -> str:
    """Return the page as HTML."""
    shown = sections(summary, facts)
    head = f"<p class='empty'>{EMPTY}</p>" if summary.is_empty() else _tiles(summary)
    links = "".join(f"<li>{link(section.key, section.title)}</li>" for section in shown)
    body = "\n".join(section_html(section) for section in shown)
    as_of = "" if summary.as_of_s is None else f"<p class='means'>As of {moment_text(summary.as_of_s)} UTC.</p>"
    return PAGE.format(style=STYLE, as_of=as_of, links=links, head=head, body=body)


def sections(summary: Summary, facts: RunFacts) -> list[Section]:
    """Return what stands on the page, in order; only the run's own facts when nothing was recorded."""
    if summary.is_empty():
        return [attention(summary, facts), runs(summary, facts)] if facts.problems else [runs(summary, facts)]
    return [
        attention(summary, facts),
        deliveries(summary),
        latency(summary),
        relays(summary),
        abuse(summary),
        packets(summary),
        mesh(summary),
        groups(summary),
        consistency(summary),
        capacity(summary),
        runs(summary, facts),
    ]


def write_pictures(folder: Path, summary: Summary) -> list[Path]:
    """Write every plot of the page as PNG into a folder, which is made; return the paths in the page's order.

    Raises:
        OSError: A file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for section in sections(summary, RunFacts()):
        for figure in section.figures():
            paths.append(folder / f"{figure.drawing.name}.png")
            png(figure.drawing, paths[-1])
    return paths


def _tiles(summary: Summary) -> str:
    attempts = sum(row.n for row in summary.outcomes)
    answered = sum(row.n for row in summary.outcomes if row.outcome in {"ok", "cached"})
    tiles = [
        ("delivery attempts", f"{attempts:,}"),
        ("answered", f"{100 * answered / attempts:.1f} %" if attempts else "-"),
        ("median latency", quantile_text(merge(row.histogram for row in summary.outcomes), 0.5)),
        ("identified connections", f"{sum(row.opened for row in summary.connections):,}"),
        ("packets accepted", f"{sum(row.n for row in summary.verdicts if row.verdict == 'accepted'):,}"),
        ("relays active", f"{sum(row.state == 'active' for row in summary.relays):,} of {len(summary.relays):,}"),
        ("refused frames and connections", f"{sum(row.n for row in summary.refusals):,}"),
    ]
    boxes = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in tiles)
    return f"<div class='tiles'>{boxes}</div>"
