"""Simulated devices do what their habits say, over the real client machine."""

from dataclasses import replace

from tests.sim.build import QUIET, Street
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.sim.observations import AnswerArrived, Asked, Concluded, Delivered, Offered
from waystation.sim.plan import DeviceHabits


def street_with(ttl_ms=300_000, **habits):
    relay = BhumiSettings(response_ttl_ms=ttl_ms)
    street = Street(replace(QUIET, relay=relay, device=DeviceHabits(**habits)))
    street.device.come()
    street.run(1)
    return street


def test_claimed_preimages_were_offered_and_are_given_once():
    """A device gives out only what the node knows, to one sender each, and fills its stock again."""
    street = street_with()

    claimed = [street.device.claim(b"s" * 32) for _ in range(4)]
    street.run(1)
    refilled = street.device.claim(b"s" * 32)

    offered = {preimage for observation in street.kinds(Offered) for preimage in observation.preimages}
    assert len(set(claimed) - {None}) >= 3
    assert {preimage for preimage in claimed if preimage} <= offered
    assert refilled not in claimed


def test_good_device_answers():
    """Without habits every request is answered with what belongs to it."""
    street = street_with()

    street.sender.start()
    street.run(120)

    assert len(street.kinds(AnswerArrived)) == len(street.kinds(Delivered)) > 5
    assert all(result.status == 0 and result.answer == result.expected for result in street.kinds(Concluded))


def test_silent_device_never_answers():
    """``never_answers`` leaves every sender with a timeout, and its retry with a used preimage."""
    street = street_with(never_answers=1.0)

    street.sender.start()
    street.run(120)

    assert street.kinds(AnswerArrived) == []
    assert {result.status for result in street.kinds(Concluded)} == {2, 3}


def test_device_that_leaves_comes_back_with_what_it_has_not_seen():
    """After leaving mid-flight the sender gets 4, and the new connection offers nothing that was delivered."""
    street = street_with(leaves_mid_flight=1.0)

    street.sender.start()
    street.run(60)

    delivered = {
        observation.preimage: at for at, observation in enumerate(street.seen) if type(observation) is Delivered
    }
    assert 4 in {result.status for result in street.kinds(Concluded)}
    for at, observation in enumerate(street.seen):
        if isinstance(observation, Offered):
            assert not any(delivered.get(preimage, at) < at for preimage in observation.preimages)


def test_late_answer_serves_the_retry():
    """An answer after the relay's patience is kept, and a retry gets it."""
    street = street_with(ttl_ms=4_000, answers_late=1.0)

    street.sender.start()
    street.run(400)

    statuses = [result.status for result in street.kinds(Concluded)]
    assert 3 in statuses
    assert 0 in statuses
    assert len(street.kinds(Asked)) > len(street.kinds(Delivered))


def test_second_connection_replaces_the_first():
    """A device that comes twice is served on its newer connection."""
    street = street_with()

    street.device.come_twice()
    street.run(1)
    street.sender.start()
    street.run(60)

    assert {observation.connection for observation in street.kinds(Delivered)} == {2}
    assert street.world.sizes()["bhumi"]["identities"] == 1
