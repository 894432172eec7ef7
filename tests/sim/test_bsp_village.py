"""A village joins devices, shares groups along its lines, and knows what everything has cost."""

import random

import pytest

from tests.sim.build_bsp import LINE, TRIANGLE, counts, line_of, village, write
from waystation.protocols.bsp.links import LinkTerms, Mode
from waystation.sim.bsp_village import BspVillage
from waystation.sim.datagram import DatagramSettings
from waystation.sim.invariants import ViolationError
from waystation.sim.schedule import Schedule


def test_everybody_with_a_line_shares():
    """Members share with those at the end of their lines and nobody else."""
    here, group = village(LINE)

    assert {name: len(here.parties[name].device.audience(group.group_id)) for name in "abc"} == {"a": 1, "b": 2, "c": 1}


def test_only_members_share():
    """Who is no member is left out, also when it has a line."""
    here, _ = village(TRIANGLE)
    other = here.group(b"other")
    here.gather(other, "ab")

    assert list(here.parties["a"].device.audience(other.group_id)) == [here.parties["b"].key]
    assert other.group_id not in {each.group_id for each in here.parties["c"].device.groups()}


def test_costs_are_those_of_both_directions():
    """Bytes and records of all lines are added up."""
    here, group = village(mode=Mode.INTERACTIVE)
    ids = write(here, group, count=2, size_bytes=10)
    before = here.last_ms(ids, "ab")
    here.run(5_000)

    assert before is None
    assert here.last_ms(ids, "ab") == 300
    assert here.record_bytes() == 2 * (10 + 140) + 12
    assert counts(here) == (1, 2, 1, 1)
    assert here.quiet_since_ms() == 300
    assert here.now_ms == 5_000


def test_stand_compares_one_group():
    """Members that differ break a law, and those of another group do not matter."""
    here, group = village()
    other = here.group(b"other")
    here.gather(other, "a")
    here.parties["a"].add(other, 1, b"of a alone")
    here.run(1_000)
    here.stand(group)
    line_of(here, "a", "b").cut()
    here.parties["a"].add(group, 1, b"not yet of b")

    with pytest.raises(ViolationError, match="agreed"):
        here.stand(group)


def test_end_of_a_line_is_told_to_both():
    """Both devices know that a line is gone, and what was under way is lost; the next one brings it at once."""
    here, group = village()
    line = line_of(here, "a", "b")
    ids = write(here, group, count=1)
    here.run(50)
    here.down(line)
    here.run(1)
    links = [here.parties[one].device.link_of(here.parties[other].key) for one, other in ("ab", "ba")]
    here.up(line)
    here.run(200)

    assert links == [None, None]
    assert here.last_ms(ids, "ab") == 51 + 100


def test_newest_line_is_spoken_over():
    """Of two lines the newer carries everything; the older takes over when it ends."""
    here, group = village()
    old = line_of(here, "a", "b")
    new = here.line("a", "b", terms=LinkTerms("other", base_ms=1_000))
    write(here, group, count=1)
    here.run(500)
    on_new = (old.tallies["a"].record_bytes, new.tallies["a"].record_bytes > 0)
    here.down(new)
    write(here, group, name="b", count=1, size_bytes=20)
    here.run(500)

    assert on_new == (0, True)
    assert old.tallies["b"].record_bytes > 0
    here.stand(group)


def test_village_lives_by_the_clock_it_is_given():
    """An empty schedule of somebody else's is used all the same, and the generator decides the faults."""
    schedule = Schedule()
    lossy = DatagramSettings(latency_us=100_000, loss=0.5)
    said = []
    for seed in (1, 1, 2):
        here, group = village(seed=seed, settings=lossy)
        write(here, group, count=20)
        here.run(100_000)
        said.append(here.record_bytes())

    assert BspVillage(random.Random(1), schedule=schedule).schedule is schedule
    assert said[0] == said[1] != said[2]
