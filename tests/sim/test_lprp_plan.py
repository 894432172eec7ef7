"""Plans of LPRP towns are drawn from one generator and say everything."""

import random
from dataclasses import fields

from waystation.sim.lprp_plan import HOSTILE_KINDS, LprpFaults, LprpPlan, PersonHabits, draw_lprp_plan

DRAWN = [draw_lprp_plan(random.Random(seed)) for seed in range(300)]


def test_same_generator_draws_the_same_plan():
    """A plan is a function of its seed."""
    assert draw_lprp_plan(random.Random(7)) == DRAWN[7] != DRAWN[8]


def test_plans_differ_in_everything_that_matters():
    """Over many seeds every choice is made both ways, and every kind of hostile party takes part."""
    assert {plan.hosts for plan in DRAWN} == {2, 3}
    for name in ("rate_limits", "adaptive"):
        assert {getattr(plan, name) for plan in DRAWN} == {False, True}
    assert {kind for plan in DRAWN for kind in plan.hostiles} == set(HOSTILE_KINDS)
    assert {plan.whitelisted for plan in DRAWN} == {0.0, 0.5, 1.0}


def test_every_trouble_stays_away_at_times():
    """Each kind of trouble is absent in some plans and present in others."""
    for name in ("loss", "duplicate", "reorder"):
        rates = [getattr(plan.net, name) for plan in DRAWN]
        assert min(rates) == 0 < max(rates)
    for part, kind in (("person", PersonHabits), ("faults", LprpFaults)):
        for field in fields(kind):
            rates = [getattr(getattr(plan, part), field.name) for plan in DRAWN]
            assert min(rates) == 0 < max(rates) or field.name in {"away_us", "step_ms"}


def test_there_is_always_a_second_host():
    """What one host heard can be replayed at another in every town."""
    assert min(plan.hosts for plan in DRAWN) == 2
    assert min(plan.tenants for plan in DRAWN) >= 2


def test_drawn_hosts_never_rebind_on_relay():
    """The letter of the text lets a recipient move its sender; only tests turn that on."""
    assert not any(plan.rebind_on_relay for plan in DRAWN)


def test_description_names_every_field():
    """The first line of a trace says what the plan is."""
    assert all(f"{field.name}=" in DRAWN[0].describe() for field in fields(LprpPlan))
