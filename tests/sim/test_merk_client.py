"""Clients write, move, and tell what they see on the wire and what their machines make of it."""

from dataclasses import replace

import pytest

from tests.sim.build_merk import QUIET, Quarter
from waystation.sim import merk_observations as seen
from waystation.sim.merk_plan import ClientHabits

TWO = replace(QUIET, nodes=2, clients=2)


def living(seconds, *, has_extensions=True, plan=TWO, **habits):
    """Return what two clients with these habits did in so many seconds, and them."""
    quarter = Quarter(replace(plan, client=ClientHabits(**{"asks": 0.0, "writes_to_nobody": 0.0, **habits})))
    clients = [quarter.client(has_extensions=has_extensions) for _ in range(2)]
    for client in clients:
        client.start(clients)
    quarter.run(seconds)
    return quarter, clients


def test_everything_arrives_and_is_told():
    """On undisturbed links each frame arrives once, is handed on, and its sender is told so."""
    quarter, clients = living(30)
    frames = [each.frame for each in quarter.kinds(seen.Sent)]

    assert len(frames) > 30
    assert {each.frame for each in quarter.kinds(seen.Taken)} >= set(frames[:-2])
    assert {each.code for each in quarter.kinds(seen.Told)} == {0}
    assert all(each.origin == "honest" and each.target == each.key for each in quarter.kinds(seen.Arrived))
    assert sum(client.outcomes["read"] for client in clients) == len(quarter.kinds(seen.Taken))


def test_frames_are_judged_when_they_are_due():
    """Some time after the node has read a frame it is asked for, as owed once the links have stood long enough."""
    quarter, _ = living(60)
    dues = quarter.kinds(seen.Due)

    assert not dues[0].is_owed
    assert all(due.is_owed for due in dues[-10:])
    assert all(due.is_owed for due in quarter.kinds(seen.OutcomeDue)[-5:])


def test_clients_without_extensions_are_told_nothing():
    """Who says no EXT_HELLO is told no outcomes, and owed none."""
    quarter, _ = living(60, has_extensions=False)

    assert quarter.kinds(seen.Told) == quarter.kinds(seen.Extended) == []
    assert not any(due.is_owed for due in quarter.kinds(seen.OutcomeDue))
    assert len(quarter.kinds(seen.Taken)) > 50


def test_writing_to_nobody_fails_and_is_told():
    """Frames for keys that nobody has come back as unknown."""
    quarter, _ = living(30, writes_to_nobody=1.0)

    assert {each.code for each in quarter.kinds(seen.Told)} == {1}
    assert not any(each.is_target_known for each in quarter.kinds(seen.Told))


@pytest.mark.parametrize("habit", ["moves", "doubles", "vanishes"])
def test_habits_make_connections(habit):
    """Moving, doubling and vanishing clients have many connections, and come home in the calm."""
    quarter, clients = living(30, **{habit: 1_000.0, "away_us": 100_000})
    many = quarter.commons.next_line()
    quarter.commons.troubled = False
    for client in clients:
        client.calm()
    quarter.run(10)

    assert many > 5
    assert all(client.node in (0, 1) for client in clients)


def test_keys_and_servers_are_asked_for():
    """Agreement keys that clients are shown are those that their owners advertised."""
    quarter, _ = living(60, asks=1.0)

    assert len(quarter.kinds(seen.KeyShown)) > 10
    assert all(each.is_true for each in quarter.kinds(seen.KeyShown))


def test_unread_connections_are_excused():
    """A client that does not read for a while is owed nothing meanwhile, and reads it all afterwards."""
    quarter, clients = living(20)
    line = clients[0].lines()[0]
    clients[0].hold_up(line, 5_000_000)
    frames = len(quarter.kinds(seen.Taken))
    quarter.run(30)

    assert quarter.commons.where.is_shaky(clients[0].key, quarter.schedule.now - 26_000_000)
    assert len(quarter.kinds(seen.Taken)) > frames


def test_probes_come_true():
    """Everybody within reach is written to, their keys are asked for, and nothing is left to hope for."""
    quarter, clients = living(10)
    quarter.commons.troubled = False
    for client in clients:
        client.probe(clients)
    hopes = len(quarter.commons.hopes)
    quarter.run(10)

    assert hopes == 2 * (2 + 2 + 1)
    assert quarter.commons.hopes == {}


def test_probe_without_a_home_is_a_complaint():
    """Who is nowhere after the faults says so."""
    quarter, clients = living(10)
    clients[0].leave()
    quarter.run(1)
    clients[0].probe(clients)

    assert "has 0 connections" in quarter.kinds(seen.LeftHanging)[0].what


def test_who_leaves_for_good_stays_away():
    """After leaving nobody comes back, and the nodes have forgotten all of them."""
    quarter, clients = living(10)
    for client in clients:
        client.leave()
    quarter.run(30)

    assert [client.lines() for client in clients] == [[], []]
    assert [quarter.sizes(node)["clients"] for node in (0, 1)] == [0, 0]
