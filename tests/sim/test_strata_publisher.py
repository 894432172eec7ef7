"""Publishers do not give up, and tell what they were told."""

from dataclasses import replace

from tests.sim.build_strata import QUIET, Quarter
from waystation.sim import strata_observations as seen
from waystation.sim.strata_plan import PublisherHabits
from waystation.sim.strata_publisher import Publisher


def living(seconds, **habits):
    """Return what a publisher with these habits did in so many seconds, and it."""
    quarter = Quarter(replace(QUIET, packets_per_hour=7_200.0, publisher=PublisherHabits(**habits)))
    publisher = Publisher(quarter.commons, quarter.rng, "10.1.0.1", 0)
    publisher.start()
    quarter.run(seconds)
    return quarter, publisher


def test_every_packet_is_promised():
    """On a link without faults each packet gets its OK, and is stored by then."""
    quarter, publisher = living(30)
    promised = quarter.kinds(seen.Published)

    assert len(promised) > 20
    assert all(each.is_stored for each in promised)
    assert [each.packet_id for each in promised] == quarter.commons.oks[0]
    assert publisher.outcomes["ok"] == len(promised)


def test_packets_without_an_answer_are_published_again():
    """A crash between packet and OK leaves no packet without a verdict."""
    quarter, publisher = living(10)
    for _ in range(5):
        quarter.world.crash(500_000)
        quarter.run(5)
    quarter.commons.troubled = False
    quarter.run(120)
    publisher.leave()

    assert publisher.outcomes["unknown"] + publisher.outcomes["ok"] > 20
    assert quarter.kinds(seen.LeftHanging) == []
    assert {each.packet_id for each in quarter.kinds(seen.Published)} == set(quarter.commons.made)


def test_new_key_signs_only_behind_its_event():
    """A publisher that changes its keys is never refused."""
    quarter, publisher = living(60, rotates=0.3)
    kinds = [each.content_type for each in quarter.kinds(seen.Made)]

    assert kinds.count("KEY_EVENT") > 5
    assert quarter.kinds(seen.Refused) == []
    assert publisher.outcomes["ok"] > 50


def test_who_says_again_is_told_that_it_is_a_duplicate():
    """The same bytes once more are promised once more, as a duplicate."""
    quarter, publisher = living(30, says_again=0.5)

    assert publisher.outcomes["duplicate"] > 10
    assert len({each.packet_id for each in quarter.kinds(seen.Published)}) == publisher.outcomes["ok"]


def test_packet_without_a_verdict_is_a_complaint():
    """Who leaves while a packet is on its way says so."""
    quarter, publisher = living(0)
    publisher.probe()

    publisher.leave()

    assert "without a verdict" in quarter.kinds(seen.LeftHanging)[0].what
