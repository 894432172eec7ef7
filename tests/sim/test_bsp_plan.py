"""Plans of BSP towns are drawn from one generator and say everything."""

import random
from dataclasses import fields

from waystation.sim.bsp_plan import HOSTILE_KINDS, MODES, BspFaults, BspPlan, draw_bsp_plan, draw_graph_plan

DRAWN = [draw_bsp_plan(random.Random(seed)) for seed in range(300)]
GRAPHS = [draw_graph_plan(random.Random(seed)) for seed in range(100)]


def reached(start, lines, among):
    """Return which devices lines lead to, through none but ``among``."""
    found = {start}
    for _ in among:
        found |= {b for a, b in lines if a in found and b in among} | {a for a, b in lines if b in found and a in among}
    return found


def test_same_generator_draws_the_same_plan():
    """A plan is a function of its seed."""
    assert draw_bsp_plan(random.Random(7)) == DRAWN[7] != DRAWN[8]
    assert draw_graph_plan(random.Random(7)) == GRAPHS[7] != GRAPHS[8]


def test_plans_differ_in_everything_that_matters():
    """Over many seeds every choice is made both ways, and every kind of hostile peer and mode takes part."""
    for name in ("tells_crash", "renews", "probes", "wired"):
        assert {getattr(plan, name) for plan in DRAWN} == {False, True}
    assert {kind for plan in DRAWN for kind in plan.hostiles} == set(HOSTILE_KINDS)
    assert {mode for plan in DRAWN for mode in plan.modes} == set(MODES)
    assert {group.form for plan in DRAWN for group in plan.groups} == {"opaque", "deps_v1"}
    assert {len(plan.modes) for plan in DRAWN} == set(range(2, 7))
    assert any(not plan.hostiles for plan in DRAWN)


def test_every_trouble_stays_away_at_times():
    """Each kind of trouble is absent in some plans and present in others."""
    for name in ("loss", "duplicate", "reorder"):
        rates = [getattr(plan.net, name) for plan in DRAWN]
        assert min(rates) == 0 < max(rates) < 0.5
    for field in fields(BspFaults):
        rates = [getattr(plan.faults, field.name) for plan in DRAWN]
        assert min(rates) == 0 < max(rates)


def test_groups_hang_together():
    """Every member of a group is joined to the first by lines between members, so that they can agree."""
    for plan in [*DRAWN, *GRAPHS]:
        for group in plan.groups:
            members = set(group.members)
            if len(members) < len(plan.modes):
                assert reached(group.members[0], plan.lines, members) == members
            assert len(members) == len(group.members) == len(group.late_us)
            assert group.late_us[0] == 0


def test_lines_join_everybody():
    """There is a way between any two devices, and no line twice."""
    for plan in [*DRAWN, *GRAPHS]:
        everybody = set(range(len(plan.modes)))
        assert reached(0, plan.lines, everybody) == everybody
        assert len({frozenset(line) for line in plan.lines}) == len(plan.lines)


def test_graphs_are_those_of_scenario_26():
    """Five devices in one group, joining at random; cuts in some, loss in some, nobody hostile in any."""
    assert all(len(plan.modes) == len(plan.groups[0].members) == 5 and not plan.hostiles for plan in GRAPHS)
    for name in ("cuts", "ends"):
        rates = [getattr(plan.faults, name) for plan in GRAPHS]
        assert min(rates) == 0 < max(rates)
    assert min(plan.net.loss for plan in GRAPHS) == 0 < max(plan.net.loss for plan in GRAPHS)
    assert {len(plan.lines) for plan in GRAPHS} >= {4, 10}


def test_streams_are_as_slow_as_datagrams():
    """Latency and jitter of a plan hold for both kinds of lines; streams come in pieces and may have a throughput."""
    for plan in DRAWN:
        assert (plan.link.latency_us, plan.link.jitter_us) == (plan.net.latency_us, plan.net.jitter_us)
        assert plan.link.bytes_per_second == plan.bytes_per_second
    assert {plan.bytes_per_second for plan in DRAWN} > {0, 20_000}


def test_description_names_every_field():
    """The first line of a trace says what the plan is."""
    assert all(f"{field.name}=" in DRAWN[0].describe() for field in fields(BspPlan))
