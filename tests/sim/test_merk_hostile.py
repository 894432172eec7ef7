"""Hostile clients do no harm to the right relay, whatever their trick."""

import random
from dataclasses import replace

import pytest

from tests.sim.build_merk import QUIET, Quarter
from waystation.protocols.merk.messages import MessageType
from waystation.protocols.merk.refusals import MalformedError
from waystation.protocols.merk.wire import decode_frame, encode_info_frame
from waystation.sim import merk_observations as seen
from waystation.sim.merk_hostile import Hostile, draw_garbage, draw_lie
from waystation.sim.merk_plan import HOSTILE_CLIENTS, ClientHabits

TWO = replace(QUIET, nodes=2, clients=2, client=ClientHabits(writes_to_nobody=0.3))


@pytest.mark.parametrize("kind", HOSTILE_CLIENTS)
def test_relay_survives_every_kind(kind):
    """Honest clients get everything and nothing forged, nobody complains, and who has left is forgotten."""
    quarter = Quarter(TWO)
    clients = [quarter.client() for _ in range(2)]
    hostile = Hostile(quarter.commons, quarter.rng, "10.3.0.1", kind)
    for client in clients:
        client.start(clients)
    hostile.come()
    quarter.run(60)
    hostile.leave()
    quarter.run(1)

    assert {each.origin for each in quarter.kinds(seen.Arrived)} == {"honest"}
    assert all(each.is_theirs for each in quarter.kinds(seen.Taken))
    assert quarter.kinds(seen.LeftHanging) == []
    assert len(quarter.kinds(seen.Taken)) > 50
    assert sum(quarter.sizes(node)["clients"] for node in (0, 1)) == 2


@pytest.mark.parametrize(
    ("kind", "reason", "seconds"),
    [("impostor", "strikes", 60), ("squatter", "bad_answer", 60), ("garbage", "bad_", 60), ("deaf", "not_reading", 80)],
)
def test_bad_manners_have_an_end(kind, reason, seconds):
    """The relay closes the connection, and says why."""
    quarter = Quarter(replace(TWO, nodes=1))
    clients = [quarter.client() for _ in range(2)]
    hostile = Hostile(quarter.commons, random.Random(4), "10.3.0.1", kind)
    for client in clients:
        client.start(clients)
    hostile.come()
    quarter.run(seconds)

    assert any(" close " in line and reason in line for line in quarter.lines)


def test_garbage_is_no_frame_or_no_sense():
    """Most of it cannot be decoded, and the rest are frames of odd kinds."""
    rng, refused = random.Random(1), 0
    for _ in range(300):
        try:
            decode_frame(draw_garbage(rng))
        except MalformedError:
            refused += 1

    assert 200 < refused < 300


def test_lies_are_well_formed():
    """What a liar says can be said on the wire, and is about somebody honest where it is about anybody."""
    quarter = Quarter(TWO)
    key = quarter.client().key
    lies = [draw_lie(quarter.commons, quarter.rng, bytes(32)) for _ in range(100)]

    assert len({type(lie) for lie in lies}) == 7
    assert all(decode_frame(encode_info_frame(lie, bytes(32))).kind == MessageType.NODE_INFO for lie in lies)
    assert {lie.key for lie in lies if hasattr(lie, "key")} == {key}
