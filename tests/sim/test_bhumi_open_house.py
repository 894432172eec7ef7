"""Relays dial each other through the world, as far as it lets them."""

from dataclasses import replace

from tests.sim.build_bhumi_open import QUIET, Quarter
from waystation.core.effects import Dial
from waystation.sim import bhumi_open_observations as seen
from waystation.sim.bhumi_open_commons import address_of

PAIR = replace(QUIET, relays=2)


def linked(quarter):
    """Return for each relay how many others it gossips with."""
    return [quarter.sizes(node)["contacts"] for node in range(len(quarter.houses))]


def test_line_becomes_a_full_mesh():
    """Relays that know one neighbour each learn the others by their adverts, and dial them with a guard."""
    quarter = Quarter(replace(QUIET, relays=5))
    quarter.run(60)
    learnt = [each for each in quarter.kinds(seen.Dialled) if not each.is_configured]

    assert linked(quarter) == [4] * 5
    assert learnt
    assert all(each.only_public for each in learnt)


def test_parted_relays_cannot_reach_each_other():
    """A dial across a partition fails; afterwards the relays find each other again."""
    quarter = Quarter(PAIR)
    quarter.commons.far_side = frozenset({1})
    quarter.run(20)
    apart = linked(quarter)
    quarter.commons.far_side = frozenset()
    quarter.run(60)

    assert apart == [0, 0]
    assert linked(quarter) == [1, 1]


def test_crash_forgets_everything_but_the_key():
    """A relay that comes back has the same key, an empty memory, and dials its neighbours anew."""
    quarter = Quarter(PAIR)
    device = quarter.device()
    device.come()
    quarter.run(5)
    before = quarter.sizes(1)["presences"]
    keys = [began.key for began in quarter.kinds(seen.RelayBegan)]
    quarter.houses[1].world.crash(1_000_000)
    quarter.run(1.001)
    fresh, again = quarter.sizes(1)["presences"], quarter.kinds(seen.RelayBegan)[-1]
    device.leave()
    quarter.run(40)

    assert (before, fresh) == (1, 0)
    assert (again.node, again.key) == (1, keys[1])
    assert linked(quarter) == [1, 1]


def test_dial_that_meets_nobody_fails_after_a_while():
    """An address of no relay is tried, observed, and given up."""
    quarter = Quarter(PAIR)
    quarter.run(1)
    house = quarter.houses[0]
    house._dial(house.world, "bhumi", Dial("x", "tcp://10.0.0.1:22", only_public=True))
    quarter.run(5)

    assert quarter.kinds(seen.Dialled)[-1] == seen.Dialled(0, "tcp://10.0.0.1:22", True, False)
    assert any(" unreachable bhumi x" in line for line in quarter.lines)


def test_resting_relay_leaves_all_others():
    """In the end the links are ended, and nobody is dialled any more."""
    quarter = Quarter(PAIR)
    quarter.run(5)
    stood = [trunk.other for house in quarter.houses for trunk in house.trunks()]
    for house in quarter.houses:
        house.rest()
    quarter.run(200)

    assert len(stood) == 1
    assert linked(quarter) == [0, 0]
    assert not any(house.trunks() for house in quarter.houses)


def test_relay_has_the_clock_that_it_was_given():
    """What a relay says of itself is dated by its own clock."""
    quarter = Quarter(replace(PAIR, clocks_off_ms=60_000))
    quarter.run(60)
    own = [gave for gave in quarter.kinds(seen.Gave) if gave.slip.address == address_of(gave.node)]
    clocks = [house.clock.offset_us // 1_000_000 for house in quarter.houses]

    assert {gave.node for gave in own} == {0, 1}
    assert all(0 <= gave.slip.issued_at_s - clocks[gave.node] <= 60 for gave in own)
    assert clocks[0] != clocks[1]


def test_sizes_are_observed_while_a_relay_runs():
    """A relay that is down has no sizes."""
    quarter = Quarter(PAIR)
    quarter.run(1)
    quarter.houses[1].world.crash(5_000_000)
    for house in quarter.houses:
        house.measure(settled=False)

    assert [(sized.node, sized.peers_count, sized.settled) for sized in quarter.kinds(seen.Sized)] == [(0, 0, False)]
