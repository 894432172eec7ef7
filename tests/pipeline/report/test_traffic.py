"""Sections on what passed through."""

from tests.pipeline.report.build import HOUR_S
from waystation.pipeline.report import CheckRow, OutcomeRow, Summary, VerdictRow
from waystation.pipeline.report.markup import section_html
from waystation.pipeline.report.traffic import deliveries, latency, packets, quantile_text

SUMMARY = Summary(
    outcomes=[
        OutcomeRow(HOUR_S, "bhumi", "ok", 1_990, 500, {70: 1_000, 80: 990}),
        OutcomeRow(HOUR_S, "bhumi", "offline", 10, 0, {}),
        OutcomeRow(HOUR_S, "merk", "offline", 10, 0, {}),
    ],
    verdicts=[
        VerdictRow(HOUR_S, "strata", "accepted", "", 3_111, 900),
        VerdictRow(HOUR_S + 3_600, "strata", "accepted", "", 1_111, 100),
        VerdictRow(HOUR_S, "strata", "invalid_timestamp", "too_old", 77, 9),
    ],
    checks=[CheckRow("strata", "bad_signature", 2, 700)],
)


def test_deliveries_are_summed_up_and_explained() -> None:
    """The sentence has the share, the table the totals and what each outcome means."""
    made = section_html(deliveries(SUMMARY))

    assert "Of 2,010 delivery attempts 99 % were answered" in made
    assert "1,990" in made
    assert "the recipient was not connected" in made


def test_latency_has_a_row_per_measured_protocol() -> None:
    """A protocol without a single latency is left out, the others show their quantiles."""
    made = section_html(latency(SUMMARY))

    assert "≤ 1.21 ms" in made
    assert "merk" not in made


def test_quantile_of_nothing_is_a_hyphen() -> None:
    """No latency is no number; the last bucket has no end, so its beginning is named."""
    assert quantile_text({}, 0.5) == "-"
    assert quantile_text({299: 1}, 0.5).endswith(" d")


def test_packets_show_verdicts_and_checks() -> None:
    """Verdicts with their detail, and what a check of the archive found."""
    made = section_html(packets(SUMMARY))

    assert all(word in made for word in ("4,222", "invalid_timestamp", "too_old", "bad_signature", "700 B"))


def test_checks_alone_are_shown() -> None:
    """An archive without verdicts has its table, and no plot."""
    made = section_html(packets(Summary(checks=SUMMARY.checks)))

    assert "bad_signature" in made
    assert "<svg" not in made
