"""Lines carry records one by one, count them, and can be cut without a word or end."""

import random

import pytest

from waystation.core.instant import Instant
from waystation.sim.bsp_line import LATENCY_US, PLAIN, Line
from waystation.sim.bsp_records import ACK, MESSAGE, OFFER, ids_record, message_record, read_records
from waystation.sim.datagram import DatagramSettings
from waystation.sim.schedule import Schedule

IDS = [bytes([number]) * 32 for number in (1, 2)]


class Ends:
    """Two ends that keep what arrives."""

    def __init__(self, settings=PLAIN):
        self.schedule = Schedule()
        self.heard = {"a": [], "b": []}
        takes = {name: self.take(name) for name in "ab"}
        self.line = Line(self.schedule, random.Random(1), settings, takes)

    def take(self, name):
        return lambda sender, data: self.heard[name].append((self.schedule.now, sender, data))

    def run(self, until_us):
        self.schedule.run(Instant(until_us))


@pytest.fixture
def ends():
    """Return a line without faults."""
    return Ends()


def test_records_arrive_after_the_latency(ends):
    """Each end hears the other, a tenth of a second later, in order."""
    ends.line.throw("a", b"one")
    ends.line.throw("a", b"two")
    ends.line.throw("b", b"back")
    ends.run(LATENCY_US)

    assert ends.heard == {
        "a": [(LATENCY_US, "b", b"back")],
        "b": [(LATENCY_US, "a", b"one"), (LATENCY_US, "a", b"two")],
    }
    assert [ends.line.other(name) for name in "ab"] == ["b", "a"]


def test_what_is_carried_is_counted(ends):
    """Bytes, records and copies of each message are known per direction, also of what does not arrive."""
    message = message_record(IDS[0], 1, b"body")
    ends.line.cut()
    for record in read_records(ids_record(OFFER, *IDS) + ids_record(ACK, IDS[0]) + message):
        ends.line.carry("a", record)
    tally = ends.line.tallies["a"]

    assert tally.record_bytes == 68 + 36 + len(message)
    assert dict(tally.by_kind) == {OFFER: 1, ACK: 1, MESSAGE: 1}
    assert tally.bytes_by_kind[OFFER] == 68
    assert tally.acked() == 1
    assert tally.copies[IDS[1]] == [(0, OFFER)]
    assert ends.line.tallies["b"].record_bytes == 0
    ends.run(10 * LATENCY_US)
    assert ends.heard["b"] == []


def test_what_is_thrown_is_not_counted(ends):
    """The hostile do not spoil the books."""
    ends.line.throw("a", b"rubbish")

    assert ends.line.tallies["a"].record_bytes == 0


def test_cut_spares_what_is_under_way(ends):
    """A cut is at the sender: what left before it arrives, what comes after it does not, and healing helps the rest."""
    ends.line.throw("a", b"before")
    ends.line.cut()
    ends.line.throw("a", b"lost")
    ends.line.heal()
    ends.line.throw("a", b"after")
    ends.run(LATENCY_US)

    assert [data for _, _, data in ends.heard["b"]] == [b"before", b"after"]


def test_end_loses_what_is_under_way(ends):
    """When a connection ends nothing of it arrives any more; the next one works."""
    ends.line.throw("a", b"lost")
    ends.line.set_out()
    ends.line.throw("a", b"new")
    ends.run(LATENCY_US)

    assert [data for _, _, data in ends.heard["b"]] == [b"new"]


def test_calm_changes_the_weather():
    """From now on nothing is lost any more, and what is under way still arrives."""
    ends = Ends(DatagramSettings(latency_us=LATENCY_US, jitter_us=0, loss=1.0))
    ends.line.throw("a", b"lost")
    ends.line.calm(PLAIN)
    ends.line.throw("a", b"kept")
    ends.line.calm(PLAIN)
    ends.run(LATENCY_US)

    assert [data for _, _, data in ends.heard["b"]] == [b"kept"]
