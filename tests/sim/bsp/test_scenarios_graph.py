"""Scenarios 14 to 17 and 21 of specs/bsp.md section 10: messages that depend on each other, sharing and deletion."""

from itertools import permutations

import pytest

from tests.sim.bsp.build import BOTH, LINE, TRIANGLE, connection_of, counts, list_bytes, listener, network, state_of
from waystation.protocols.bsp.device.links import Mode
from waystation.sim.bsp.observations import State
from waystation.sim.bsp.records import ACK, OFFER, deps_body

PENDING, DELIVERED, INVALID = 1, 2, 3


def told(here, name="a"):
    """Return what an application was told of, in order."""
    return list(here.hosts[name].reported)


def chain(stranger, group, count, first_body=None):
    """Return the records and identifiers of messages of which each depends on the one before."""
    records, ids = [], []
    for number in range(count):
        body = deps_body(ids[-1:], b"%d" % number)
        record, message_id = stranger.invent(group, 1_000 + number, first_body if first_body and not ids else body)
        records.append(record)
        ids.append(message_id)
    return records, ids


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_14_three_generations_in_any_order(order):
    """Three generations are delivered root first, in whichever order they arrive, and acknowledged as they come."""
    here, stranger, group = listener(form="deps_v1")
    records, ids = chain(stranger, group, 3)
    for number in order:
        stranger.say(records[number])
    here.run(200)

    assert told(here) == ids
    assert [state_of(here, "a", each) for each in ids] == [State(DELIVERED, number, True) for number in (1, 2, 3)]
    assert stranger.ids(ACK) == [ids[number] for number in order]


@pytest.mark.parametrize("step", [1, -1], ids=["root first", "root last"])
def test_15_chain_whose_root_is_invalid(step):
    """What an invalid message makes invalid loses its body and is acknowledged all the same, now and later."""
    here, stranger, group = listener(form="deps_v1")
    records, ids = chain(stranger, group, 1_000, first_body=b"\x02 is no version of deps_v1")
    stranger.say(*records[::step], wait_ms=300)
    late, late_id = stranger.invent(group, 5_000, deps_body([ids[499]], b"late"))
    stranger.say(late, wait_ms=300)

    assert told(here) == []
    assert set(here.hosts["a"].states().values()) == {State(INVALID, 0, False)}
    assert len(here.hosts["a"].states()) == 1_001
    assert sorted(stranger.ids(ACK)) == sorted([*ids, late_id])
    assert all(here.hosts["a"].device.body(group.group_id, each) is None for each in ids)


def test_15_invalid_chain_stays_over_a_restart():
    """A restart brings no invalid message back to life."""
    here, stranger, group = listener(form="deps_v1")
    records, ids = chain(stranger, group, 20, first_body=b"\x02")
    stranger.say(*records, wait_ms=300)
    here.hosts["a"].crash()
    here.hosts["a"].start()
    late, late_id = stranger.invent(group, 5_000, deps_body(ids[9:10], b"late"))
    stranger.say(late, wait_ms=300)

    assert {each.state for each in here.hosts["a"].states().values()} == {INVALID}
    assert late_id in stranger.ids(ACK)


def test_16_diamond():
    """A leaf waits for both arms."""
    here, stranger, group = listener(form="deps_v1")
    root, root_id = stranger.invent(group, 1, deps_body([], b"root"))
    (left, left_id), (right, right_id) = (stranger.invent(group, 2, deps_body([root_id], arm)) for arm in (b"l", b"r"))
    leaf, leaf_id = stranger.invent(group, 3, deps_body([left_id, right_id], b"leaf"))
    stranger.say(leaf, left, root)
    before = state_of(here, "a", leaf_id)
    stranger.say(right)

    assert before == State(PENDING, 0, True)
    assert told(here) == [root_id, left_id, right_id, leaf_id]


def test_16_diamond_of_equals_goes_by_time_and_identifier():
    """What becomes ready at one moment is delivered oldest first, then by identifier."""
    here, stranger, group = listener(form="deps_v1")
    root, root_id = stranger.invent(group, 1, deps_body([], b"root"))
    arms = [stranger.invent(group, time, deps_body([root_id], b"%d" % time)) for time in (9, 5, 7, 3)]
    twins = [stranger.invent(group, 7, deps_body([root_id], b"twin %d" % number)) for number in range(3)]
    stranger.say(*(record for record, _ in arms + twins))
    stranger.say(root)

    sevens = sorted([arms[2][1], *(each for _, each in twins)])
    assert told(here) == [root_id, arms[3][1], arms[1][1], *sevens, arms[0][1]]


def own_chain(here, group, count, *, share):
    """Let device a write messages of which each depends on the one before."""
    ids = []
    for number in range(count):
        ids.append(here.hosts["a"].add(group, 1_000 + number, deps_body(ids[-1:], b"%d" % number), share=share))
    here.run(500)
    return ids


def test_17_sharing_the_leaf_of_a_chain():
    """Nothing of a chain goes out before its last message is shared; then all of it does, in one offer."""
    here, group = network(mode=Mode.INTERACTIVE, form="deps_v1")
    ids = own_chain(here, group, 1_000, share=False)
    kept_back = here.record_bytes()
    here.hosts["a"].share_message(group.group_id, ids[-1])
    here.run(1_000)

    offered = connection_of(here, "a", "b").tallies["a"]
    assert kept_back == 0
    assert counts(here) == (1, 1_000, 1, 1)
    assert offered.bytes_by_kind[OFFER] == list_bytes(1_000)
    assert told(here, "b") == ids
    here.stand(group)


def test_17_sharing_in_the_middle_keeps_the_rest_back():
    """What depends on a shared message is not shared with it; sharing twice changes nothing."""
    here, group = network(form="deps_v1")
    ids = own_chain(here, group, 10, share=False)
    for _ in range(2):
        here.hosts["a"].share_message(group.group_id, ids[4])
        here.run(500)

    assert told(here, "b") == ids[:5]
    assert counts(here) == (1, 5, 0, 0)


@BOTH
@pytest.mark.parametrize("edges", [LINE, TRIANGLE], ids=["connection", "triangle"])
def test_21_deleted_message_comes_from_another(mode, edges):
    """Who deleted a message sends it no more; who lacks it gets it from somebody who kept it."""
    here, group = network(edges, mode)
    for one, other in edges:
        if other == "c":
            connection_of(here, one, "c").cut()
    message_id = here.hosts["a"].add(group, 1, b"gone soon")
    here.run(5_000)
    here.hosts["a"].delete(group.group_id, message_id)
    said_by_a = {
        connection: len(connection.tallies["a"].copies[message_id])
        for connection in here.connections
        if "a" in connection.names
    }
    here.run(100)
    for connection in here.connections:
        connection.heal()
    here.run(200_000)

    assert state_of(here, "a", message_id) == State(DELIVERED, 1, False)
    assert state_of(here, "c", message_id) == State(DELIVERED, 1, True)
    assert {connection: len(connection.tallies["a"].copies[message_id]) for connection in said_by_a} == said_by_a
