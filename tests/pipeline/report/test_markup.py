"""Tables, badges and sections."""

from tests.pipeline.report.build import HOUR_S
from waystation.pipeline.plots import Drawing
from waystation.pipeline.report.markup import (
    TONES,
    Figure,
    Markup,
    Section,
    badge,
    link,
    moment,
    note,
    reference,
    section_html,
    table,
)
from waystation.pipeline.report.style import STYLE


def test_cells_are_escaped_unless_they_are_markup() -> None:
    """A text cannot become markup, a reference stays one."""
    made = table("a <caption>", ("<name>", ">n", "+why"), [("<b>", reference("<i>"), "&")])

    assert "<b>" not in made
    assert "<td>&lt;b&gt;</td><td class='n'><code>&lt;i&gt;</code></td><td class='long'>&amp;</td>" in made
    assert "<th scope='col'>&lt;name&gt;</th><th scope='col' class='n'>n</th>" in made
    assert "<caption>a &lt;caption&gt;</caption>" in made


def test_long_tables_are_cut_with_a_number() -> None:
    """Rows beyond the limit are counted, not shown."""
    made = table("t", ("n",), [(f"row {number}",) for number in range(12)], rows_max=10)

    assert "row 9<" in made
    assert "row 10" not in made
    assert "2 more rows are not shown." in made


def test_small_parts() -> None:
    """Badge, link, moment and note escape what they hold."""
    assert badge("blacklisted") == "<span class='badge bad'>blacklisted</span>"
    assert badge("<odd>") == "<span class='badge calm'>&lt;odd&gt;</span>"
    assert link("mesh", "<x>") == "<a href='#mesh'>&lt;x&gt;</a>"
    assert moment(HOUR_S) == "<time datetime='2026-05-29T12:00Z'>2026-05-29 12:00</time>"
    assert note("<x>") == "<p class='note'>&lt;x&gt;</p>"


def test_every_tone_has_a_colour() -> None:
    """A badge's class is one that the page's style knows, in light and in dark."""
    assert all(STYLE.count(f"--{tone}:") == 2 and f".{tone} {{" in STYLE for tone in set(TONES.values()))


def test_section_without_parts_says_what_there_is_none_of() -> None:
    """An empty section keeps its title and meaning."""
    made = section_html(Section("k", "Title & more", "It <means>.", "Nothing.", ()))

    assert "<h2 id='k-title'>Title &amp; more</h2>" in made
    assert "It &lt;means&gt;." in made
    assert "<p class='none'>Nothing.</p>" in made


def test_figure_has_its_numbers_behind_it() -> None:
    """The same numbers stand as a table below the plot; a figure without one has no empty fold."""
    drawing = Drawing("probe", "T", "Alt <&>", lambda figure, narrow: figure.add_subplot())
    section = Section("k", "T", "M", "E", [Figure(drawing, Markup("<table>")), Figure(drawing, Markup())])
    made = section_html(section)

    assert made.count("<details>") == 1
    assert made.count('aria-label="Alt &lt;&amp;&gt;"') == 4
    assert [figure.drawing for figure in section.figures()] == [drawing, drawing]
