"""Laws of server.public_pages: who answers a GET, and how often."""

import json

import pytest

from waystation.core.answers import HttpAnswer
from waystation.core.instant import MICROSECONDS_PER_SECOND, Instant
from waystation.engine.admission import AdmissionRefusal
from waystation.server.config.settings import LimitSettings
from waystation.server.http import public_pages as module
from waystation.server.http.public_pages import PublicPages
from waystation.server.http.well_known import WellKnown

INFO = "/.well-known/waystation.json"
FILES = {"/": HttpAnswer(200, (), b"page"), "/both": HttpAnswer(200, (), b"file")}

GETS_PER_MINUTE = LimitSettings().gets_per_minute


class Stage:
    """Pages with a clock of their own; Strata says its arguments back."""

    def __init__(self, *, has_strata=True, has_files=True, limited=True):
        self.now = Instant(0)
        self.asked = []
        self.refused = []
        self.pages = PublicPages(
            WellKnown("waystation", {}, dict, {}),
            lambda: self.now,
            static=self._file if has_files else None,
            fallback=self._strata if has_strata else None,
            limited=limited,
            on_refused=lambda *refusal: self.refused.append(refusal),
        )

    def _file(self, path):
        return FILES.get(path.partition("?")[0])

    def _strata(self, path, address, now, named):
        self.asked.append((path, address, now))
        self.named = named
        return HttpAnswer(200, (), b"strata")

    def ask(self, path, host="192.0.2.1"):
        """Return status and body."""
        answer = self.pages.answer(path, host)
        return answer.status, answer.body


def test_files_come_first_then_documents_then_strata():
    """Each path has one owner, whatever its query is."""
    stage = Stage()

    assert [stage.ask(path)[1] for path in ("/", "/?x=1", "/both")] == [b"page", b"page", b"file"]
    assert json.loads(stage.ask(f"{INFO}?x=1")[1])["name"] == "waystation"
    assert stage.ask("/strata/descriptor?y=2") == (200, b"strata")
    assert stage.asked == [("/strata/descriptor?y=2", "192.0.2.1", Instant(0))]


def test_strata_learns_under_which_name_it_was_asked():
    """``Host`` goes to the pages that say an address."""
    stage = Stage()
    stage.pages.answer("/strata/descriptor", "192.0.2.1", "relay.example:8080")

    assert stage.named == "relay.example:8080"


def test_strata_counts_addresses_as_the_node_does():
    """What Strata is told is the address that its limits are kept under."""
    stage = Stage()
    stage.ask("/x", "2001:db8::1")

    assert stage.asked[0][1] == "2001:db8::/64"


def test_path_of_nobody_is_404():
    """Without Strata unknown paths are told so, as JSON."""
    stage = Stage(has_strata=False)

    assert stage.ask("/strata/descriptor") == (404, b'{"error": "no such page"}')
    assert stage.ask("/")[0] == 200


def test_without_files_documents_are_there():
    """A node without a page still says what it is."""
    stage = Stage(has_files=False, has_strata=False)

    assert (stage.ask("/")[0], stage.ask(INFO)[0]) == (404, 200)
    assert not stage.pages.knows("/")
    assert Stage().pages.knows("/")


def test_address_that_asks_too_often_is_told_when_to_come_back():
    """The 601st GET of a minute is 429 with Retry-After; another address is served, and this one after its wait."""
    stage = Stage(has_strata=False)
    served = [stage.ask("/")[0] for _ in range(GETS_PER_MINUTE)]
    refused = stage.pages.answer("/", "192.0.2.1")
    other = stage.ask("/", "192.0.2.2")[0]
    stage.now = Instant(MICROSECONDS_PER_SECOND)

    assert set(served) == {200}
    assert (refused.status, dict(refused.headers)["Retry-After"], other) == (429, "1", 200)
    assert stage.ask("/")[0] == 200


def test_operator_sets_how_often_that_is():
    """A new limit holds for addresses that ask from then on."""
    stage = Stage(has_strata=False)
    stage.pages.use_limits(LimitSettings(gets_per_minute=1))

    assert [stage.ask("/")[0] for _ in range(2)] == [200, 429]


@pytest.mark.parametrize(("before", "after", "served"), [(600, 1, 1), (1, 60, 2)])
def test_new_limit_holds_for_an_address_that_is_counted_already(before, after, served):
    """A lower limit cuts what is left of the old one; a higher one gives back faster."""
    stage = Stage(has_strata=False)
    stage.pages.use_limits(LimitSettings(gets_per_minute=before))
    stage.ask("/")
    stage.pages.use_limits(LimitSettings(gets_per_minute=after))
    stage.now = Instant(2 * MICROSECONDS_PER_SECOND)

    assert [stage.ask("/")[0] for _ in range(3)] == [200] * served + [429] * (3 - served)


def test_refused_get_is_reported_with_its_address():
    """Each 429 is reported, and no GET that is served."""
    stage = Stage(has_strata=False)
    stage.pages.use_limits(LimitSettings(gets_per_minute=1))
    for _ in range(3):
        stage.ask("/", "2001:db8::1")

    assert stage.refused == [(AdmissionRefusal.GETS_RATE, Instant(0), "2001:db8::/64")] * 2


@pytest.mark.parametrize("path", ["/", INFO, "/nothing"])
def test_every_answer_of_ours_is_counted(path):
    """Files, documents and refusals spend the same allowance."""
    stage = Stage(has_strata=False)
    for _ in range(GETS_PER_MINUTE):
        stage.ask(path)

    assert stage.ask(path)[0] == 429


def test_strata_keeps_its_own_count():
    """What Strata answers it limits itself; ours is not spent."""
    stage = Stage()
    for _ in range(GETS_PER_MINUTE + 1):
        stage.ask("/strata/descriptor")

    assert len(stage.asked) == GETS_PER_MINUTE + 1
    assert len(stage.pages) == 0


def test_limits_can_be_lifted():
    """A load test is never told 429."""
    stage = Stage(limited=False)

    assert {stage.ask("/")[0] for _ in range(GETS_PER_MINUTE + 1)} == {200}
    assert len(stage.pages) == 0


def test_addresses_are_bounded(monkeypatch):
    """The longest silent address is forgotten for the next one, not the busiest."""
    monkeypatch.setattr(module, "ADDRESSES_MAX", 3)
    stage = Stage()
    for last in (1, 2, 3, 1, 4):
        stage.ask("/", f"192.0.2.{last}")

    assert len(stage.pages) == 3
    assert list(stage.pages._buckets) == ["192.0.2.3", "192.0.2.1", "192.0.2.4"]
