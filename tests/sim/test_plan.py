"""Plans of every protocol are drawn from one generator, make every choice both ways, and say everything."""

import random
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated

import pytest

from waystation.sim.bsp.plan import HOSTILE_KINDS as BSP_KINDS
from waystation.sim.bsp.plan import draw_bsp_plan
from waystation.sim.lprp.plan import HOSTILE_KINDS as LPRP_KINDS
from waystation.sim.lprp.plan import draw_lprp_plan
from waystation.sim.merk.plan import HOSTILE_CLIENTS, HOSTILE_NODES, draw_merk_plan
from waystation.sim.plan import Plan, between, chance, draw, draw_link, draw_rates, each_of, up_to
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
CONSTANT = {"framed", "pieces", "verify_delay_us", "rebind_on_relay", "byte_order", "retention_mib"}
"""Choices that a protocol does not make."""


def leaves(plan, path=""):
    """Yield every choice of a plan with its path."""
    for field in fields(plan):
        value = getattr(plan, field.name)
        if is_dataclass(value):
            yield from leaves(value, f"{path}{field.name}.")
        else:
            yield f"{path}{field.name}", value


@pytest.mark.parametrize("draw_plan", PLANS)
def test_same_generator_draws_the_same_plan(draw_plan):
    """A plan is a function of its seed."""
    assert draw_plan(random.Random(7)) == draw_plan(random.Random(7)) != draw_plan(random.Random(8))


@pytest.mark.parametrize("draw_plan", PLANS)
def test_every_choice_is_made_in_several_ways(draw_plan):
    """Over many seeds every choice differs, and every kind of hostile actor takes part."""
    drawn = [draw_plan(random.Random(seed)) for seed in range(SEEDS)]
    chosen = {}
    for plan in drawn:
        for path, value in leaves(plan):
            chosen.setdefault(path, set()).add(value)

    same = {path for path, values in chosen.items() if len(values) == 1}
    assert {path for path in same if path.rpartition(".")[2] not in CONSTANT} == set()
    for name, kinds in PLANS[draw_plan].items():
        assert {kind for plan in drawn for kind in getattr(plan, name)} == set(kinds)


@pytest.mark.parametrize("draw_plan", PLANS)
def test_description_names_every_field(draw_plan):
    """The first line of a trace says what the plan is."""
    plan = draw_plan(random.Random(1))
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


@dataclass(frozen=True)
class _Inner:
    rate: Annotated[float, up_to(10.0)] = 0.0


@dataclass(frozen=True)
class _Outer:
    count: Annotated[int, between(1, 3)]
    double: Annotated[int, lambda _rng, drawn: 2 * drawn["count"]]
    share: Annotated[float, between(1.0, 2.0)]
    inner: Annotated[_Inner, each_of(_Inner)]
    name: str = "fixed"


def test_fields_are_drawn_in_their_order_as_their_annotations_say():
    """A field may depend on those before it; what is given is not drawn, and what says nothing is as by default."""
    rng = random.Random(1)
    drawn = [draw(_Outer, rng) for _ in range(SEEDS)]

    assert {each.count for each in drawn} == {1, 2, 3}
    assert all(each.double == 2 * each.count and 1.0 <= each.share <= 2.0 for each in drawn)
    assert {each.inner.rate == 0.0 for each in drawn} == {True, False}
    assert {each.name for each in drawn} == {"fixed"}
    assert draw(_Outer, rng, count=9, name="given").double == 18
