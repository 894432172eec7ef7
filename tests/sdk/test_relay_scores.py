"""The local table of relays: what is saved comes back, stays private, and stays bounded."""

import sqlite3
import stat
from dataclasses import replace

import pytest

from waystation.core.errors import HostError
from waystation.rules.relay_choice import Candidate
from waystation.rules.relay_state import Incident, Reason, Standing, State
from waystation.rules.relay_window import RelayWindow, observations, window_to_plain
from waystation.sdk import relay_scores
from waystation.sdk.relay_scores import RelayEntry, RelayScores

T0 = 1_700_000_000
URL = "wss://relay.example/strata"


class Clock:
    """A clock that a test turns."""

    def __init__(self):
        self.now = T0 + 0.9

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(tmp_path, clock):
    opened = RelayScores(tmp_path / "home" / "relays.db", clock=clock)
    yield opened
    opened.close()


def entry(url=URL, state=State.ACTIVE, **fields):
    window = RelayWindow()
    window.record_connect(True, T0)
    window.record_latency(61.5, T0)
    window.record_incident(Incident.BAD_SIGNATURE, T0)
    return RelayEntry(url, "did:strata:r", Standing(state, T0, strikes=2, **fields), 0.71, window, T0 - 5)


def raw(table, statement, *values):
    database = sqlite3.connect(table.path, isolation_level=None)
    rows = database.execute(statement, values).fetchall()
    database.close()
    return rows


def test_file_is_private(table):
    """The file and its folder are for their owner only, and stay so with what SQLite puts beside them."""
    table.save(entry())

    assert stat.S_IMODE(table.path.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in table.path.parent.iterdir()} == {0o600}


def test_entry_comes_back_after_reopening(table, clock):
    """Everything saved is there again for the next program, stamped with the whole second of the save."""
    saved = entry()
    table.save(saved)
    table.close()
    again = RelayScores(table.path, clock=clock)
    loaded = again.load(URL)
    again.close()

    assert replace(loaded, window=saved.window, updated_s=0) == saved
    assert loaded.updated_s == T0
    assert window_to_plain(loaded.window) == window_to_plain(saved.window)
    assert observations(loaded.window, T0 + 9) == observations(saved.window, T0 + 9)


def test_later_save_replaces(table):
    """A relay has one row, the one saved last."""
    table.save(entry())
    table.save(replace(entry(state=State.BACKUP), score=0.4))

    assert [(each.url, each.standing.state, each.score) for each in table.list()] == [(URL, State.BACKUP, 0.4)]


def test_list_is_sorted_and_load_misses(table):
    """Every relay is listed by URL; one never saved is None."""
    for url in ("wss://c", "wss://a", "wss://b"):
        table.save(entry(url))

    assert [each.url for each in table.list()] == ["wss://a", "wss://b", "wss://c"]
    assert table.load("wss://d") is None


def test_columns_are_plain_to_read(table):
    """The columns are those of the specification, readable with any SQLite tool."""
    table.save(entry(state=State.BLACKLISTED))
    columns = [row[1] for row in raw(table, "PRAGMA table_info(relay_scores)")]

    assert columns == ["url", "relay_id", "state", "score", "window", "standing", "pinned", "last_tried", "updated"]
    assert raw(table, "SELECT url, relay_id, state, score, pinned, last_tried, updated FROM relay_scores") == [
        (URL, "did:strata:r", "blacklisted", 0.71, 0, T0 - 5, T0)
    ]


def test_pin_survives_a_save_of_older_knowledge(table, clock):
    """A client that loaded a relay before the user pinned it does not undo the pin by saving."""
    table.save(entry())
    client = RelayScores(table.path, clock=clock)
    before = client.load(URL)
    pinned = table.pin(URL)
    client.save(before)

    assert pinned.standing.pinned and not before.standing.pinned
    assert client.load(URL).standing == replace(before.standing, pinned=True)
    client.close()


def test_unpin_survives_a_save_of_older_knowledge(table):
    """Neither does a save bring a pin back; with the pin goes the flag."""
    table.save(entry(pinned=True, flagged=Reason.VIOLATIONS))
    before = table.load(URL)
    table.pin(URL, pinned=False)
    table.save(before)

    assert before.standing.flagged is Reason.VIOLATIONS
    assert (table.load(URL).standing.pinned, table.load(URL).standing.flagged) == (False, None)


def test_pin_makes_a_relay_known(table):
    """A pinned relay nobody met starts on probation; taking back a pin that never was makes nothing."""
    pinned = table.pin(URL)

    assert pinned.standing == Standing(State.PROBATION, T0, pinned=True)
    assert (pinned.score, pinned.relay_id, pinned.last_tried_s) == (0.5, None, None)
    assert table.pin("wss://other", pinned=False) is None
    assert len(table.list()) == 1


def test_forget_drops_a_relay(table):
    """A forgotten relay is gone, pin and all; forgetting an unknown one is harmless."""
    table.pin(URL)
    table.forget(URL)
    table.forget("wss://never")

    assert table.list() == []


def test_entry_serves_the_choice():
    """An entry gives the candidate that the rules choose from."""
    assert entry(pinned=True).candidate == Candidate(URL, State.ACTIVE, 0.71, True, T0 - 5)
    assert RelayEntry.new(URL, T0).candidate == Candidate(URL, State.PROBATION, 0.5)


def test_table_is_bounded(table, clock, monkeypatch):
    """Above the limit the oldest goes, bans last; active, pinned and just saved relays stay."""
    monkeypatch.setattr(relay_scores, "ENTRIES_MAX", 4)
    rows = [("active", State.ACTIVE), ("banned", State.BLACKLISTED), ("old", State.BACKUP), ("newer", State.PROBATION)]
    table.pin("pinned")
    names = []
    for url, state in [*rows, ("last", State.BACKUP), ("banned too", State.BLACKLISTED), ("end", State.PROBATION)]:
        clock.now += 60
        table.save(entry(url, state))
        names.append({each.url for each in table.list()})

    assert names[3] == {"pinned", "active", "banned", "newer"}
    assert names[4] == {"pinned", "active", "banned", "last"}
    assert names[5] == {"pinned", "active", "banned", "banned too"}
    assert names[6] == {"pinned", "active", "banned too", "end"}


@pytest.mark.parametrize("column", ["window", "standing"])
@pytest.mark.parametrize("text", ["", "{", "{}", "[]", "7"])
def test_damaged_entry_is_named(table, column, text):
    """A row that cannot be read is a HostError that names the relay, and can be forgotten."""
    table.save(entry())
    raw(table, f"UPDATE relay_scores SET {column} = ?", text)

    with pytest.raises(HostError, match=URL) as caught:
        table.load(URL)
    assert caught.value.exit_code == 5
    table.forget(URL)
    assert table.load(URL) is None


def test_failed_save_changes_nothing(table):
    """A save that the database refuses leaves the entry before it, and the table usable."""
    table.save(entry())
    with pytest.raises(HostError):
        table.save(replace(entry(), score=None))
    table.save(entry("wss://next"))

    assert [each.score for each in table.list()] == [0.71, 0.71]
