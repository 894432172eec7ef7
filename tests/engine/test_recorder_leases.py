"""Laws of engine.recorder: what is written of leases and work, and who is never named."""

import random

import pytest

from tests.engine.build import KEY, WALL
from waystation.core import facts
from waystation.core.instant import Instant
from waystation.crypto.hashing import keyed_reference
from waystation.engine import recorder as module
from waystation.engine.recorder import Recorder
from waystation.journal import events
from waystation.journal.segment import encode_lines, read_rows

TENANT = b"t" * 32
WORKER = b"w" * 32
SECOND = 1_000_000


def make(*, journal: bool = True) -> tuple[Recorder, list]:
    """Return a recorder and what it writes."""
    written: list = []
    recorder = Recorder(written.append if journal else None, random.Random(1))
    recorder.set_wall(Instant(0), WALL)
    recorder.use_key(KEY)
    return recorder, written


def work(kind: str = "lease", verdict: str = "accepted", worker: bytes = WORKER) -> facts.WorkJudged:
    """Return work of 20 bits that took half a second."""
    return facts.WorkJudged("lprp", worker, kind, verdict, 20, 500_000)


def test_change_of_a_lease_is_one_event_at_once() -> None:
    """It names the tenant by keyed hash, tells what happened and how much mail waits, and wakes nobody later."""
    recorder, written = make()
    recorder.note(facts.LeaseChanged("lprp", TENANT, "expired", 7), Instant(5))

    assert written == [events.LeaseChanged(WALL + 5, "lprp", keyed_reference(KEY, TENANT), "expired", 7)]
    assert recorder.deadline() is None


def test_accepted_work_is_one_event_at_once() -> None:
    """It tells what was demanded and how long the worker took."""
    recorder, written = make()
    recorder.note(work("whitelist"), Instant(5))

    assert written == [
        events.WorkJudged(
            WALL + 5, "lprp", keyed_reference(KEY, WORKER), "whitelist", "accepted", bits=20, latency_us=500_000
        )
    ]
    assert recorder.deadline() is None


@pytest.mark.parametrize("verdict", ["accepted", "too_few_bits", "challenge_expired"])
def test_work_for_a_relay_names_no_worker(verdict: str) -> None:
    """The delivery of the same instant names the recipient: a worker beside it would be its sender."""
    recorder, written = make()
    recorder.note(work("relay", verdict), Instant(5))
    recorder.wake(Instant(2 * SECOND))

    assert [(event.work, event.verdict, event.peer_ref) for event in written] == [("relay", verdict, None)]


def test_work_turned_down_is_gathered_for_a_second() -> None:
    """Ten thousand answers with too few bits are one row of their worker, a second after the first of them."""
    recorder, written = make()
    for at in range(10_000):
        recorder.note(work(verdict="too_few_bits"), Instant(at))
    nothing_yet, due = list(written), recorder.deadline()
    recorder.wake(Instant(SECOND))

    assert (nothing_yet, due) == ([], SECOND)
    assert written == [
        events.WorkJudged(
            WALL + SECOND, "lprp", keyed_reference(KEY, WORKER), "lease", "too_few_bits", None, None, 10_000
        )
    ]
    assert recorder.deadline() is None


def test_wake_before_the_second_is_over_writes_nothing() -> None:
    """What is gathered leaves at its time and not before."""
    recorder, written = make()
    recorder.note(work(verdict="too_few_bits"), Instant(0))
    recorder.wake(Instant(SECOND - 1))

    assert written == []


def test_kinds_and_verdicts_are_gathered_apart() -> None:
    """Rows share all they tell."""
    recorder, written = make()
    for kind, verdict in (("lease", "too_few_bits"), ("whitelist", "too_few_bits"), ("lease", "challenge_expired")):
        recorder.note(work(kind, verdict), Instant(1))
    recorder.wake(Instant(2 * SECOND))

    assert [(event.work, event.verdict, event.times) for event in written] == [
        ("lease", "too_few_bits", 1),
        ("whitelist", "too_few_bits", 1),
        ("lease", "challenge_expired", 1),
    ]


def test_too_many_workers_lose_their_names_and_not_the_count(monkeypatch) -> None:
    """What is gathered in a second is bounded whoever works."""
    monkeypatch.setattr(module, "WORK_KEYS_MAX", 3)
    recorder, written = make()
    for number in range(9):
        recorder.note(work(verdict="too_few_bits", worker=bytes([number]) * 32), Instant(1))
    recorder.wake(Instant(2 * SECOND))

    assert [event.times for event in written] == [1, 1, 1, 6]
    assert [event.peer_ref is None for event in written] == [False, False, False, True]


def test_end_of_the_node_writes_work_that_was_gathered() -> None:
    """Nothing that was counted is lost in a good end."""
    recorder, written = make()
    recorder.note(work(verdict="challenge_expired"), Instant(1))
    recorder.node_stopped(Instant(2))

    assert [type(event) for event in written] == [events.WorkJudged, events.NodeStopped]


def test_lines_say_what_the_facts_said() -> None:
    """The journal carries each field of both kinds where its contract says."""
    recorder, written = make()
    recorder.note(facts.LeaseChanged("lprp", TENANT, "granted", 0), Instant(5))
    recorder.note(work(), Instant(6))
    recorder.note(work(verdict="too_few_bits"), Instant(7))
    recorder.wake(Instant(2 * SECOND))
    lease, done, refused = read_rows(encode_lines(written, 0))

    assert (lease["kind"], lease["outcome"], lease["attrs"]) == ("lease_changed", "granted", {"waiting": "0"})
    assert lease["peer_ref"] == keyed_reference(KEY, TENANT).hex()
    assert (done["kind"], done["outcome"], done["latency_us"]) == ("work_judged", "accepted", 500_000)
    assert done["attrs"] == {"work": "lease", "bits": "20", "n": "1"}
    assert (refused["outcome"], refused["latency_us"]) == ("too_few_bits", None)
    assert refused["attrs"] == {"work": "lease", "n": "1"}


def test_totals_count_without_a_journal() -> None:
    """Metrics do not depend on whether anything is written, and nothing is gathered for nobody."""
    recorder, _ = make(journal=False)
    for change in ("granted", "expired", "granted"):
        recorder.note(facts.LeaseChanged("lprp", TENANT, change, 0), Instant(1))
    for verdict in ("accepted", "too_few_bits", "too_few_bits"):
        recorder.note(work(verdict=verdict), Instant(1))

    assert recorder.totals()["leases"] == {("lprp", "granted"): 2, ("lprp", "expired"): 1}
    assert recorder.totals()["work"] == {("lprp", "accepted"): 1, ("lprp", "too_few_bits"): 2}
    assert recorder.deadline() is None


def test_journal_lines_hold_no_key() -> None:
    """Whatever facts say of tenants and workers, the lines hold no key, raw or in hexadecimal, whole or in half."""
    recorder, written = make()
    rng = random.Random(3)
    keys = [rng.randbytes(32) for _ in range(100)]
    for key in keys:
        recorder.note(facts.LeaseChanged("lprp", key, "granted", 0), Instant(1))
        recorder.note(work(worker=key), Instant(1))
        recorder.note(work(verdict="too_few_bits", worker=key), Instant(1))
    recorder.wake(Instant(2 * SECOND))
    lines = encode_lines(written, 0)

    assert len(written) == 265
    assert not [key for key in keys if key[:8] in lines or key[:8].hex().encode() in lines]
