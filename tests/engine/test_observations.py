"""Laws of engine.observations: what is written of other relays, what is gathered, and how they are named."""

import random
from hashlib import sha256

import pytest

from tests.engine.build import KEY, WALL
from waystation.core import facts
from waystation.core.ids import node_id_of
from waystation.core.instant import Instant
from waystation.engine import observations as module
from waystation.engine.recorder import Recorder
from waystation.engine.references import relay_id_of
from waystation.journal import events
from waystation.journal.segment import encode_lines, read_rows

SECOND = 1_000_000
UP = b"u" * 32
NAME = "did:web:relay.example"


def make(*, journal=True):
    """Return a recorder and what it writes."""
    written = []
    recorder = Recorder(written.append if journal else None, random.Random(1))
    recorder.set_wall(Instant(0), WALL)
    recorder.use_key(KEY)
    return recorder, written


def seen(probe, outcome="ok", relay=UP, **fields):
    """Return one observation."""
    return facts.RelayObserved("strata", relay, probe, outcome, **fields)


def test_a_relay_is_named_by_its_key_or_by_the_hash_of_its_name():
    """A key gives what its node calls itself; a name of 32 letters is still a name."""
    letters = "did:web:relay.example.org/abcdefg"[:32]
    names = [relay_id_of(UP), relay_id_of(NAME), relay_id_of(letters)]

    assert names == [node_id_of(UP), *(sha256(name.encode()).hexdigest()[:16] for name in (NAME, letters))]
    assert {len(name) for name in names} == {16}


@pytest.mark.parametrize(
    "fact",
    [
        seen("connect"),
        seen("connect", "failed"),
        seen("reconnect"),
        seen("rtt", latency_us=900),
        seen("span", duration_us=60 * SECOND),
        seen("blob", carried_bytes=70_000, duration_us=5),
    ],
)
def test_what_we_did_is_one_event_at_once(fact):
    """Each has its own row, with everything that was told, however many come in a second."""
    recorder, written = make()
    for at in (5, 6):
        recorder.note(fact, Instant(at))

    assert written == [events.RelayObserved(WALL + at, "strata", node_id_of(UP), *fact[2:]) for at in (5, 6)]
    assert recorder.deadline() is None


def test_a_flood_of_a_second_is_two_rows():
    """The first is told at once; the others are one row with the time and the pause of the last."""
    recorder, written = make()
    for number in range(1_000):
        recorder.note(seen("limited", duration_us=number), Instant(5 + number))
    at_once = list(written)
    recorder.wake(recorder.deadline())

    assert [(row.ts_us - WALL, row.duration_us, row.times) for row in at_once] == [(5, 0, 1)]
    assert [(row.ts_us - WALL, row.duration_us, row.times) for row in written[1:]] == [(1_004, 999, 999)]
    assert recorder.deadline() is None


def test_one_of_a_kind_leaves_nothing_to_write_later():
    """The row of the first is the only one, and the clock is asked for once."""
    recorder, written = make()
    recorder.note(seen("error"), Instant(5))
    due = recorder.deadline()
    recorder.wake(due)

    assert due == SECOND + 5
    assert len(written) == 1


def test_kinds_are_gathered_apart():
    """Relays, probes and reasons each have rows of their own."""
    recorder, written = make()
    kinds = [
        seen("error"),
        seen("error", relay=NAME),
        seen("validity", "failed", reason="bad_signature"),
        seen("validity", "failed", reason="expired_packet"),
    ]
    for fact in kinds * 3:
        recorder.note(fact, Instant(1))
    recorder.node_stopped(Instant(2))

    told = [(row.relay_id, row.probe, row.reason, row.times) for row in written[:-1]]
    names = [(relay_id_of(fact.relay), fact.probe, fact.reason) for fact in kinds]
    assert told == [(*name, 1) for name in names] + [(*name, 2) for name in names]


def test_another_second_of_the_wall_clock_begins_another_row():
    """Rows never join what whole seconds tell apart."""
    recorder, written = make()
    for at in (10, 20, 30, SECOND + 1, SECOND + 2):
        recorder.note(seen("error"), Instant(at))
    recorder.node_stopped(Instant(SECOND + 3))

    assert [(row.ts_us - WALL, row.times) for row in written[:-1]] == [
        (10, 1),
        (30, 2),
        (SECOND + 1, 1),
        (SECOND + 2, 1),
    ]


def test_kinds_beyond_the_bound_are_written_and_not_forgotten(monkeypatch):
    """Memory is bounded whoever is named, and no observation is lost."""
    monkeypatch.setattr(module, "KINDS_MAX", 3)
    recorder, written = make()
    for _ in range(2):
        for number in range(10):
            recorder.note(seen("error", relay=bytes([number]) * 32), Instant(1))
            assert len(recorder._observations._gathered) <= 3
    recorder.node_stopped(Instant(2))

    assert sum(row.times for row in written[:-1]) == 20


def test_without_a_journal_nothing_is_gathered():
    """Nobody would read it."""
    recorder, _ = make(journal=False)
    recorder.note(seen("error"), Instant(1))

    assert recorder.deadline() is None


def test_rows_hold_neither_keys_nor_names():
    """A line has the beginning of a key and the hash of a name, never either whole."""
    recorder, written = make()
    recorder.note(seen("connect", relay=bytes(range(32))), Instant(1))
    recorder.note(seen("error", relay=NAME), Instant(1))
    lines = encode_lines(written, 0)

    assert [row["relay_id"] for row in read_rows(lines)] == [bytes(range(8)).hex(), relay_id_of(NAME)]
    for secret in (bytes(range(9)).hex().encode(), NAME.encode(), b"relay.example"):
        assert secret not in lines
