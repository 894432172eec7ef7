"""Devices of the open world say where they are, move in good order, and ask their application once."""

from dataclasses import replace

from tests.sim.build_bhumi_open import NOW_S, QUIET, Quarter
from waystation.sim import bhumi_open_observations as seen
from waystation.sim.bhumi_open_device import LINGER_US
from waystation.sim.bhumi_open_plan import OpenDeviceHabits
from waystation.sim.bhumi_open_sender import OpenSender
from waystation.sim.observations import Concluded, Delivered

STILL = replace(QUIET, relays=2, clocks_off_ms=0, device=OpenDeviceHabits(moves=0.0))


def settled(plan=STILL):
    """Return two relays that are linked, and a device that has said where it is."""
    quarter = Quarter(plan)
    device = quarter.device()
    device.start()
    quarter.run(5)
    return quarter, device


def taken(quarter, node):
    """Return the presences that a relay was given by their owner."""
    return [took for took in quarter.kinds(seen.Took) if took.node == node and took.is_owner and not took.is_gossip]


def test_device_says_where_it_is():
    """As soon as it is registered its relay has a presence that names it, and the truth knows since when."""
    quarter, device = settled()
    (took,) = taken(quarter, device.home_node)

    assert (took.slip.owner, took.slip.relay) == (device.identity, quarter.commons.keys[device.home_node])
    assert (took.slip.ttl_s, took.slip.issued_at_s) == (600, NOW_S)
    assert device.place.node == device.home_node
    assert 0 < device.place.since < 1_000_000


def test_device_says_it_again_before_the_time_is_up():
    """After two fifths of its time a presence is renewed; the device has not moved by that."""
    quarter, device = settled()
    since = device.place.since
    quarter.run(240)

    assert [took.slip.issued_at_s - NOW_S for took in taken(quarter, device.home_node)] == [0, 240]
    assert device.place.since == since


def test_move_is_told_at_both_relays_and_the_old_one_is_left_later():
    """The very same presence goes to the new relay and to the old one, which keeps the connection for 10 s."""
    quarter, device = settled()
    old = device.home_node
    device.move()
    quarter.run(1)
    both = [quarter.sizes(node)["identities"] for node in range(2)]
    new = device.home_node
    quarter.run(LINGER_US / 1_000_000)
    at_new, at_old = taken(quarter, new)[-1], taken(quarter, old)[-1]

    assert new != old
    assert at_new.slip == at_old.slip
    assert at_new.slip.relay == quarter.commons.keys[new]
    assert at_new.slip.issued_at_s > taken(quarter, old)[0].slip.issued_at_s
    assert device.place.node == new
    # A link between the relays is an identity at one of them.
    assert sorted(both) == [1, 2]
    assert quarter.sizes(old)["identities"] < both[old]


def test_device_that_vanishes_comes_back():
    """It is nowhere until a relay has its presence again."""
    quarter, device = settled(replace(STILL, device=OpenDeviceHabits(moves=0.0, away_us=1_000_000)))
    device.vanish()
    gone = (device.home_node, device.place.node)
    quarter.run(60)

    assert gone == (None, None)
    assert device.place.node is not None


def test_request_is_answered_and_the_application_asked_once():
    """A request that reaches the device at two relays is one question to its application."""
    plan = replace(STILL, device=OpenDeviceHabits(moves=0.0, think_us=20_000_000, spares=1))
    quarter, device = settled(plan)
    sender = OpenSender(quarter.commons, quarter.rng, "10.2.0.0", [device])
    device.move()
    # The new relay has the commit by now, the old one still delivers.
    sender._known[device.identity] = device.home_node
    preimage = device.claim()
    request = sender._request(device, preimage)
    request.places = [0, 1]
    quarter.run(0.1)
    sender._try(request)
    sender._try(request)
    quarter.run(60)

    assert len(quarter.kinds(Delivered)) == 2
    assert quarter.kinds(seen.Handled) == [seen.Handled(device.identity, preimage)]
    answer = quarter.commons.answer_of(device.identity, preimage)
    assert {told.answer for told in quarter.kinds(Concluded) if told.status == 0} == {answer}


def test_answer_that_is_late_is_carried_to_the_new_relay():
    """An answer that the old relay does not wait for is in the cache of the new one."""
    quarter, device = settled(replace(STILL, device=OpenDeviceHabits(moves=0.0, think_us=40_000_000)))
    device._rng.seed(3)
    old, preimage = device.home_node, device.claim()
    sender = OpenSender(quarter.commons, quarter.rng, "10.2.0.0", [device])
    sender._try(sender._request(device, preimage))
    quarter.run(1)
    device.move()
    quarter.run(LINGER_US / 1_000_000 + 2)
    before = quarter.sizes(device.home_node)["cached_responses"]
    quarter.run(120)

    assert device.home_node != old
    assert before == 0
    assert preimage in device._answers
    assert quarter.sizes(device.home_node)["cached_responses"] + sender.outcomes["moved"] == 1


def test_device_that_left_stays_away():
    """In the end everything is closed."""
    quarter, device = settled()
    device.leave()
    quarter.run(30)

    assert device.home_node is None
    assert quarter.sizes(0)["commits"] + quarter.sizes(1)["commits"] == 0
