"""Plans of open worlds are drawn from their generator and nothing else, and switch trouble off."""

import random
from dataclasses import replace

from tests.sim.build_bhumi_open import BROKEN, LIED_TO, QUIET, WORLDS
from waystation.sim.bhumi_open_plan import (
    CLOCK_OFF_MAX_MS,
    HOSTILE_CLIENTS,
    HOSTILE_RELAYS,
    OpenDeviceHabits,
    OpenFaults,
    draw_large_plan,
    draw_open_plan,
)

PLANS = [draw_open_plan(random.Random(seed)) for seed in range(400)]


def test_one_generator_has_one_plan():
    """The same draws give the same plan, and its line names every choice."""
    plan = draw_open_plan(random.Random(5))

    assert plan == draw_open_plan(random.Random(5))
    assert plan != draw_open_plan(random.Random(6))
    assert plan.describe().startswith(f"relays={plan.relays} topology={plan.topology} ")


def test_about_a_quarter_of_all_worlds_has_no_trouble():
    """Only without trouble can be said how many look-ups must be right."""
    quiet = [plan for plan in PLANS if plan.is_quiet]

    assert 60 < len(quiet) < 160
    assert all(plan.faults == OpenFaults() and not plan.device.vanishes for plan in quiet)


def test_every_kind_of_trouble_takes_part_somewhere():
    """Each hostile kind, each fault and the largest difference of clocks occur in some plan."""
    assert {kind for plan in PLANS for kind in plan.hostiles} == set(HOSTILE_CLIENTS)
    assert {kind for plan in PLANS for kind in plan.hostile_relays} == set(HOSTILE_RELAYS)
    assert all(any(getattr(plan.faults, name) for plan in PLANS) for name in OpenFaults.__dataclass_fields__)
    assert max(plan.clocks_off_ms for plan in PLANS) == CLOCK_OFF_MAX_MS


def test_some_relay_always_tells_its_address():
    """Devices have somewhere to go."""
    assert all(0 not in plan.hidden and len(plan.hidden) < plan.relays for plan in PLANS)


def test_large_world_has_fifty_relays_and_five_hundred_devices():
    """What one seed in fifty is."""
    plan = draw_large_plan(random.Random(1))

    assert (plan.relays, plan.devices) == (50, 500)
    assert plan == draw_large_plan(random.Random(1))


def test_quiet_is_what_has_no_trouble_of_any_kind():
    """One fault, one enemy, or devices that vanish make a world loud."""
    assert QUIET.is_quiet
    assert not any(plan.is_quiet for plan in (BROKEN, LIED_TO, replace(QUIET, hostile_relays=("mute",))))
    assert not replace(QUIET, device=OpenDeviceHabits(vanishes=1.0)).is_quiet
    assert len(set(WORLDS)) == len(WORLDS)
