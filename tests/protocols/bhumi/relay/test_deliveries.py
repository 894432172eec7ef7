"""Laws of protocols.bhumi.deliveries that its caller relies on; what a SEND leads to is tried in test_relay*."""

import random

from tests.protocols.bhumi.build import ALICE, START, World, limits_of, preimage, send
from waystation.core.instant import after_ms
from waystation.protocols.bhumi.limits import DEFAULT_LIMITS
from waystation.protocols.bhumi.messages import SendResult
from waystation.protocols.bhumi.relay.connections import Connections
from waystation.protocols.bhumi.relay.deliveries import Deliveries
from waystation.protocols.bhumi.settings import BhumiSettings


def test_nothing_under_way_rings_no_bell():
    """A relay without exchanges and answers has no deadline here."""
    assert Deliveries(Connections(limits_of()), BhumiSettings(), random.Random(1)).deadline() is None


def test_answer_is_swept_at_most_a_second_late():
    """The sweep is planned for a whole second, so that many answers leave in one."""
    deliveries = Deliveries(Connections(limits_of()), BhumiSettings(response_ttl_ms=1_500), random.Random(1))
    deliveries.cache.keep_acked(ALICE.public, preimage(1), b"reply", START)
    due = deliveries.deadline()

    assert after_ms(START, 1_500) <= due <= after_ms(START, 2_500)
    deliveries.sweep(due)
    assert len(deliveries.cache) == 0
    assert deliveries.deadline() is None


def test_shut_gives_four_to_whoever_waits():
    """And a late answer may still fill the cache."""
    world = World()
    world.device(ALICE, commits=[1])
    sender = world.connect().say(send(ALICE, 1))
    world.relay._deliveries.shut(world.now)
    world.settle()

    assert sender.hear() == [SendResult(4)]
    assert world.relay.sizes()["late_acks"] == 1


def test_retired_relay_takes_nothing_new_but_repeats_answers():
    """Status 1, unless the answer is there already (BHUMI-28)."""
    world = World()
    device = world.device(ALICE, commits=[1, 2])
    world.connect().say(send(ALICE, 1)).hang_up()
    device.answer()
    world.relay.retire()
    sender = world.connect().say(send(ALICE, 2), send(ALICE, 1))

    assert sender.hear() == [SendResult(1), SendResult(0, b"reply")]


def test_bound_of_a_recipient_is_that_of_the_digest():
    """BHUMI-A12."""
    assert DEFAULT_LIMITS.pending_per_recipient == 32
