"""Plans of every protocol are drawn from one generator, make every choice both ways, and say everything."""

import random
from dataclasses import fields, is_dataclass

import pytest

from waystation.sim.bsp.plan import HOSTILE_KINDS as BSP_KINDS
from waystation.sim.bsp.plan import draw_bsp_plan
from waystation.sim.lprp.plan import HOSTILE_KINDS as LPRP_KINDS
from waystation.sim.lprp.plan import draw_lprp_plan
from waystation.sim.merk.plan import HOSTILE_CLIENTS, HOSTILE_NODES, draw_merk_plan
from waystation.sim.plan import Plan, chance, draw_link, draw_rates
from waystation.sim.strata.plan import HOSTILE_KINDS as STRATA_KINDS
from waystation.sim.strata.plan import draw_strata_plan

PLANS = {
    draw_bsp_plan: {"hostiles": BSP_KINDS},
    draw_lprp_plan: {"hostiles": LPRP_KINDS},
    draw_merk_plan: {"hostiles": HOSTILE_CLIENTS, "hostile_nodes": HOSTILE_NODES},
    draw_strata_plan: {"hostiles": STRATA_KINDS},
}
"""What draws a plan, and the kinds of hostile actors in it by field."""

SEEDS = 400
CONSTANT = {"framed", "pieces", "verify_delay_us", "rebind_on_relay", "byte_order"}
"""Choices that a protocol does not make."""


def leaves(plan, path=""):
    """Yield every choice of a plan with its path."""
    for field in fields(plan):
        value = getattr(plan, field.name)
        if is_dataclass(value):
            yield from leaves(value, f"{path}{field.name}.")
        else:
            yield f"{path}{field.name}", value


@pytest.mark.parametrize("draw", PLANS)
def test_same_generator_draws_the_same_plan(draw):
    """A plan is a function of its seed."""
    assert draw(random.Random(7)) == draw(random.Random(7)) != draw(random.Random(8))


@pytest.mark.parametrize("draw", PLANS)
def test_every_choice_is_made_in_several_ways(draw):
    """Over many seeds every choice differs, and every kind of hostile actor takes part."""
    drawn = [draw(random.Random(seed)) for seed in range(SEEDS)]
    chosen = {}
    for plan in drawn:
        for path, value in leaves(plan):
            chosen.setdefault(path, set()).add(value)

    same = {path for path, values in chosen.items() if len(values) == 1}
    assert {path for path in same if path.rpartition(".")[2] not in CONSTANT} == set()
    for name, kinds in PLANS[draw].items():
        assert {kind for plan in drawn for kind in getattr(plan, name)} == set(kinds)


@pytest.mark.parametrize("draw", PLANS)
def test_description_names_every_field(draw):
    """The first line of a trace says what the plan is."""
    plan = draw(random.Random(1))
    assert isinstance(plan, Plan)
    assert plan.describe().count("=") >= len(list(leaves(plan)))


def test_rates_are_off_or_below_their_limit():
    """Each kind of fault is switched off in a good part of the plans, and stays below its limit in the others."""
    rng = random.Random(1)
    rates = [draw_rates(rng, cuts=10.0)["cuts"] for _ in range(SEEDS)]

    assert SEEDS / 4 < rates.count(0.0) < SEEDS / 2
    assert 5.0 < max(rates) < 10.0
    assert chance(rng, 0.0) == 0.0


def test_framed_links_are_never_cut_in_pieces():
    """A message arrives whole; for bytes it is drawn how often they do not."""
    rng = random.Random(1)

    assert {draw_link(rng, framed=True).pieces for _ in range(50)} == {0.1}
    assert {draw_link(rng).pieces for _ in range(50)} == {0.0, 0.1, 0.5}
