"""Hostile nodes become peers, play their tricks, and cannot do more than they must be able to."""

import random
from dataclasses import replace

import pytest

from tests.sim.build_merk import QUIET, Quarter
from waystation.protocols.merk.messages import DeliveryCode
from waystation.sim import merk_observations as seen
from waystation.sim.merk_hostile_node import HostileNode
from waystation.sim.merk_plan import HOSTILE_NODES, ClientHabits

TWO = replace(QUIET, nodes=2, clients=3, client=ClientHabits(writes_to_nobody=0.2))


def beset(kind, seconds=60):
    """Return what three clients of two nodes saw while a hostile node stood beside them, and that node."""
    quarter = Quarter(TWO)
    clients = [quarter.client() for _ in range(3)]
    node = HostileNode(quarter.commons, random.Random(5), 0, kind)
    for client in clients:
        client.start(clients)
    node.come()
    quarter.run(seconds)
    return quarter, node


@pytest.mark.parametrize("kind", HOSTILE_NODES)
def test_honest_traffic_goes_on(kind):
    """Frames between honest clients arrive, and what a hostile node makes up is not taken for proved."""
    quarter, node = beset(kind)

    assert len(quarter.kinds(seen.Taken)) > 60
    assert {each.origin for each in quarter.kinds(seen.Arrived)} <= {"honest", "peer"}
    assert all(each.is_theirs or each.auth == "none" for each in quarter.kinds(seen.Taken))
    assert all(each.is_true for each in quarter.kinds(seen.KeyShown))
    node.leave()
    quarter.run(5)
    assert [len(house.linked_keys()) for house in quarter.houses] == [1, 1]


def test_it_becomes_a_peer_of_all():
    """It proves its key like any other, and who learns its address dials it."""
    quarter, node = beset("mute", seconds=30)

    assert [len(house.linked_keys()) for house in quarter.houses] == [2, 2]
    assert any(each.url == node.url for each in quarter.kinds(seen.Dialled))


def test_liar_steals_and_replays():
    """Who says that it has everybody is sent frames, and a replayer sends them on under one number."""
    quarter, _ = beset("replayer")
    stolen = {each.frame for each in quarter.kinds(seen.Stolen)}
    replayed = {each.frame for each in quarter.kinds(seen.Injected)}

    assert stolen
    assert replayed <= stolen


def test_forger_is_heard_and_not_believed():
    """Frames in somebody's name reach clients from a node, and none of them is handed on as proved."""
    quarter, _ = beset("forger", seconds=100)

    assert any(each.origin == "peer" for each in quarter.kinds(seen.Arrived))


def test_advertiser_names_what_is_not_there():
    """It makes nodes dial dead addresses."""
    quarter, _ = beset("advertiser", seconds=100)

    assert any("dead" in each.url for each in quarter.kinds(seen.Dialled))


def test_nobody_reaches_it_once_it_has_left():
    """After leaving it cannot be dialled."""
    _, node = beset("mute", seconds=5)
    here = node.is_there(0)
    node.leave()

    assert here
    assert not node.is_there(0)


def test_stolen_frames_are_answered_or_not():
    """A thief tells that a frame is delivered, or nothing."""
    quarter, _ = beset("liar")
    told = {each.frame: each.code for each in quarter.kinds(seen.Told)}
    stolen = [told[each.frame] for each in quarter.kinds(seen.Stolen) if each.frame in told]

    assert DeliveryCode.DELIVERED in stolen
    assert DeliveryCode.UNKNOWN_TARGET not in stolen
