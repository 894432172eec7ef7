"""Simulated senders do what their habits say, over the real client machine."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.sim.build import QUIET, Street
from waystation.sim.observations import Asked, Concluded, ConnectionEnded, Probed
from waystation.sim.plan import SenderHabits


def street_with(seconds=120, **habits):
    street = Street(replace(QUIET, sender=SenderHabits(**habits)))
    street.device.come()
    street.run(1)
    street.sender.start()
    street.run(seconds)
    return street


@pytest.mark.parametrize(
    ("habit", "outcome"),
    [("guesses", "bad_preimage"), ("asks_absent", "offline")],
)
def test_bad_requests_have_their_outcome(habit, outcome):
    """Guessed preimages and absent recipients fail as the relay says."""
    street = street_with(**{habit: 1.0, "tries_max": 1})

    assert set(street.sender.outcomes) == {outcome}


def test_replay_is_answered_from_the_cache_or_refused():
    """A used preimage is answered once more while the answer is kept, and then refused."""
    street = street_with(seconds=300, replays=0.7)

    assert street.sender.outcomes["bad_preimage"] > 0
    assert street.sender.outcomes["ok"] > 0


def test_leaving_sender_retries_with_the_same_preimage():
    """Who leaves mid-flight asks again, and nobody is asked twice with another preimage."""
    street = street_with(seconds=300, leaves_mid_flight=1.0)

    asked = Counter(observation.preimage for observation in street.kinds(Asked))
    assert any(observation.reason == "self" for observation in street.kinds(ConnectionEnded))
    assert max(asked.values()) > 1


def test_side_by_side_requests_share_one_outcome():
    """The same request on two connections gets two results, both the right one."""
    street = street_with(retries_side_by_side=1.0)

    results = street.kinds(Concluded)
    assert len({observation.connection for observation in street.kinds(Asked)}) > 1
    assert all(result.answer == result.expected for result in results if result.status == 0)


def test_burst_is_queued_beyond_the_window():
    """More requests than a connection may have open are asked one after the other, none is dropped."""
    street = street_with(bursts=1.0, guesses=1.0, tries_max=1)

    street.sender.rest()
    street.run(10)

    assert sum(street.sender.outcomes.values()) == len(street.kinds(Concluded)) == len(street.kinds(Asked)) > 20


def test_probe_succeeds_when_the_device_is_there():
    """The last request uses a preimage that the node knows."""
    street = street_with(seconds=1)

    street.sender.rest()
    street.sender.probe()
    street.run(60)
    street.sender.leave()

    assert street.kinds(Probed) == [Probed(0, 0)]


def test_probe_without_a_device_tells_so():
    """A last request that nobody can answer is reported as none."""
    street = Street()

    street.sender.probe()
    street.run(200)
    street.sender.leave()

    assert street.kinds(Probed) == [Probed(0, None)]
