"""People do what their habits say, and keep what an application keeps."""

import random
from dataclasses import replace

import pytest

from tests.sim.build_lprp import QUIET, Quarter
from waystation.sim import lprp_observations as seen
from waystation.sim.lprp_person import Person
from waystation.sim.lprp_plan import PersonHabits


class Pair:
    """Two tenants of host 0 who write to each other."""

    def __init__(self, plan=QUIET):
        self.quarter = Quarter(plan)
        commons = self.quarter.commons
        self.people = [Person(commons, random.Random(number), number, [0]) for number in range(2)]
        for person in self.people:
            person.start([each.key for each in self.people])

    def run(self, seconds):
        self.quarter.run(seconds)
        return self

    def of(self, kind):
        return self.quarter.of(kind)


def test_people_get_leases_and_write():
    """After a while both have a lease and an agreed list, and what they sent has arrived, once each."""
    pair = Pair().run(60)
    kept = pair.of(seen.AppKept)

    assert {each.key for each in pair.of(seen.LeaseTold)} == {person.key for person in pair.people}
    assert {each.key for each in pair.of(seen.WhitelistTold)} == {person.key for person in pair.people}
    assert len(kept) > 10
    assert len(kept) == len(set(kept))


def test_people_move():
    """Rebinding gives another address, and the host hears from both."""
    pair = Pair(replace(QUIET, person=PersonHabits(rebinds=400.0))).run(60)
    sources = {each.address for each in pair.of(seen.Heard) if each.address[0].startswith("10.1.0.")}

    assert len(sources) > 1


def test_restarted_person_goes_on_with_what_was_on_its_disk():
    """A new life asks for no packet again that the application has, and never signs an earlier time."""
    pair = Pair(replace(QUIET, person=PersonHabits(restarts=600.0, away_us=100_000))).run(60)
    person = pair.people[0]
    times = [
        each.packet.time_ms
        for each in pair.of(seen.Heard)
        if each.packet is not None and each.packet.sender == person.key and each.host == 0
    ]

    assert person.desks[0].life > 3
    assert len(set(times)) > 10
    assert len(pair.of(seen.AppKept)) == len(set(pair.of(seen.AppKept)))


def test_application_that_hands_back_is_told_again():
    """What could not be kept comes again, until it is kept."""
    pair = Pair(replace(QUIET, person=PersonHabits(hands_back=0.5))).run(60)
    back = {each.signature for each in pair.of(seen.HandedBack)}
    kept = {each.signature for each in pair.of(seen.AppKept)}

    assert len(back) > 3
    assert len(back & kept) > len(back) / 2


def test_edits_reach_the_host():
    """A person who wants another list tells its host until they agree."""
    pair = Pair(replace(QUIET, person=PersonHabits(edits=400.0))).run(60)

    assert len({each.keys for each in pair.of(seen.WhitelistTold)}) > 3


def test_sleeper_is_silent_and_comes_back():
    """Nothing is heard of who sleeps; the calm wakes everybody."""
    pair = Pair(replace(QUIET, person=PersonHabits(sleeps=3_000.0, away_us=10**12), mail_per_hour=1.0)).run(60)
    count = len(pair.of(seen.Heard))
    pair.run(60)
    assert len(pair.of(seen.Heard)) == count

    pair.quarter.commons.troubled = False
    for person in pair.people:
        person.calm()
    pair.run(10)
    assert len(pair.of(seen.Heard)) > count


def test_probe_is_a_hope_until_it_arrives():
    """Everybody writes to every tenant once more, and hopes end with what arrives."""
    pair = Pair().run(30)
    hopes = pair.quarter.commons.hopes
    pair.people[0].probe()
    assert len(hopes) == 2

    pair.run(30)
    assert hopes == {}


@pytest.mark.parametrize("seconds", [0, 30])
def test_leaving_complains_of_what_is_missing(seconds):
    """Whoever has no lease when it leaves says so; whoever has everything leaves in silence."""
    pair = Pair().run(seconds)
    pair.quarter.commons.troubled = False
    pair.run(5 if seconds else 0)
    for person in pair.people:
        person.leave()

    assert bool(pair.of(seen.LeftHanging)) == (seconds == 0)
