"""Counts by the hour."""

from tests.pipeline.plots.build import HOUR_S, words_of
from waystation.pipeline.plots import Hourly, svg
from waystation.pipeline.plots.hours import (
    plot_connections,
    plot_findings,
    plot_outcomes,
    plot_queries,
    plot_verdicts,
)


def test_outcomes_are_by_the_hour_and_named() -> None:
    """Each outcome has its place in the legend, one that nobody knows too, whatever letters it has."""
    drawing = plot_outcomes({(HOUR_S, "ok"): 5, (HOUR_S + 3_600, "new $outcome$\x00é"): 2})

    assert all(word in words_of(svg(drawing)) for word in ("attempts per hour", "ok", "new $outcome$??", "29 May"))
    assert drawing.alt.startswith("Delivery attempts by outcome: 7 attempts in stacked bars by the hour")


def test_many_hours_become_days() -> None:
    """More than eight days are counted by the day, and nothing is lost."""
    drawing = plot_verdicts({(HOUR_S + 3_600 * hour, "accepted"): 1 for hour in range(0, 400, 2)})

    assert "200 packets in stacked bars by the day" in drawing.alt
    assert "packets per day" in words_of(svg(drawing))


def test_many_kinds_become_others() -> None:
    """At most ten colours are told apart; the rarest kinds are drawn together and none is lost."""
    drawing = plot_findings({(HOUR_S, f"rule_{number:02}"): number + 1 for number in range(15)})

    assert "120 findings" in drawing.alt
    assert drawing.alt.endswith("rule_14, others.")
    assert "rule_05" not in drawing.alt


def test_look_ups_are_found_or_not() -> None:
    """An hour in which none was found still counts what was asked."""
    drawing = plot_queries({HOUR_S: 3}, {HOUR_S: 5, HOUR_S + 3_600: 2})

    assert "7 look-ups" in drawing.alt
    assert "not found" in words_of(svg(drawing))


def test_connections_may_be_anonymous_only() -> None:
    """A node without identified connections has a plot too."""
    drawing = plot_connections([], [Hourly(HOUR_S, 9, 9)])

    assert drawing.alt == "Connections by the hour: 0 identified and 9 anonymous ones were opened."
    assert "anonymous, opened" in words_of(svg(drawing))
