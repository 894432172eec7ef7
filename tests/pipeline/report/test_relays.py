"""Sections on relays."""

from tests.pipeline.report.build import DAY_S, HOUR_S, consistency_row, full_summary, relay_id, relay_row
from waystation.pipeline.report import Summary, TransitionRow
from waystation.pipeline.report.markup import section_html
from waystation.pipeline.report.relays import CONSISTENCY_BOUND, consistency, relays, worst_first


def test_blacklisted_relays_come_first() -> None:
    """State counts before score, and an unknown state comes last."""
    rows = [
        relay_row(1, state="odd", score=0.0),
        relay_row(2, state="active", score=0.7),
        relay_row(3, state="active", score=0.6),
        relay_row(4, state="blacklisted", score=0.9),
    ]

    assert [row.relay_id for row in worst_first(rows)] == [relay_id(number) for number in (4, 3, 2, 1)]


def test_relay_shows_state_and_reason() -> None:
    """A red relay says in words why it is red; what was not measured is a hyphen."""
    row = relay_row(1, state="blacklisted", reason="violations", uptime_ratio=None, throughput_bps=None)
    made = section_html(relays(Summary(relays=[row])))

    assert "<span class='badge bad'>blacklisted</span>" in made
    assert "integrity violations" in made
    assert "<td class='n'>-</td>" in made
    assert "1 blacklisted" in made


def test_changes_make_the_stretches() -> None:
    """A relay's changes are drawn and listed, the newest first; a flagged relay that stayed is no change of colour."""
    row = relay_row(1, state="backup", since_s=HOUR_S - DAY_S)
    changes = [
        TransitionRow(row.relay_id, HOUR_S - 5 * DAY_S, "probation", "active", "proved_good", 0.8),
        TransitionRow(row.relay_id, HOUR_S - 3 * DAY_S, "active", "active", "violations", 0.8),
        TransitionRow(row.relay_id, HOUR_S - DAY_S, "active", "backup", "low_score", 0.4),
    ]
    section = relays(Summary(relays=[row], transitions=changes))
    made = section_html(section)

    assert made.index("its score stayed low") < made.index("its score proved good")
    assert next(section.figures()).drawing.alt.endswith("at the end: " + row.relay_id[:8] + " backup.")


def test_unmeasured_relays_have_no_latency_plot() -> None:
    """A relay that never answered is in the table and among the states only."""
    row = relay_row(1, p50_us=None, p95_us=None, p99_us=None)

    assert [figure.drawing.name for figure in relays(Summary(relays=[row])).figures()] == ["relay_states"]


def test_many_relays_are_all_in_the_table() -> None:
    """Thirty are drawn, and the section says that there are more."""
    section = relays(Summary(relays=[relay_row(number) for number in range(40)]))
    made = section_html(section)

    assert "The plots show the 30 worst; 10 more are in the table." in made
    assert all(relay_id(number) in made for number in range(40))


def test_consistency_shows_bounds_and_missing_packets() -> None:
    """The newest day comes first in the table, with the packets that are missing."""
    made = section_html(consistency(full_summary()))

    assert made.index("2026-05-29") < made.index("2026-05-28")
    assert "<code>c0ffee00</code>" in made
    assert f"{100 * CONSISTENCY_BOUND:.0f} %" in made


def test_too_few_packets_say_nothing() -> None:
    """Without a ratio there is a sentence and the numbers, but no plot."""
    row = consistency_row(1, 0, 3)._replace(ratio=None, low=None, high=None)
    made = section_html(consistency(Summary(consistency=[row])))

    assert "enough packets for a share to say anything" in made
    assert "<svg" not in made
    assert relay_id(1) in made
