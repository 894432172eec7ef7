"""Hostile relays of the open world become contacts, do what they are named for, and are refused as specified."""

import random
from dataclasses import replace

import pytest

from tests.sim.build_bhumi_open import QUIET, Quarter
from waystation.journal.events import Refused
from waystation.sim import bhumi_open_observations as seen
from waystation.sim import bhumi_open_records as records
from waystation.sim.bhumi_open_forgery import PRIVATE_ADDRESSES
from waystation.sim.bhumi_open_hostile_relay import CAPTURED_MAX, HostileRelay
from waystation.sim.bhumi_open_plan import HOSTILE_RELAYS, OpenDeviceHabits

PLAN = replace(QUIET, relays=2, clocks_off_ms=0, device=OpenDeviceHabits(moves=0.0))


def attacked(kind, seconds=60):
    """Return two relays with a device, after a relay of this kind has been among them for a while."""
    refused = []
    quarter = Quarter(PLAN, on_event=lambda event: refused.append(event) if isinstance(event, Refused) else None)
    device = quarter.device()
    device.come()
    hostile = HostileRelay(quarter.commons, random.Random(4), 0, kind)
    hostile.come()
    quarter.run(seconds)
    return quarter, device, hostile, {event.reason for event in refused}


@pytest.mark.parametrize(
    ("kind", "reasons"),
    [
        ("alterer", {"record_signature", "record_strikes"}),
        ("resigner", {"record_signature", "record_strikes"}),
        ("prolonger", {"record_ttl"}),
        ("advertiser", {"private_address", "record_ttl", "record_signature"}),
    ],
)
def test_trick_is_refused_for_what_it_is(kind, reasons):
    """Each kind gets the refusals that its trick deserves."""
    assert reasons <= attacked(kind)[3]


@pytest.mark.parametrize("kind", HOSTILE_RELAYS)
def test_it_is_a_contact_and_is_told_what_is_new(kind):
    """It links itself to others, and its advert makes others dial it."""
    quarter, _, hostile, _ = attacked(kind)

    assert hostile.captured
    assert any(dialled.url == hostile.address for dialled in quarter.kinds(seen.Dialled))


def test_flooder_fills_tables_with_strangers_and_nothing_more():
    """People that it has made up are believed, as they have signed; the relays keep their limits."""
    quarter, _, _, _ = attacked("flooder", 30)
    made_up = [made for made in quarter.kinds(seen.Made) if not made.is_honest]

    assert len(made_up) > 100
    assert quarter.sizes(0)["presences"] > 100


def test_asker_gets_one_sample_a_round():
    """However often it asks."""
    quarter, _, hostile, _ = attacked("asker", 25)
    quarter.seen.clear()
    asked = sum(link.port.is_open for link in hostile._links)
    quarter.run(25)
    given = [gave for gave in quarter.kinds(seen.Gave) if gave.slip.kind == records.PRESENCE and not gave.is_news]

    assert asked
    assert len(given) <= 4 * asked


def test_advertiser_leads_nobody_inside():
    """None of the private places that it names is dialled."""
    quarter, _, _, _ = attacked("advertiser")

    assert not {dialled.url for dialled in quarter.kinds(seen.Dialled)} & set(PRIVATE_ADDRESSES)


def test_what_it_captures_is_bounded_and_partly_old():
    """The first records stay, so that they are replayed long after their end."""
    quarter = Quarter(PLAN)
    hostile = HostileRelay(quarter.commons, random.Random(1), 0, "replayer")
    first = hostile.advert
    for number in range(2 * CAPTURED_MAX):
        hostile.capture(number)

    assert first()
    assert hostile.captured[:8] == list(range(8))
    assert len(hostile.captured) == CAPTURED_MAX


def test_hostile_relay_that_left_stays_away():
    """After the trouble it is neither here nor there to be dialled."""
    quarter, _, hostile, _ = attacked("mute", 20)
    hostile.leave()
    quarter.run(60)

    assert not hostile.is_there(0)
    assert [quarter.sizes(node)["contacts"] for node in range(2)] == [1, 1]
