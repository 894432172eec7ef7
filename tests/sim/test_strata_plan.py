"""Plans of Strata worlds are drawn from one generator and say everything."""

import random
from dataclasses import fields

from waystation.sim.strata_plan import HOSTILE_KINDS, StrataPlan, draw_strata_plan

DRAWN = [draw_strata_plan(random.Random(seed)) for seed in range(300)]


def test_same_generator_draws_the_same_plan():
    """A plan is a function of its seed."""
    assert draw_strata_plan(random.Random(7)) == DRAWN[7] != DRAWN[8]


def test_plans_differ_in_everything_that_matters():
    """Over many seeds every choice is made both ways, and every kind of hostile peer takes part."""
    assert {plan.relays for plan in DRAWN} == {1, 2}
    for name in ("mutual", "hostile_upstream", "rate_limits", "announces"):
        assert {getattr(plan, name) for plan in DRAWN} == {False, True}
    assert {kind for plan in DRAWN for kind in plan.hostiles} == set(HOSTILE_KINDS)
    for name in ("drops", "restarts", "begins_anew", "leaves_mid_page", "mangles", "stalls"):
        rates = [getattr(plan.reader, name) for plan in DRAWN]
        assert min(rates) == 0 < max(rates)


def test_links_carry_whole_messages():
    """Strata speaks WebSocket, whose messages are never cut."""
    assert all(plan.link.framed for plan in DRAWN)


def test_only_pairs_read_each_other():
    """One relay alone has nobody to read."""
    assert not any(plan.mutual and plan.relays == 1 for plan in DRAWN)


def test_description_names_every_field():
    """The first line of a trace says what the plan is."""
    assert all(f"{field.name}=" in DRAWN[0].describe() for field in fields(StrataPlan))
