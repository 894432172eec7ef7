"""Hostile peers do what their kind does, and a device that hears them stays what it is."""

import random

import pytest

from tests.sim.build_bsp import village
from waystation.protocols.bsp.links import Mode
from waystation.sim.bsp_hostile import INSIDERS, make_hostile
from waystation.sim.bsp_plan import HOSTILE_KINDS
from waystation.sim.bsp_records import MESSAGE, OFFER, dependencies_of, read_records

TURNS = 60
FEW = {"flooder": 8}
"""Turns of those who say much in one."""


class Visit:
    """One device, one hostile peer, and everything that the peer throws at it."""

    def __init__(self, kind, seed=1):
        self.here, self.group = village(edges=("a",), form="deps_v1", mode=Mode.INTERACTIVE)
        self.hostile = make_hostile(kind, self.here, random.Random(seed), "h", self.group)
        self.here.strangers["h"] = self.hostile.take
        self.hostile.line = self.here.line("a", "h")
        if kind in INSIDERS:
            self.here.parties["a"].share(self.group.group_id, "h")
        self.thrown = []
        throw = self.hostile.line.throw

        def tap(name, data):
            if name == "h":
                self.thrown.append(data)
            throw(name, data)

        self.hostile.line.throw = tap

    def stay(self, turns=TURNS):
        """Let the peer act, and the device write, for a while."""
        left = iter(range(turns))
        self.hostile.come(lambda: next(left, None) is not None)
        for number in range(20):
            self.here.parties["a"].add(self.group, number, b"\x01\x00\x00%d" % number)
            self.here.run(3_000)
        return self

    def records(self):
        """Return the records that it threw, of those that are some."""
        return [record for data in self.thrown for record in _read(data)]


def _read(data):
    try:
        return read_records(data)
    except ValueError:
        return []


@pytest.mark.parametrize("kind", HOSTILE_KINDS)
def test_device_survives_a_visit(kind):
    """Whatever it hears, the device breaks no law and keeps its own messages."""
    visit = Visit(kind).stay(FEW.get(kind, TURNS))

    own = [each for each in visit.here.parties["a"].states().values() if each.state == 2]
    assert len(own) >= 20


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE_KINDS if kind != "hoarder"])
def test_visitor_is_busy(kind):
    """Every kind that acts of its own accord does so again and again, differently."""
    turns = FEW.get(kind, TURNS)
    visit = Visit(kind).stay(turns)

    assert len(visit.thrown) >= turns / 2
    assert len(set(visit.thrown)) > turns / 4


def test_garbage_is_mostly_none():
    """Most of it is no record at all, and the device counts that."""
    visit = Visit("garbage").stay()

    assert visit.here.parties["a"].malformed > TURNS / 4


def test_intruder_gets_nothing_for_its_pains():
    """It shares nothing: it is told of no message, and none of its own is taken."""
    visit = Visit("intruder").stay()

    assert len(visit.here.parties["a"].states()) == 20
    assert {record.kind for record in visit.records()} == {0, 1, 2, 3}


def test_flooder_offers_more_than_is_remembered():
    """It names thousands of messages in one breath."""
    visit = Visit("flooder").stay(10)

    assert max(len(record.ids) for record in visit.records()) > 1_000
    assert all(record.kind == OFFER for record in visit.records())


def test_poisoner_writes_all_sorts():
    """Some of its messages are delivered, some wait for ever, some are invalid."""
    visit = Visit("poisoner").stay()

    assert {each.state for each in visit.here.parties["a"].states().values()} == {1, 2, 3}
    bodies = [record.body for record in visit.records() if record.kind == MESSAGE]
    assert None in {dependencies_of(body) for body in bodies}


def test_liar_is_sent_what_it_asks_for():
    """Even a liar gets what is shared with it, though it asks for everything twice."""
    visit = Visit("liar").stay()

    assert visit.hostile.heard > 20
    assert visit.here.records(MESSAGE) > 0


def test_hoarder_never_acknowledges():
    """It takes everything, and the device offers for as long as it stays."""
    visit = Visit("hoarder").stay()
    before = visit.here.records(OFFER)
    visit.here.run(65_000)

    assert {record.kind for record in visit.records()} == {3}
    assert visit.here.records(MESSAGE) >= 20
    assert visit.here.records(OFFER) > before
