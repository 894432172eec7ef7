"""Plans are drawn from the seed, and trouble is switched off as often as it should be."""

import random
from dataclasses import asdict

from waystation.sim.plan import HOSTILE_KINDS, draw_plan


def plans(count=300):
    return [draw_plan(random.Random(seed)) for seed in range(count)]


def test_one_seed_draws_one_plan():
    """The same seed draws the same plan."""
    assert draw_plan(random.Random(4)) == draw_plan(random.Random(4))
    assert draw_plan(random.Random(4)) != draw_plan(random.Random(5))


def test_every_trouble_is_on_and_off():
    """Swarm: each kind takes part in some plans and not in others."""
    for part in ("faults", "sender", "device"):
        drawn = [asdict(getattr(plan, part)) for plan in plans()]
        for name, value in drawn[0].items():
            if isinstance(value, float) and name != "keeps_connection":
                absent = sum(1 for habits in drawn if habits[name] == 0.0)
                assert 0.25 < absent / len(drawn) < 0.55, name


def test_every_hostile_kind_appears():
    """All tricks are played by some seed, and some seeds are without any."""
    drawn = plans()

    assert {kind for plan in drawn for kind in plan.hostiles} == set(HOSTILE_KINDS)
    assert any(not plan.hostiles for plan in drawn)


def test_largest_frame_passes_within_the_frame_timer():
    """No plan has a link on which an honest device could not send its largest I_AM within 10 s."""
    for plan in plans():
        link = plan.link
        frame_bytes = 256 * 32 + 16 * (plan.payload_bytes[1] + 100)
        window_us = 2 * (link.latency_us + link.jitter_us)
        needed_us = frame_bytes * window_us // link.window_bytes
        if link.bytes_per_second:
            needed_us += frame_bytes * 1_000_000 // link.bytes_per_second
        assert needed_us < 10_000_000


def test_description_names_every_choice():
    """A trace begins with all that was drawn."""
    plan = plans(1)[0]

    assert all(f"{name}=" in plan.describe() for name in asdict(plan))
