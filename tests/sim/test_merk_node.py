"""Nodes dial each other through the world, as far as it lets them."""

from dataclasses import replace

import pytest

from tests.sim.build_merk import QUIET, Quarter
from waystation.core.effects import Dial
from waystation.sim import merk_observations as seen
from waystation.sim.merk_commons import PINGS_US, address_of

PAIR = replace(QUIET, nodes=2)


def linked(quarter):
    """Return for each node how many others it says it is linked with."""
    return [len(house.linked_keys()) for house in quarter.houses]


def test_line_becomes_a_full_mesh():
    """Nodes that know one neighbour each find all others, and dial what they have learnt."""
    quarter = Quarter(replace(QUIET, nodes=5))
    quarter.run(60)
    learnt = [each for each in quarter.kinds(seen.Dialled) if not each.is_configured]

    assert linked(quarter) == [4] * 5
    assert learnt
    assert all(each.is_private_allowed for each in learnt)


def test_parted_nodes_lose_their_link_and_find_each_other_again():
    """While two nodes cannot reach each other their link goes down with its pings, and comes back afterwards."""
    quarter = Quarter(PAIR)
    quarter.run(5)
    one, other = quarter.houses
    one.part(other, PINGS_US + 10_000_000)
    quarter.run(PINGS_US / 1_000_000 + 5)
    apart, reachable = linked(quarter), one.is_there(1)
    quarter.run(60)

    assert (apart, reachable) == ([0, 0], False)
    assert linked(quarter) == [1, 1]


def test_crash_forgets_links_and_dials_again():
    """A node that comes back dials its neighbours anew."""
    quarter = Quarter(PAIR)
    quarter.run(5)
    quarter.houses[1].crash(1_000_000)
    quarter.run(0.5)
    down = quarter.houses[1].world.is_up
    quarter.run(40)

    assert not down
    assert quarter.houses[1].world.life == 2
    assert linked(quarter) == [1, 1]
    assert quarter.commons.where.is_linked(0, 1, quarter.schedule.now)


@pytest.mark.parametrize(
    ("url", "only_public", "fails"),
    [(address_of(0), True, False), ("ws://nowhere.sim", False, True), ("ws://10.0.0.1:22", True, True)],
)
def test_dials_that_meet_nobody_fail_later(url, only_public, fails):
    """An unknown address, and a private one that must be public, is told as unreachable after a while."""
    quarter = Quarter(PAIR)
    quarter.run(5)
    house = quarter.houses[1]
    house._dial(house.world, "merk", Dial(url, url, only_public))
    quarter.run(3.5)

    assert any(f"unreachable merk {url}" in line for line in quarter.lines) is fails


def test_resting_node_is_alone():
    """A node that rests leaves the others and dials nobody."""
    quarter = Quarter(PAIR)
    quarter.run(5)
    for house in quarter.houses:
        house.rest()
    quarter.run(30)

    assert linked(quarter) == [0, 0]
    assert [quarter.sizes(node)["connections"] for node in (0, 1)] == [0, 0]


def test_trunks_can_be_held_up_and_broken():
    """A link that was held up counts as disturbed; one that was broken is made again."""
    quarter = Quarter(PAIR)
    quarter.run(5)
    (trunk,) = quarter.houses[1].trunks()
    trunk.hold_up(1_000_000)
    held_up = quarter.commons.where.is_linked(0, 1, quarter.schedule.now)
    trunk.break_off()
    quarter.run(40)

    assert not held_up
    assert quarter.houses[1].trunks() != [trunk]
    assert linked(quarter) == [1, 1]


def test_sizes_are_observed_while_the_node_is_up():
    """A node tells how much it holds; a dead one tells nothing."""
    quarter = Quarter(PAIR)
    quarter.run(1)
    quarter.houses[0].measure(settled=False)
    quarter.houses[0].crash(1_000_000)
    quarter.houses[0].measure(settled=False)

    (sized,) = quarter.kinds(seen.Sized)
    assert (sized.node, sized.sizes["nodes"], sized.max_frame_bytes) == (0, 1, 8_388_608)
