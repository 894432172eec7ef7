"""Scouts ask relays and compare what they say with the truth."""

from dataclasses import replace

from tests.sim.build_bhumi_open import QUIET, Quarter
from waystation.sim import bhumi_open_observations as seen
from waystation.sim.bhumi_open_plan import OpenDeviceHabits
from waystation.sim.bhumi_open_scout import Scout, Search

PLAN = replace(QUIET, relays=3, device=OpenDeviceHabits(moves=0.0))


def found(seconds):
    """Return what a scout counts about a device that has been at its relay for so many seconds."""
    quarter = Quarter(PLAN)
    device = quarter.device()
    device.come()
    quarter.run(seconds)
    scout = Scout(quarter.commons, quarter.rng, "10.2.1.0", [device.identity])
    for node in range(3):
        scout.look(node, device.identity)
    quarter.run(1)
    return quarter, device, scout


def test_due_look_ups_are_right():
    """A round after it came every relay knows where the device is."""
    quarter, device, scout = found(40)

    assert scout.outcomes == {"right": 3}
    assert quarter.kinds(seen.LookedUp) == [seen.LookedUp(node, device.identity, True, True) for node in range(3)]


def test_early_look_ups_do_not_count():
    """Before that an answer may be anything."""
    _, _, scout = found(5)

    assert scout.outcomes == {"early": 3}


def test_wrong_answer_counts_as_wrong():
    """A device that is not where the relays were told makes them wrong."""
    quarter, device, scout = found(40)
    device.place.node = (device.place.node + 1) % 3
    scout.look(0, device.identity)
    quarter.run(1)

    assert scout.outcomes == {"right": 3, "wrong": 1}


def test_relay_that_is_down_answers_nothing():
    """Nobody is told, and that is counted."""
    quarter, device, scout = found(40)
    quarter.houses[1].world.crash(60_000_000)
    scout.look(1, device.identity)
    quarter.run(20)

    assert scout.outcomes["unanswered"] == 1


def test_search_tells_once_and_hangs_up():
    """One question, one answer, and no connection is left."""
    quarter, device, _ = found(5)
    told = []
    Search(quarter.commons, "10.2.1.1", 0, device.identity, told.append)
    quarter.run(1)
    clients = [sized["connections"] - sized["identities"] for sized in map(quarter.sizes, range(3))]

    assert [[entry.presence.identity for entry in entries] for entries in told] == [[device.identity]]
    assert clients == [0, 0, 0]


def test_scout_goes_on_as_long_as_there_is_trouble():
    """About as often as the plan says, and not after the calm."""
    quarter, _, scout = found(40)
    scout.start()
    quarter.run(60)
    looked = sum(scout.outcomes.values())
    quarter.commons.troubled = False
    quarter.run(60)

    assert 50 < looked < 160
    assert sum(scout.outcomes.values()) <= looked + 1


def test_enemies_are_looked_up_too():
    """What relays say of them is counted nowhere, but the laws see it."""
    quarter, _, scout = found(5)
    quarter.commons.suspects.append(quarter.commons.keys[0])
    before = len(quarter.kinds(seen.Answered))
    scout.start()
    quarter.run(60)
    asked = {answered.identity for answered in quarter.kinds(seen.Answered)[before:]}

    assert quarter.commons.keys[0] in asked
