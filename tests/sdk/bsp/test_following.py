"""Laws of waiting at a BSP peer, between two peers that meet by files."""

import asyncio

import pytest

from tests.sdk.bsp.build import acquaint, peer_in
from waystation.sdk.bsp import Outcome
from waystation.sdk.errors import ClosedError

UNTIL_S = 10


def run(scenario):
    """Run a scenario within ``UNTIL_S``."""

    async def bounded():
        async with asyncio.timeout(UNTIL_S):
            return await scenario()

    return asyncio.run(bounded())


async def hand_over(one, other, path):
    """Carry what is due for ``other`` there by a file, and its acknowledgement back."""
    for giver, taker in ((one, other), (other, one)):
        if (await giver.export_file(taker.key, path, replace=True)).path is not None:
            await taker.import_file(path)


def test_messages_come_in_their_order_from_where_a_program_was(tmp_path):
    """``after`` begins with what is here already; without it only what is delivered from now on comes."""

    async def scenario():
        async with peer_in(tmp_path / "alice", 1) as alice:
            group = await alice.create_group("talk")
            for body in (b"1", b"2", b"3"):
                await alice.send(group, body)
            old, fresh = alice.messages("talk", after=1), alice.messages()
            seen = [(await anext(old)).body, (await anext(old)).body]
            await alice.send(group, b"4")
            return seen, (await anext(old)).body, (await anext(fresh)).body

    assert run(scenario) == ([b"2", b"3"], b"4", b"4")


def test_messages_of_another_group_are_left_out(tmp_path):
    """A program that reads one group sees no other, also of groups that are joined later."""

    async def scenario():
        async with peer_in(tmp_path / "alice", 1) as alice:
            await alice.create_group("one")
            one, every = alice.messages("one"), alice.messages()
            await alice.create_group("two")
            await alice.send("two", b"second")
            await alice.send("one", b"first")
            return (await anext(one)).body, {(await anext(every)).body for _ in range(2)}

    assert run(scenario) == (b"first", {b"second", b"first"})


def test_settled_waits_until_the_peers_hold_it(tmp_path):
    """What was sent is stored at once, and settled with the acknowledgement of the peer."""

    async def scenario():
        async with peer_in(tmp_path / "alice", 1) as alice, peer_in(tmp_path / "bob", 2) as bob:
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            sent = await alice.send(group, b"hello")
            settling = asyncio.create_task(sent.settled())
            await asyncio.sleep(0)
            before = settling.done()
            await hand_over(alice, bob, tmp_path / "file.bsp")
            return sent.outcome, before, await settling

    assert run(scenario) == (Outcome.STORED, False, Outcome.SETTLED)


def test_message_that_nobody_shares_is_settled(tmp_path):
    """There is no peer to wait for."""

    async def scenario():
        async with peer_in(tmp_path / "alice", 1) as alice:
            await alice.create_group("talk")
            return await (await alice.send("talk", b"alone")).settled()

    assert run(scenario) is Outcome.SETTLED


def test_closing_ends_what_waits(tmp_path):
    """An iterator ends; who waits for peers is told that they can be waited for no more."""

    async def scenario():
        async with peer_in(tmp_path / "alice", 1) as alice, peer_in(tmp_path / "bob", 2) as bob:
            group = await alice.create_group("talk")
            await acquaint(alice, bob, group)
            sent, messages = await alice.send(group, b"hello"), alice.messages()
            waiting = asyncio.create_task(sent.settled()), asyncio.create_task(anext(messages, None))
            await asyncio.sleep(0)
            await alice.aclose()
            with pytest.raises(ClosedError, match="while it waited"):
                await waiting[0]
            return await waiting[1]

    assert run(scenario) is None
