"""Hostile clients of the open world do what they are named for, and are refused as specified."""

import random
from dataclasses import replace

import pytest

from tests.sim.build_bhumi_open import QUIET, Quarter
from waystation.journal.events import Refused
from waystation.sim import bhumi_open_observations as seen
from waystation.sim import bhumi_open_records as records
from waystation.sim.bhumi_open_hostile import OpenHostile
from waystation.sim.bhumi_open_plan import HOSTILE_CLIENTS, OpenDeviceHabits

PLAN = replace(QUIET, relays=2, clocks_off_ms=0, device=OpenDeviceHabits(moves=0.0))


def attacked(kind, seconds=60):
    """Return two relays with a device, after somebody of this kind has been at them for a while."""
    refused = []
    quarter = Quarter(PLAN, on_event=lambda event: refused.append(event) if isinstance(event, Refused) else None)
    device = quarter.device()
    device.come()
    quarter.run(5)
    hostile = OpenHostile(quarter.commons, random.Random(4), "10.3.0.0", kind, [device.identity])
    hostile.come()
    quarter.run(seconds)
    return quarter, device, hostile, {event.reason for event in refused}


@pytest.mark.parametrize(
    ("kind", "reasons"),
    [
        ("impostor", {"foreign_presence"}),
        ("carrier", {"foreign_presence"}),
        ("prophet", {"record_ttl"}),
        ("nosy", {"where_flood"}),
        ("eager", {"unknown_extension"}),
        ("whisperer", {"foreign_presence", "gossip_without_identity"}),
    ],
)
def test_trick_is_refused_for_what_it_is(kind, reasons):
    """Each kind gets the refusals that its trick deserves."""
    assert reasons <= attacked(kind)[3]


def test_rover_is_known_at_eight_places():
    """Who says to be everywhere is at eight relays at most."""
    quarter, device, hostile, _ = attacked("rover")
    slips = [took.slip for took in quarter.kinds(seen.Took) if took.slip.owner != device.identity]
    places = [quarter.sizes(node)["presences"] for node in range(2)]

    assert len({slip.relay for slip in slips}) > 30
    assert 2 < max(places) <= 8 + 1
    assert hostile._key_pair.public in quarter.commons.suspects


def test_carrier_hands_in_what_others_have_signed():
    """Its records are genuine, and not its own."""
    quarter, device, _, _ = attacked("carrier")
    given = [took.slip for took in quarter.kinds(seen.Took) if not took.is_owner and not took.is_gossip]

    assert given
    assert all(records.is_genuine(slip) and slip.owner == device.identity for slip in given)


def test_whatever_it_does_the_device_is_found():
    """Nobody else's word moves it."""
    for kind in HOSTILE_CLIENTS:
        quarter, device, _, _ = attacked(kind)
        answers = [each for each in quarter.kinds(seen.Answered) if each.identity == device.identity and each.slips]

        assert {answer.slips[0].relay for answer in answers} <= {quarter.commons.keys[device.home_node]}


def test_hostile_client_that_left_stays_away():
    """After the trouble nobody of them connects any more."""
    quarter, _, hostile, _ = attacked("nosy", 20)
    hostile.leave()
    quarter.run(120)
    clients = [quarter.sizes(node)["connections"] - quarter.sizes(node)["identities"] for node in range(2)]

    assert clients == [0, 0]
