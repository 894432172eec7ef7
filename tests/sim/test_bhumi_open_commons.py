"""What the people of an open world share: addresses, clocks, places, hopes."""

import random

import pytest

from tests.sim.build_bhumi_open import DEVICE, NOW_S, QUIET, RELAY, Quarter
from waystation.core.instant import Instant
from waystation.protocols.bhumi.extension_wire import encode_record, is_address
from waystation.protocols.bhumi.signed_records import is_signed
from waystation.sim import bhumi_open_observations as seen
from waystation.sim.bhumi_open_commons import ROUND_US, Clock, Place, address_of, node_of
from waystation.sim.schedule import Schedule


@pytest.mark.parametrize("node", [0, 7, 49])
def test_address_leads_back_to_its_relay(node):
    """Addresses are well formed and say whose they are."""
    assert is_address(address_of(node))
    assert node_of(address_of(node)) == node


@pytest.mark.parametrize("address", ["", "tcp://evil-0.sim:4819", "tcp://relay-.sim:4819", "tcp://relay-1.sim:1"])
def test_other_addresses_are_nobodys(address):
    """What no relay of the world has leads nowhere."""
    assert node_of(address) is None


def test_clocks_are_off_by_as_much_as_the_plan_says():
    """A clock differs from the simulation by a constant, and is right when the plan allows no error."""
    schedule = Schedule()
    clocks = [Clock(schedule, random.Random(seed), 60_000) for seed in range(50)]
    errors = [clock.unix_s - NOW_S for clock in clocks]
    schedule.run(Instant(10_000_000))

    assert min(errors) < -30 < 30 < max(errors)
    assert all(abs(error) <= 60 for error in errors)
    assert [clock.unix_s - NOW_S for clock in clocks] == [error + 10 for error in errors]
    assert Clock(Schedule(), random.Random(1), 0).unix_s == NOW_S


def test_only_the_first_presence_at_a_relay_is_a_move():
    """Who says again where they are has been there all the time."""
    place = Place()
    place.arrive(1, Instant(5))
    place.arrive(1, Instant(9))
    stayed = (place.node, place.since)
    place.arrive(2, Instant(20))

    assert stayed == (1, 5)
    assert (place.node, place.since) == (2, 20)


def test_look_up_is_due_a_round_after_the_move():
    """Before that a relay may not have heard of it; a device without a relay is nowhere."""
    quarter = Quarter()
    place = quarter.commons.places[DEVICE.public] = Place()
    place.arrive(1, Instant(0))
    quarter.schedule.now = Instant(ROUND_US)
    early = quarter.commons.is_due(DEVICE.public, 0)
    quarter.schedule.now = Instant(ROUND_US + 1)
    late = quarter.commons.is_due(DEVICE.public, 0)
    place.depart()

    assert (early, late, quarter.commons.is_due(DEVICE.public, 0)) == (False, True, False)


def test_presences_are_signed_and_known_to_the_laws():
    """Whatever is signed is observed to the byte."""
    quarter = Quarter()
    presence = quarter.commons.sign(DEVICE, RELAY, NOW_S, 600)

    assert is_signed(presence)
    assert quarter.seen[-1] == seen.Made(encode_record(presence), True)


def test_honest_peers_are_told_by_their_address():
    """Devices, senders and relays keep to the protocol; others do not."""
    commons = Quarter().commons

    assert all(map(commons.is_honest, ("10.1.0.4", "10.2.0.1", "10.9.0.0", address_of(1))))
    assert not any(map(commons.is_honest, ("10.3.0.1", "10.8.0.0", "tcp://evil-0.sim:4819", "")))


def test_partition_separates_its_two_sides():
    """Relays of one side reach each other, in both parts."""
    commons = Quarter().commons
    commons.far_side = frozenset({1, 2})

    assert commons.are_parted(0, 1)
    assert not commons.are_parted(1, 2)
    assert not commons.are_parted(0, 3)


def test_hopes_that_came_true_are_no_complaints():
    """What is left at the end is what did not happen."""
    commons = Quarter(QUIET).commons
    first, second = commons.hope("one"), commons.hope("two")
    commons.fulfil(first)
    commons.fulfil(first)

    assert commons.hopes == {second: "two"}
