"""Hostile peers do what they are for, and relays survive it."""

import random
from dataclasses import replace

import pytest

from tests.sim.build_strata import QUIET, Quarter
from waystation.protocols.strata.canonical import parse
from waystation.protocols.strata.packet import read_packet
from waystation.protocols.strata.refusals import RefusedError
from waystation.sim import strata_observations as seen
from waystation.sim.strata_commons import Author
from waystation.sim.strata_hostile import Forger, Hostile
from waystation.sim.strata_plan import HOSTILE_KINDS


@pytest.mark.parametrize("kind", HOSTILE_KINDS)
def test_relay_survives_every_kind(kind):
    """Nothing forged is stored, nobody is complained about, and who has left is forgotten."""
    quarter = Quarter(replace(QUIET, hostiles=(kind,)))
    for number in range(5):
        quarter.packet(f"post {number}")
    hostile = Hostile(quarter.commons, quarter.rng, "10.3.0.1", kind)

    hostile.come()
    quarter.run(100)
    hostile.leave()
    quarter.run(5)

    stored = quarter.stored()
    assert all(quarter.commons.made[packet_id].canonical == text for packet_id, text in stored.items())
    assert bool(stored) is (kind == "flood")
    assert quarter.kinds(seen.LeftHanging) == []
    assert quarter.world.sizes()["strata"]["connections"] == 0


def test_no_forgery_is_what_somebody_made():
    """Every trick gives a text that differs from all that was made, and most are packets to look at."""
    quarter = Quarter()
    made = {quarter.packet(f"post {number}").canonical for number in range(5)}
    forger, readable = Forger(quarter.commons, random.Random(3)), 0
    for _ in range(200):
        text = forger.forge()
        assert text not in made
        try:
            read_packet(parse(text), 262_144)
        except RefusedError:
            continue
        readable += 1

    assert readable > 100


def test_forger_without_a_victim_sends_junk():
    """Before anybody has published there is nothing to forge."""
    assert Forger(Quarter().commons, random.Random(3)).forge() == b"{}"


def test_authors_are_their_first_key():
    """An identity is a self-certifying DID, whatever keys come later."""
    author = Author(random.Random(1))

    assert author.did.startswith("did:strata:z")
    assert author.next_key() != author.key
