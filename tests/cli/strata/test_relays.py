import json
import ssl
import time

import pytest

from waystation.cli.strata.relays import RelayAction, act_on_relay
from waystation.core.errors import LocalError
from waystation.rules.relay_state import Incident
from waystation.sdk.relay_scores import RelayEntry, RelayScores

URL = "wss://relay.example/strata"


def act(path, action, relay=None, *, as_json=True):
    """Carry an action out."""
    act_on_relay(action, relay, path, ssl.create_default_context(), as_json=as_json)


def test_reason_names_what_counts(tmp_path, capfd):
    """Connects, latency, probes, violations and limits, in words."""
    entry, now_s = RelayEntry.new(URL, int(time.time())), int(time.time())
    entry.window.record_connect(True, now_s)
    entry.window.record_latency(42, now_s)
    entry.window.record_probe(False, now_s)
    entry.window.record_incident(Incident.BAD_SIGNATURE, now_s)
    entry.window.record_incident(Incident.RATE_LIMITED, now_s)
    scores = RelayScores(tmp_path / "scores.db")
    scores.save(entry)
    scores.close()
    act(tmp_path / "scores.db", RelayAction.LIST)

    shown = json.loads(capfd.readouterr()[0])
    assert shown["why"] == "1 of 1 connects, 42 ms, 0 of 1 probes, 1 violations, limited"
    assert shown["state"] == "probation"


def test_same_relay_is_one_entry_however_it_is_named(tmp_path, capfd):
    """A URI, an HTTP base and a WebSocket address lead to one row."""
    for text in (f"strata://relay?http=https://relay.example&ws={URL}", "https://relay.example", URL):
        act(tmp_path / "scores.db", RelayAction.ADD, text)
    capfd.readouterr()
    act(tmp_path / "scores.db", RelayAction.LIST)

    assert [json.loads(line)["url"] for line in capfd.readouterr()[0].splitlines()] == [URL]


def test_unknown_relay_is_a_mistake(tmp_path):
    """Unpin and forget need one that is known, and every action one that is named."""
    for action in (RelayAction.UNPIN, RelayAction.FORGET):
        with pytest.raises(LocalError):
            act(tmp_path / "scores.db", action, URL)
    with pytest.raises(LocalError):
        act(tmp_path / "scores.db", RelayAction.PIN)
