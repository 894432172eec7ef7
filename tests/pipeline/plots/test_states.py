"""States of relays over time."""

from tests.pipeline.plots.build import HOUR_S, words_of
from waystation.pipeline.plots import svg
from waystation.pipeline.plots.states import LANES_MAX, Lane, Stretch, plot_states


def test_each_state_has_its_colour_and_name() -> None:
    """The legend names the states that occur, one that nobody knows too, and the sentence how each relay ended."""
    stretches = [Stretch("active", HOUR_S, HOUR_S + 60), Stretch("odd", HOUR_S + 60, HOUR_S + 86_400)]
    drawing = plot_states([Lane("ab12cd34", stretches)])

    assert all(word in words_of(svg(drawing)) for word in ("ab12cd34", "active", "odd"))
    assert "blacklisted" not in words_of(svg(drawing))
    assert drawing.alt.endswith("at the end: ab12cd34 odd.")


def test_relays_are_bounded() -> None:
    """At most thirty relays are drawn; a single moment is no division by nothing."""
    lanes = [Lane(f"relay{number}", [Stretch("active", HOUR_S, HOUR_S)]) for number in range(40)]
    drawing = plot_states(lanes)

    assert f"relay{LANES_MAX - 1} " in drawing.alt
    assert f"relay{LANES_MAX} " not in drawing.alt
    assert "<svg" in svg(drawing)
