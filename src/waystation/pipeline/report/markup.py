"""Parts of the report's HTML: its sections build ``Section`` values, and ``report.page`` puts them into one page.

The functions take plain values and return ``Markup``; any other text in a cell, caption or title is escaped. In
``table`` a heading that begins with ``>`` is a column of numbers, ``+`` one of sentences; rows beyond ``rows_max`` are
counted only. ``TONES`` has the colours of the words that ``badge`` shows.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

from waystation.pipeline.plots import Drawing, svg
from waystation.pipeline.plots.units import moment_text

__all__ = [
    "TONES",
    "Figure",
    "Markup",
    "Section",
    "badge",
    "link",
    "moment",
    "note",
    "reference",
    "section_html",
    "table",
]

TONES: Final = {
    "active": "good",
    "backup": "calm",
    "probation": "watch",
    "blacklisted": "bad",
    "high": "bad",
    "medium": "watch",
    "low": "calm",
    "enforce": "bad",
    "shadow": "calm",
    "holds": "good",
    "broken": "bad",
}
"""Words that are shown as a badge, and how they are coloured."""


_KINDS: Final = {">": " class='n'", "+": " class='long'"}


class Markup(str):
    """HTML that is ready; every other text is escaped."""

    __slots__ = ()


class Figure(NamedTuple):
    """A plot and the same numbers as a table."""

    drawing: Drawing
    numbers: Markup


class Section(NamedTuple):
    """One topic of the page."""

    key: str
    title: str
    meaning: str
    """One sentence that says what it means."""
    empty: str
    """The sentence when there are no parts."""
    parts: Sequence[Markup | Figure]

    def figures(self) -> Iterator[Figure]:
        """Yield its figures."""
        return (part for part in self.parts if isinstance(part, Figure))


def section_html(section: Section) -> str:
    """Return a section as HTML, its figures drawn."""
    body = "\n".join(_part(part) for part in section.parts) or f"<p class='none'>{escape(section.empty)}</p>"
    return (
        f"<section id='{section.key}' aria-labelledby='{section.key}-title'>"
        f"<h2 id='{section.key}-title'>{escape(section.title)}</h2>\n"
        f"<p class='means'>{escape(section.meaning)}</p>\n{body}</section>"
    )


def _part(part: Markup | Figure) -> str:
    if not isinstance(part, Figure):
        return part
    numbers = f"<details><summary>the same in numbers</summary>{part.numbers}</details>" if part.numbers else ""
    return f"<figure>{svg(part.drawing)}{numbers}</figure>"


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], rows_max: int = 200) -> Markup:
    """Return a table that scrolls sideways by itself on narrow screens.

    Args:
        caption: What it shows.
        head: Names of columns; ``>`` before one marks numbers, which stand to the right, ``+`` sentences.
        rows: Cells; those that are no ``Markup`` are escaped.
        rows_max: Rows beyond are only counted.
    """
    kinds = [_KINDS.get(name[0], "") for name in head]
    cells = "".join(
        f"<th scope='col'{kind}>{escape(name.lstrip('>+'))}</th>" for name, kind in zip(head, kinds, strict=True)
    )
    lines = "\n".join(
        "<tr>" + "".join(f"<td{kind}>{_cell(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows[:rows_max]
    )
    hidden = len(rows) - rows_max
    more = f"<p class='note'>{hidden:,} more rows are not shown.</p>" if hidden > 0 else ""
    return Markup(
        f"<div class='scroll' tabindex='0' role='region' aria-label='{escape(caption)}'><table>"
        f"<caption>{escape(caption)}</caption><thead><tr>{cells}</tr></thead><tbody>\n{lines}\n</tbody></table></div>{more}"
    )


def _cell(cell: str) -> str:
    return cell if isinstance(cell, Markup) else escape(cell)


def badge(word: str) -> Markup:
    """Return a word of a closed set, coloured by what it means; an unknown word looks calm."""
    return Markup(f"<span class='badge {TONES.get(word, 'calm')}'>{escape(word)}</span>")


def reference(text: str) -> Markup:
    """Return an id or a reference in a type with distinct digits."""
    return Markup(f"<code>{escape(text)}</code>")


def moment(at_s: int) -> Markup:
    """Return seconds since 1970 as date and minute in UTC, which stay on one line."""
    text = moment_text(at_s)
    return Markup(f"<time datetime='{text.replace(' ', 'T')}Z'>{text}</time>")


def link(section: str, text: str) -> Markup:
    """Return a link to a section of this page."""
    return Markup(f"<a href='#{section}'>{escape(text)}</a>")


def note(text: str) -> Markup:
    """Return a remark below a table or figure."""
    return Markup(f"<p class='note'>{escape(text)}</p>")
