"""Hostile parties do what they are there for, and no more than anybody on the internet could."""

import random

import pytest

from tests.sim.build_lprp import QUIET, Quarter
from waystation.core.instant import Instant
from waystation.sim import lprp_observations as seen
from waystation.sim.lprp_hostile import Liar, make_hostile
from waystation.sim.lprp_person import Person
from waystation.sim.lprp_plan import HOSTILE_KINDS


class Street:
    """One honest tenant and one hostile party, for half a minute."""

    def __init__(self, kind, seconds=30, seed=2):
        self.quarter = Quarter(QUIET)
        commons = self.quarter.commons
        self.person = Person(commons, random.Random(1), 0, [0])
        self.hostile = make_hostile(kind, commons, random.Random(seed), 0, self.person.addresses())
        if isinstance(self.hostile, Liar):
            self.hostile.host_pairs = [house.key_pair for house in self.quarter.houses]
        self.person.start([self.person.key])
        self.quarter.schedule.at(Instant(2_000_000), self.hostile.come)
        self.quarter.run(seconds)
        self.heard = self.quarter.of(seen.Heard)
        self.own = set(self.person.addresses())

    def foreign(self):
        """Return what hosts heard that did not come from the honest person's address."""
        return [each for each in self.heard if each.address not in self.own]


@pytest.mark.parametrize("kind", HOSTILE_KINDS)
def test_every_kind_is_at_work(kind):
    """Each party is heard by a host, or by a client, and stops with the calm."""
    street = Street(kind)
    told = street.person.outcomes
    assert street.foreign() or any(name.startswith("dropped") for name in told) or kind in {"spoofer", "garbage"}

    street.quarter.commons.troubled = False
    street.quarter.run(5)
    count = len(street.quarter.of(seen.Heard))
    street.hostile.come()
    street.quarter.run(1)
    assert all(each.address in street.own for each in street.quarter.of(seen.Heard)[count:])


def test_replayer_repeats_what_was_heard():
    """Everything that it sends is a good packet of somebody else, from its own address, at both hosts."""
    foreign = Street("replayer").foreign()
    honest = {each.packet.data for each in Street("replayer").heard if each.packet is not None}

    assert len(foreign) > 10
    assert {each.address for each in foreign} == {("10.200.0.1", 666)}
    assert {each.host for each in foreign} == {0, 1}
    assert all(each.packet.data in honest for each in foreign if each.packet is not None)


def test_spoofer_and_garbage_forge_sources():
    """They write addresses on their datagrams that are not theirs, among them some that never spoke."""
    for kind in ("spoofer", "garbage"):
        sources = {each.address[0] for each in Street(kind).heard}
        assert any(source.startswith("203.0.") for source in sources)


def test_farmer_comes_from_many_networks():
    """It gathers demands under many keys, from many prefixes, and answers some of them well."""
    street = Street("farmer")
    sources = {each.address[0].rpartition(".")[0] for each in street.foreign()}
    keys = {each.packet.sender for each in street.foreign() if each.packet is not None}
    granted = [each for each in street.quarter.of(seen.Said) if each.packet.command == 0x204]

    assert len(sources) > 10
    assert len(keys) > 10
    assert any(each.packet.recipient != street.person.key for each in granted)


def test_bad_tenant_aims_its_mail_at_its_victim():
    """It gets a lease, fills its own queue, and has the host send it elsewhere: as far as was paid for."""
    street = Street("bad_tenant", seed=4)
    victims = {each.address for each in street.foreign()} - {street.hostile.address}
    mail = [each for each in street.quarter.of(seen.Said) if each.packet.command == 0x102]

    assert len(victims) == 1
    assert {each.address for each in mail} & victims


def test_forger_signs_for_others_in_vain():
    """Half of what it sends is in somebody's name without his signature."""
    foreign = [each for each in Street("forger").foreign() if each.packet is not None]

    assert {each.is_signed for each in foreign} == {True, False}


def test_liar_reaches_clients_in_the_name_of_a_host():
    """Clients drop what it says: unasked, forged, for others, or bent."""
    dropped = {name for name in Street("liar").person.outcomes if name.startswith("dropped")}

    assert "dropped_unasked_answer" in dropped
    assert len(dropped) > 2
