"""Plots that can stand inside a page, and as pictures."""

import re
import xml.etree.ElementTree as ET

import pytest

from tests.pipeline.plots.build import DRAWINGS, HOUR_S, words_of
from waystation.pipeline.plots import Drawing, png, svg
from waystation.pipeline.plots.canvas import bars, clear_axes, duration_axis, legend, time_axis


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    """Draw each plot once."""
    return {name: svg(make()) for name, make in DRAWINGS.items()}


@pytest.mark.parametrize("name", DRAWINGS)
def test_plot_is_two_svg_elements_with_words(drawn, name: str) -> None:
    """One form for wide and one for narrow screens, both with the title as text and a sentence for who cannot see."""
    drawing = DRAWINGS[name]()
    wide, narrow = ET.fromstring(f"<div>{drawn[name]}</div>")

    assert [form.get("class") for form in (wide, narrow)] == ["wide", "narrow"]
    assert all(form.get("role") == "img" and form.get("aria-label") == drawing.alt for form in (wide, narrow))
    assert drawing.name == name
    assert words_of(drawn[name]).count(drawing.title) == 2


@pytest.mark.parametrize("name", DRAWINGS)
def test_plot_takes_the_colours_of_the_page(drawn, name: str) -> None:
    """Ink and lines are the page's, so that dark pages stay readable, and nothing is painted white or black."""
    assert "var(--ink)" in drawn[name]
    assert not re.findall(r"fill: #(?:fff(?:fff)?|000(?:000)?)\b", drawn[name])


def test_ids_are_unique_over_all_plots(drawn) -> None:
    """Many plots stand on one page: no id occurs twice, and every reference leads to one."""
    everything = "".join(drawn.values())
    ids = re.findall(r'\bid="([^"]+)"', everything)

    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', everything)) <= set(ids)


def test_same_numbers_give_the_same_bytes(drawn, tmp_path) -> None:
    """A plot holds no date and no chance."""
    png(DRAWINGS["mesh"](), tmp_path / "a.png")
    png(DRAWINGS["mesh"](), tmp_path / "b.png")

    assert svg(DRAWINGS["mesh"]()) == drawn["mesh"]
    assert svg(DRAWINGS["latency"]()) == drawn["latency"]
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def _marks(draw) -> str:
    return words_of(svg(Drawing("probe", "Title", "Alt <&>", draw)))


def test_hours_are_labelled_with_dates(drawn) -> None:
    """A day's axis names hours, a month's axis dates only, and a single moment still has an axis."""

    def day(figure, narrow) -> None:
        time_axis(figure.add_subplot(), HOUR_S, HOUR_S + 86_400, narrow)

    def month(figure, narrow) -> None:
        time_axis(figure.add_subplot(), HOUR_S, HOUR_S + 30 * 86_400, narrow)

    assert "29 May" in _marks(day)
    assert "18:00" in _marks(day)
    assert "18:00" not in _marks(month)
    assert "12 Jun" in _marks(month)


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(1_000, 100_000_000, "10 s"), (20_000, 70_000, "50 ms"), (3e7, 9e11, "1 d")]
)
def test_durations_are_round(low, high, expected) -> None:
    """A logarithmic axis names round durations, with those between when there are few."""

    def draw(figure, narrow) -> None:
        axes = figure.add_subplot()
        axes.set(xscale="log", xlim=(low, high))
        duration_axis(axes, narrow)

    assert expected in _marks(draw)


def test_bars_are_one_path() -> None:
    """A hundred bars are one element with a legend, and bars of no height none that shows."""

    def draw(figure, narrow) -> None:
        axes = figure.add_subplot()
        handle = bars(axes, range(100), 1, [0] * 100, range(100), "#123456")
        legend(figure, [handle, bars(axes, [0], 1, [0], [0], "#654321")], ["many", "none"], narrow)
        assert axes.get_ylim()[1] >= 99
        clear_axes(axes)

    drawing = svg(Drawing("probe", "Title", "Alt", draw))

    assert drawing.count("#123456") == 4
    assert "many" in words_of(drawing)
