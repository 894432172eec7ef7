"""Senders of the open world find devices that have moved."""

from dataclasses import replace

import pytest

from tests.sim.build_bhumi_open import QUIET, Quarter, pair, presence
from waystation.protocols.bhumi.extension_messages import Presence, WhereEntry
from waystation.protocols.bhumi.extension_wire import decode_presence
from waystation.sim.bhumi_open_plan import OpenDeviceHabits
from waystation.sim.bhumi_open_sender import OpenSender
from waystation.sim.observations import Asked, Concluded

PLAN = replace(QUIET, relays=3, asks_per_hour=6_000.0, senders=1, device=OpenDeviceHabits(moves=0.0))


def prepared():
    """Return relays, a device that is at one of them, and a sender."""
    quarter = Quarter(PLAN)
    device = quarter.device()
    device.come()
    quarter.run(40)
    return quarter, device, OpenSender(quarter.commons, quarter.rng, "10.2.0.0", [device])


def ask(sender, device):
    """Let a sender ask one thing."""
    sender._try(sender._request(device, device.claim()))


def test_device_that_has_not_moved_is_asked_where_it_was():
    """One request, one connection, no look-up."""
    quarter, device, sender = prepared()
    sender._open_requests = 1
    ask(sender, device)
    quarter.run(2)

    assert sender.outcomes == {"ok": 1}
    assert len(quarter.kinds(Asked)) == 1


def test_device_that_has_moved_is_found():
    """The known relay says that it is not here; a look-up tells where it is, and that is remembered."""
    quarter, device, sender = prepared()
    old = device.home_node
    sender._known[device.identity] = old
    device.move()
    quarter.run(45)
    sender._open_requests = 2
    ask(sender, device)
    quarter.run(10)
    ask(sender, device)
    quarter.run(2)

    assert sender.outcomes == {"moved": 1, "ok": 1}
    assert sender._known[device.identity] == device.home_node != old
    assert [told.status for told in quarter.kinds(Concluded)] == [1, 0, 0]


def test_preimage_and_bytes_are_the_same_wherever_it_tries():
    """A retry at another relay is the same request, so that a cached answer counts."""
    quarter, device, sender = prepared()
    sender._known[device.identity] = device.home_node
    device.move()
    quarter.run(45)
    sender._open_requests = 1
    ask(sender, device)
    quarter.run(10)
    asked = {(each.preimage, each.payload) for each in quarter.kinds(Asked)}

    assert len(quarter.kinds(Asked)) == 2
    assert len(asked) == 1


@pytest.mark.parametrize("is_forged", [True, False])
def test_hints_are_verified(is_forged):
    """A presence of somebody else, or with another signature, leads nowhere."""
    _, device, sender = prepared()
    request = sender._request(device, bytes(32))
    true = device._assert(device._home)
    forged = Presence(true.identity, true.relay_id, true.issued_at_s, true.ttl_s, bytes(64))
    other = decode_presence(presence(by=pair(3)).data)
    entry = WhereEntry(forged if is_forged else other, "tcp://relay-0.sim:4819")

    assert not sender._is_good(request, entry)
    assert sender._is_good(request, WhereEntry(true, ""))


def test_probe_fulfils_its_hope():
    """After the faults a device is found, wherever it is, and the complaint is withdrawn."""
    quarter, device, sender = prepared()
    sender._known[device.identity] = (device.home_node + 1) % 3
    sender.probe()
    hoped = dict(quarter.commons.hopes)
    quarter.run(60)

    assert len(hoped) == 1
    assert not quarter.commons.hopes
    assert sender.outcomes["probe"] == 1


def test_probe_of_a_device_that_is_gone_stays_a_complaint():
    """Who is never answered says so in the end."""
    quarter, device, sender = prepared()
    device.leave()
    sender.probe()
    quarter.run(170)

    assert list(quarter.commons.hopes.values()) == [
        f"no answer of {device.identity.hex()[:16]} after the faults had ended"
    ]


def test_sender_asks_as_often_as_the_plan_says():
    """And stops with the trouble."""
    quarter, _, sender = prepared()
    sender.start()
    quarter.run(30)
    quarter.commons.troubled = False
    quarter.run(30)
    asked = sum(sender.outcomes.values())
    quarter.run(30)

    assert 25 < asked < 80
    assert sum(sender.outcomes.values()) == asked
