"""Plots with a row per thing."""

from tests.pipeline.plots.build import words_of
from waystation.pipeline.plots import svg
from waystation.pipeline.plots.rows import Hold, Interval, plot_convergence, plot_messages, plot_shares


def test_shares_name_relay_and_bound() -> None:
    """Each relay has a row, and what it ought to reach is marked."""
    days = [Interval(0.8, 0.7, 0.9), Interval(0.97, 0.92, 0.99)]
    drawing = plot_shares({"ab12cd34": days, "ff00ff00": days[:1]}, 0.95)

    assert "on the last day: ab12cd34 97 %, ff00ff00 80 %" in drawing.alt
    assert "95 %; red: surely below it" in words_of(svg(drawing))


def test_surely_low_shares_are_red() -> None:
    """Only a share whose upper bound is below what it ought to reach is red."""
    low, unsure = Interval(0.8, 0.7, 0.9), Interval(0.8, 0.5, 0.96)

    assert "#d64550" in svg(plot_shares({"a": [low]}, 0.95))
    assert "#d64550" not in svg(plot_shares({"a": [unsure]}, 0.95))


def test_no_time_at_all_can_be_drawn() -> None:
    """A logarithmic axis takes a group that held at once."""
    drawing = plot_convergence([Hold("g", 0, 0, 0)])

    assert "g 0 ms" in drawing.alt
    assert "<svg" in svg(drawing)


def test_messages_are_counted_by_state() -> None:
    """The sentence has the totals, and a group without messages has its row."""
    drawing = plot_messages({"g1": (5, 4, 3, 2, 1), "g2": (0, 0, 0, 0, 0)})

    assert "5 delivered, 4 waiting, 3 invalid, 2 because of another, 1 deleted" in drawing.alt
    assert "g2" in words_of(svg(drawing))
