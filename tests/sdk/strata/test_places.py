import pytest

from waystation.core.errors import HostError, LocalError
from waystation.protocols.strata.messages import Filters
from waystation.sdk.strata import places
from waystation.sdk.strata.places import Place, Places

POSTS = Filters(types=("POST",))
URL = "wss://relay.example/strata"


def test_places_outlive_the_program(tmp_path):
    """Each relay has its own place under a name, and what was handed over is known."""
    first = Places(tmp_path / "scores.db", "bot", POSTS)
    first.move(URL, Place("a", 1), b"1" * 32)
    first.move(URL, Place("b", 2), b"2" * 32)
    first.move(URL + "2", None, None)
    first.close()
    again, other = (Places(tmp_path / "scores.db", name, POSTS) for name in ("bot", "other"))

    assert (again.of(URL), again.of(URL + "2"), other.of(URL)) == (Place("b", 2), None, None)
    assert (again.given(), other.given()) == ([b"1" * 32, b"2" * 32], [])


def test_memory_of_packets_is_bounded(tmp_path, monkeypatch):
    """The oldest go; other names keep theirs."""
    monkeypatch.setattr(places, "_GIVEN_MAX", 3)
    monkeypatch.setattr(places, "_TRIM_EVERY", 5)
    other, bot = (Places(tmp_path / "scores.db", name, POSTS) for name in ("other", "bot"))
    other.move(URL, None, b"o" * 32)
    for number in range(5):
        bot.move(URL, None, bytes([number]) * 32)
    kept = bot.first("SELECT count(*) FROM reading_given WHERE name = 'bot'")

    assert bot.given() == [bytes([number]) * 32 for number in (2, 3, 4)]
    assert (kept, other.given()) == ((3,), [b"o" * 32])


def test_other_filters_need_another_name(tmp_path):
    """A cursor means nothing with other filters, and nothing backwards."""
    Places(tmp_path / "scores.db", "bot", POSTS).move(URL, Place("a", 1), None)

    for name, filters in (("bot", Filters()), ("back", Filters(descending=True)), ("", POSTS), ("x\n", POSTS)):
        with pytest.raises(LocalError):
            Places(tmp_path / "scores.db", name, filters)


def test_file_that_is_none_is_said(tmp_path):
    """It is the host's failure, with the path."""
    (tmp_path / "no folder").write_text("")
    with pytest.raises(HostError, match="no folder"):
        Places(tmp_path / "no folder" / "scores.db", "bot", POSTS)
