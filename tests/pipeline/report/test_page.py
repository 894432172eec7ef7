"""The whole page, and its plots as pictures."""

import re
from html.parser import HTMLParser

import pytest

from tests.pipeline.report.build import FACTS, HOUR_S, full_summary
from waystation.pipeline.jobs.step import Problem
from waystation.pipeline.report import EMPTY, Hourly, RunFacts, Summary, render, write_pictures
from waystation.pipeline.report.page import sections

ORDER = ["attention", "deliveries", "latency", "relays", "abuse", "packets", "mesh", "groups", "consistency",
         "capacity", "runs"]  # fmt: skip
VOID = {"meta", "br", "hr", "path", "use", "rect"}


class Tags(HTMLParser):
    """Collects tags and attributes, and sees that what is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict]] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page() -> str:
    """Render the full page once."""
    return render(full_summary(), FACTS)


@pytest.fixture(scope="module")
def tags(page) -> Tags:
    """Read the full page."""
    seen = Tags()
    seen.feed(page)
    assert not seen.open
    return seen


def test_sections_stand_in_order(tags) -> None:
    """What needs attention comes first, the run's own facts last."""
    assert [attrs["id"] for tag, attrs in tags.seen if tag == "section"] == ORDER


def test_every_link_leads_to_something_on_the_page(tags) -> None:
    """No id occurs twice, and each reference leads to one of them."""
    ids = [attrs["id"] for _, attrs in tags.seen if "id" in attrs]
    links = {value for _, attrs in tags.seen for name, value in attrs.items() if name in {"href", "xlink:href"}}

    assert len(ids) == len(set(ids))
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert all(link.startswith("#") for link in links)


def test_page_needs_nothing_but_itself(page, tags) -> None:
    """No script, no image, no style sheet and no reference outwards."""
    assert not {"script", "link", "img", "iframe", "object", "base"} & {tag for tag, _ in tags.seen}
    assert not [name for _, attrs in tags.seen for name in attrs if name.startswith("on") or name == "src"]
    assert not re.findall(r"@import|url\((?!#)", page)


def test_plots_are_told_to_those_who_do_not_see_them(tags) -> None:
    """Each plot has a sentence, each table a caption, and tables that scroll can be reached by keyboard."""
    plots = [attrs for tag, attrs in tags.seen if tag == "svg"]
    tables = sum(tag == "table" for tag, _ in tags.seen)

    assert len(plots) == 2 * 13
    assert all(len(attrs["aria-label"]) > 20 for attrs in plots)
    assert sum(tag == "caption" for tag, _ in tags.seen) == tables
    assert sum(attrs.get("tabindex") == "0" for _, attrs in tags.seen) == tables


def test_what_came_from_outside_is_escaped() -> None:
    """Markup in a word from outside is shown, wherever it stands."""
    bad = "<b>\"'&{x}"
    summary = full_summary()
    changed = Summary(
        outcomes=[row._replace(protocol=bad, outcome=bad) for row in summary.outcomes[:2]],
        connections=summary.connections,
        refusals=[row._replace(protocol=bad, reason=bad) for row in summary.refusals],
        row_counts=[(bad, 1)],
        verdicts=[row._replace(protocol=bad, verdict=bad, detail=bad) for row in summary.verdicts[:2]],
        checks=[row._replace(protocol=bad, verdict=bad) for row in summary.checks],
        relays=[row._replace(relay_id=bad, state=bad, reason=bad) for row in summary.relays],
        transitions=[row._replace(relay_id=bad, before=bad, reason=bad) for row in summary.transitions],
        findings=[row._replace(**dict.fromkeys(("node_id", "protocol", "rule", "severity", "action"), bad))
                  for row in summary.findings],
        findings_hourly=[(HOUR_S, bad, 1)],
        policy=[row._replace(action=bad, rule=bad, mode=bad, subject_kind=bad) for row in summary.policy],
        servers=[row._replace(server=bad, component=bad) for row in summary.servers[:1]],
        groups=[row._replace(node_id=bad, group=bad) for row in summary.groups[:1]],
        roots=[row._replace(node_id=bad, group=bad, root=bad) for row in summary.roots],
        consistency=[row._replace(relay_id=bad, suspicious=(bad,)) for row in summary.consistency[:2]],
        capacity=[row._replace(node_id=bad) for row in summary.capacity[:1]],
        retention=[row._replace(dataset=bad, holds=False) for row in summary.retention],
        quarantine=[row._replace(dataset=bad, reason=bad) for row in summary.quarantine],
    )  # fmt: skip
    page = render(changed, RunFacts([(bad, bad)], [(bad,) * 5], [Problem(bad, bad)]))

    assert '<b>"' not in page
    assert page.count("&lt;b&gt;") > 50


def test_empty_journal_is_said_plainly() -> None:
    """Nothing recorded gives a sentence and no plots, but what the run says of itself."""
    page = render(Summary(row_counts=[("bronze.events", 0)]), RunFacts(problems=[Problem("s.jsonl", "torn")]))

    assert EMPTY in page
    assert "<svg" not in page
    assert "torn" in page


def test_parts_without_data_say_so() -> None:
    """A lake that holds only events still makes a page, with a sentence for everything there is none of."""
    page = render(Summary(row_counts=[("bronze.events", 2)]), RunFacts())

    for sentence in (
        "Nothing needs attention.",
        "No deliveries.",
        "No attempt has a latency yet.",
        "No relay was observed.",
        "No actor did more than the rules allow.",
        "No packets.",
        "No server had a link to another.",
        "No group has messages.",
        "No relay was compared with others.",
        "No node reported its load.",
        "No connections.",
        "Nothing was refused.",
        "Every segment was in order.",
    ):
        assert sentence in page
    assert "<svg" not in page


def test_same_summary_gives_the_same_page(page) -> None:
    """Nothing on the page is drawn by lot or taken from a clock."""
    assert render(full_summary(), FACTS) == page


def test_page_is_small(page) -> None:
    """A full page can be mailed."""
    assert len(page) < 1_500_000


def test_pictures_are_those_of_the_page(tmp_path) -> None:
    """Each plot is written as one PNG, in the page's order, into a folder that need not exist."""
    paths = write_pictures(tmp_path / "new" / "pictures", full_summary())
    figures = [figure.drawing.name for section in sections(full_summary(), FACTS) for figure in section.figures()]

    assert [path.stem for path in paths] == figures
    assert len(set(figures)) == 13
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_nothing_recorded_gives_no_picture(tmp_path) -> None:
    """An empty lake has nothing to draw, and one plot alone is drawn alone."""
    assert write_pictures(tmp_path, Summary()) == []
    only = Summary(connections=[Hourly(HOUR_S, 1, 0)], row_counts=[("bronze.events", 1)])
    assert [path.name for path in write_pictures(tmp_path, only)] == ["connections.png"]
