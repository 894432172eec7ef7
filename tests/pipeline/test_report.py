"""The page, drawn from plain numbers."""

import re
from html.parser import HTMLParser

from waystation.pipeline.jobs.step import Problem
from waystation.pipeline.report import (
    EMPTY,
    CheckRow,
    Hourly,
    OutcomeRow,
    RefusalRow,
    RunFacts,
    Summary,
    VerdictRow,
    render,
)

HOUR_S = 1_780_056_000
SUMMARY = Summary(
    outcomes=[
        OutcomeRow(HOUR_S, "bhumi", "ok", 1_990, 500, {70: 1_000, 80: 990}),
        OutcomeRow(HOUR_S, "bhumi", "offline", 10, 0, {}),
    ],
    connections=[Hourly(HOUR_S, 3, 1)],
    anonymous=[],
    refusals=[RefusalRow("bhumi", "<b>odd</b>", 7)],
    row_counts=[("bronze.events", 12_345)],
    verdicts=[
        VerdictRow(HOUR_S, "strata", "accepted", "", 3_111, 900),
        VerdictRow(HOUR_S + 3_600, "strata", "accepted", "", 1_111, 100),
        VerdictRow(HOUR_S, "strata", "invalid_timestamp", "too_old", 77, 9),
    ],
    checks=[CheckRow("strata", "bad_signature", 2, 700), CheckRow("strata", "valid", 4_220, 300)],
)


class Tags(HTMLParser):
    """Collects tags and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict]] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.seen.append((tag, dict(attrs)))


def test_page_shows_the_numbers() -> None:
    """Counts, quantiles, refusals and row counts stand on the page, escaped."""
    page = render(SUMMARY, RunFacts([("run", "r1")], [("ingest", "1", "1", "0", "0.1")], [Problem("s.jsonl", "torn")]))

    for expected in ("4,222", "invalid_timestamp", "too_old", "bad_signature", "4,220", "Packets by verdict"):
        assert expected in page
    for expected in ("2,000", "99.5 %", "≤ 1.21 ms", "&lt;b&gt;odd", "12,345", "ingest", "s.jsonl", "torn"):
        assert expected in page
    assert "<b>odd" not in page


def test_page_refers_to_nothing_outside() -> None:
    """No script, no link, no image, and no reference but to the page itself."""
    page = render(SUMMARY, RunFacts())
    tags = Tags()
    tags.feed(page)
    references = [
        value
        for _, attrs in tags.seen
        for name, value in attrs.items()
        if name in {"src", "href", "xlink:href", "data"}
    ]

    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in tags.seen}
    assert all(value.startswith("#") for value in references)
    assert not re.findall(r"@import|url\((?!#)", page)


def test_empty_journal_is_said_plainly() -> None:
    """Nothing recorded gives a sentence and no plots."""
    page = render(Summary(row_counts=[("bronze.events", 0)]), RunFacts())

    assert EMPTY in page
    assert "<svg" not in page


def test_parts_without_data_say_so() -> None:
    """A journal without deliveries, connections or refusals still makes a page."""
    page = render(Summary(row_counts=[("bronze.events", 2)]), RunFacts())

    for sentence in (
        "No deliveries.",
        "No connections.",
        "Nothing was refused.",
        "No packets.",
        "No attempt has a latency yet.",
    ):
        assert sentence in page


def test_many_problems_are_cut() -> None:
    """A page lists a hundred bad segments and says how many more there are."""
    page = render(SUMMARY, RunFacts(problems=[Problem(f"s{n}", "torn") for n in range(120)]))

    assert "20 more stand in the run report" in page
    assert "s119" not in page
