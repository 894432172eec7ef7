"""Three nodes in a line and in a ring: what `make soak` tries for long (soak/merk/mesh.py), tried once."""

import asyncio
import os
import random

import pytest

from soak.invariants import eventually
from soak.merk.actors import QUIET_S, Actor, Ledger, SentMessage
from soak.merk.mesh import FILE_BYTES
from soak.merk.nodes import SHAPES, mesh, start_all, until_meshed
from waystation.sdk.merk import Mode, Outcome

WITHIN_S = 30.0


@pytest.fixture(scope="module", params=SHAPES)
def nodes(request, tmp_path_factory):
    """Three nodes that are all linked, those at the ends of the line by discovery."""
    nodes = mesh(tmp_path_factory.mktemp("mesh"), request.param)

    async def link():
        await start_all(nodes)
        await until_meshed(nodes)

    try:
        asyncio.run(link())
        yield nodes
        for node in nodes:
            node.stop()
    finally:
        for node in nodes:
            node.close()


@pytest.fixture
def ledger(tmp_path):
    """An empty ledger, with a file to send."""
    (tmp_path / "file.bin").write_bytes(os.urandom(FILE_BYTES))
    return Ledger(tmp_path / "file.bin")


def live(nodes, ledger, scenario, *, first=0):
    """Run a scenario with one actor at each node, judge it, and return what it returns."""

    async def run():
        actors = [Actor(first + number, ledger, nodes, random.Random(number)) for number in range(3)]
        async with asyncio.timeout(WITHIN_S):
            for actor in actors:
                await actor.come()
                await actor.client.reached()
            found = await scenario(*actors)
            for actor in actors:
                await actor.go()
            return found

    found = asyncio.run(run())
    ledger.judge()
    return found


def test_everybody_reaches_everybody(nodes, ledger):
    """Text, JSON and a file of 5 MiB arrive encrypted, once, at every node from every other."""

    async def scenario(*actors):
        pairs = [(one, other) for one in actors for other in actors if one is not other]
        said = [one.send(other, kind=kind) for one, other in pairs for kind in ("text", "json")]
        said += [one.send(other, kind="file") for one, other in zip(actors, actors[1:] + actors[:1], strict=True)]
        outcomes = await asyncio.gather(*said)
        await eventually(lambda: len(ledger.received) == len(outcomes), "everything received", 5)
        return outcomes

    outcomes = live(nodes, ledger, scenario)

    assert outcomes == [Outcome.DELIVERED] * 15
    assert set(ledger.received.values()) == {1}


def test_nobody_is_reported_by_every_node(nodes, ledger):
    """Whoever writes to a key that no node has is told so."""

    async def scenario(*actors):
        return [await actor.send(None, mode=Mode.SIGNED) for actor in actors]

    assert live(nodes, ledger, scenario) == [Outcome.UNKNOWN_TARGET] * 3


def test_who_moves_is_found_again(nodes, ledger):
    """Somebody is written to all the time, goes to another node, and is reached there; nothing comes twice."""

    async def scenario(alice, bob, carol):
        left = carol.node
        await alice.reach(carol, mode=Mode.SIGNED)
        moving = asyncio.create_task(carol.move())
        while not moving.done():
            await bob.send(carol, mode=Mode.SIGNED)
        await alice.reach(carol, mode=Mode.SIGNED)
        await bob.reach(carol, mode=Mode.SIGNED)
        return carol.node is not left

    assert live(nodes, ledger, scenario, first=3)
    assert set(ledger.received.values()) == {1}


def test_a_killed_node_is_missed_and_comes_back(nodes, ledger):
    """The other two go on meanwhile; who writes to its client is told; started again, it delivers as before."""

    async def scenario(alice, bob, carol):
        await alice.reach(bob, mode=Mode.SIGNED)
        bob.disturb()
        bob.node.kill()
        missed, reached = await alice.send(bob), await alice.send(carol)
        starting = asyncio.create_task(asyncio.to_thread(bob.node.start))
        while not starting.done():
            await alice.send(bob, mode=Mode.SIGNED)
        await alice.reach(bob, mode=Mode.SIGNED)
        await bob.reach(carol, mode=Mode.SIGNED)
        return missed, reached, await carol.send(bob, kind="file")

    missed, reached, file = live(nodes, ledger, scenario, first=6)

    assert missed in {Outcome.UNKNOWN_TARGET, Outcome.LOOKUP_TIMEOUT}
    assert (reached, file) == (Outcome.DELIVERED, Outcome.DELIVERED)


@pytest.mark.parametrize(
    ("outcome", "received_times", "to_nobody", "complaint"),
    [
        (Outcome.DELIVERED, 2, False, "received twice"),
        (Outcome.DELIVERED, 0, False, "message 1"),
        (Outcome.QUEUE_FULL, 0, False, "undisturbed"),
        (Outcome.DELIVERED, 0, True, "delivered to an unknown key"),
        (Outcome.LOOKUP_TIMEOUT, 0, True, "undisturbed"),
        (None, 0, False, "have no outcome"),
    ],
)
def test_the_ledger_sees_what_is_wrong(ledger, outcome, received_times, to_nobody, complaint):
    """Each thing that must not happen is a complaint, and would be none otherwise."""
    one, other = (Actor(number, ledger, [object()], random.Random(number)) for number in range(2))
    right = SentMessage(one, other, "0", 2 * QUIET_S, known_at=2 * QUIET_S, outcome=Outcome.DELIVERED)
    known_at = None if outcome is None else 2 * QUIET_S
    wrong = SentMessage(one, None if to_nobody else other, "1", 2 * QUIET_S, known_at=known_at, outcome=outcome)
    ledger.sent.append(right)
    ledger.received[1, "0"] += 1

    assert ledger.judge().startswith("1 sent (accepted 1; 0 files), 1 owed")
    ledger.sent.append(wrong)
    ledger.received[1, "1"] += received_times
    with pytest.raises(AssertionError, match=complaint):
        ledger.judge()
