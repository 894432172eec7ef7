"""Laws of what strata.upstream_score tells: whoever folds the recorded rows of an upstream has its window."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocols.strata.build import NOW, did, key, post
from tests.protocols.strata.pair import Node, Script, event, join, reads
from waystation.core.facts import RelayObserved
from waystation.core.ids import node_id_of
from waystation.core.instant import Instant
from waystation.engine.recorder import Recorder
from waystation.engine.references import relay_id_of
from waystation.journal.segment import encode_lines
from waystation.protocols.strata.relay.replication import UPSTREAMS_TABLE, kept_score
from waystation.protocols.strata.relay.upstream_score import UpstreamScore
from waystation.rules.relay_observation import Observation, Probe, record
from waystation.rules.relay_state import Incident, Standing, State
from waystation.rules.relay_window import RelayWindow, window_to_plain

UP = key(1)
SECOND = 1_000_000
DEEDS = ("connected", "disconnected", "succeeded", "failed", "violated", "limited", "erred", "evaluate", "restart")


def recording():
    """Return a recorder whose clock is the wall clock, and the rows that it writes."""
    written = []
    recorder = Recorder(written.append, random.Random(1))
    recorder.set_wall(Instant(0), 0)
    recorder.use_key(b"k" * 32)
    return recorder, written


def folded(rows):
    """Return the window of whoever reads rows in the order of their times."""
    window, standing = RelayWindow(), Standing(State.PROBATION, 0)
    for number, row in sorted(enumerate(rows), key=lambda each: each[1].ts_us):
        incident = Incident(row.reason) if row.reason is not None else None
        amounts = (row.latency_us, row.carried_bytes, row.duration_us)
        probe = Probe(row.probe)
        seen = Observation(row.ts_us, number.to_bytes(8, "big"), probe, row.outcome, incident, *amounts, row.times)
        for _ in range(row.times):
            standing, _ = record(window, standing, seen)
    return window


class Life:
    """One upstream whose deeds are told to a recorder."""

    def __init__(self):
        self.recorder, self.rows = recording()
        self.now_us = NOW * SECOND
        self.upstream_score = UpstreamScore()
        self.listen()

    def listen(self):
        """Have everything told."""
        self.upstream_score.report_to(lambda seen: self.recorder.note(seen, Instant(self.now_us)), UP.public)

    def do(self, deed, amount, pause_us):
        """Let time pass, and the upstream do something."""
        self.now_us += pause_us
        self.recorder.wake(Instant(self.now_us))
        now_s = self.now_us // SECOND
        if deed == "restart":
            self.upstream_score = UpstreamScore.load(self.upstream_score.dump())
            self.listen()
        elif deed in ("succeeded", "limited"):
            getattr(self.upstream_score, deed)(amount, now_s)
        elif deed == "violated":
            self.upstream_score.violated([each for each in Incident if each.is_violation][amount % 4], now_s)
        else:
            getattr(self.upstream_score, deed)(now_s)

    def end(self):
        """Return the rows when everything is written."""
        self.recorder.node_stopped(Instant(self.now_us))
        return self.rows[:-1]


PAUSES = st.one_of(
    st.just(0), st.integers(1, 3 * SECOND), st.integers(1, 9_000 * SECOND), st.just(200 * 3_600 * SECOND)
)


@given(st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(1, 90_000), PAUSES), max_size=60))
@settings(max_examples=150, deadline=None)
def test_folded_rows_are_the_window(deeds):
    """Whatever an upstream does, how often and when, gathered or not, over restarts of ours."""
    life = Life()
    for deed in deeds:
        life.do(*deed)
    rows = life.end()

    assert window_to_plain(folded(rows)) == window_to_plain(life.upstream_score._window)


def test_a_flood_of_one_second_is_few_rows_and_the_same_window():
    """What the other side repeats costs it and not our disk."""
    life = Life()
    for number in range(900):
        life.do(("erred", "limited", "violated")[number % 3], 4 * number, 1_000)
    rows = life.end()

    kinds = {(row.probe, row.reason) for row in rows}
    assert len(rows) <= 2 * len(kinds)
    assert window_to_plain(folded(rows)) == window_to_plain(life.upstream_score._window)


def test_time_wanted_is_told_each_minute_and_at_its_ends():
    """Spans follow each other without a gap, each with the state that it had; a ban is wanted time of nobody."""
    life = Life()
    for deed in ("evaluate", "connected", "evaluate", "disconnected", "evaluate"):
        life.do(deed, 1, 60 * SECOND)
    for _ in range(3):
        life.do("violated", 0, 0)
    life.do("evaluate", 1, 60 * SECOND)
    spans = [row for row in life.end() if row.probe == "span"]

    assert [(row.ts_us // SECOND - NOW, row.outcome) for row in spans] == [
        (120, "failed"),
        (180, "ok"),
        (240, "ok"),
        (300, "failed"),
    ]
    assert {row.duration_us for row in spans} == {60 * SECOND}


class Telling(Node):
    """A relay whose observations are recorded at the moment when it tells them."""

    def __init__(self, **fields):
        self.recorder, self.rows = recording()
        super().__init__(key=key(0), **fields)

    def _perform(self, effect):
        if isinstance(effect, RelayObserved):
            self.recorder.note(effect, Instant(self.wall_s * SECOND))
        super()._perform(effect)


@pytest.mark.parametrize("wait_s", [0, 30])
def test_a_relay_tells_all_that_it_keeps_of_an_upstream(wait_s):
    """Connections, time, violations and failures: the fold of its rows is the window on its disk."""
    down = Telling(upstreams=reads(UP))
    join(down, Script(UP, event(post(), NOW))).cut()
    down.pass_time(wait_s)
    join(down, Script(UP, event(post("tampered").body | {"version": "one"}, NOW)))
    down.relay.upstream_failed(did(UP), down.now)
    down.pass_time(61)
    kept = kept_score(down.store.get(UPSTREAMS_TABLE, did(UP).encode()))

    assert {row.probe for row in down.rows} >= {"connect", "reconnect", "rtt", "validity", "span"}
    assert window_to_plain(folded(down.rows)) == window_to_plain(kept._window)


@pytest.mark.parametrize("name", [did(UP), "did:web:relay.example"])
def test_an_upstream_is_told_by_what_its_name_certifies(name):
    """A DID that holds a key gives the key's beginning, any other the hash of it; neither stands in a line."""
    down = Telling(upstreams=[{"url": "ws://203.0.113.9/", "relay_id": name}])
    down.relay.upstream_failed(name, down.now)
    down.settle()
    lines = encode_lines(down.rows, 0)

    assert [row.relay_id for row in down.rows] == [node_id_of(UP.public) if name == did(UP) else relay_id_of(name)]
    for secret in (name.encode(), UP.public.hex().encode(), b"203.0.113", b"example"):
        assert secret not in lines
