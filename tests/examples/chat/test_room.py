"""Laws of a chat as a program holds it."""

import asyncio

import pytest

from tests.sdk.bsp.build import acquaint, delivered, devices
from waystation.core.errors import LocalError
from waystation.examples.chat.format import CHAT, FORMATS_KNOWN, Line, write_line
from waystation.examples.chat.room import Room
from waystation.sdk.bsp import State, deps_v1_body


def texts(room):
    """Return what was said, in order."""
    return [said.line.text for said in room.history()]


def test_answers_stand_behind_what_they_answer_to(tmp_path):
    """Each message answers to all that its author had seen and nobody had answered; both sides read one order of it."""

    async def main():
        async with devices(tmp_path, 2, formats=FORMATS_KNOWN) as (alice, bob):
            group = await alice.create_group("chat", format=CHAT)
            await acquaint(alice, bob, group)
            mine, theirs = Room(alice, group, "alice"), Room(bob, group, "bob")
            first = await mine.say("one")
            second = await theirs.say("two")
            news = alice.news()
            bob.connect(alice.key, await alice.listen())
            await delivered(news, 1)
            mine = Room(alice, group, "alice")
            both = await mine.say("three")
            third = await mine.say("four")
            return {first.message_id, second.message_id}, both, third, mine.history(2), texts(mine)

    heads, both, third, behind, order = asyncio.run(main())

    assert set(both.dependencies) == heads
    assert third.dependencies == (both.message_id,)
    assert [said.line for said in behind] == [Line("alice", "three"), Line("alice", "four")]
    assert order[2:] == ["three", "four"]


def test_answer_is_later_than_a_message_from_the_future(tmp_path):
    """Whoever answers somebody whose clock is ahead writes a later time still, so that the answer is valid."""

    async def main():
        async with devices(tmp_path, 2, formats=FORMATS_KNOWN) as (alice, bob):
            group = await alice.create_group("chat", format=CHAT)
            await acquaint(alice, bob, group)
            ahead = (
                await alice.send(group, write_line(Line("alice", "from 2100"), []), timestamp=4_102_444_800_000)
            ).message
            out = await alice.export_file(bob.key, tmp_path / "out")
            await bob.import_file(out.path)
            answer = await Room(bob, group, "bob").say("really?")
            back = await bob.export_file(alice.key, tmp_path / "back")
            await alice.import_file(back.path)
            return ahead, answer, alice.message(group, answer.message_id).state

    ahead, answer, state = asyncio.run(main())

    assert (answer.timestamp, answer.dependencies) == (ahead.timestamp + 1, (ahead.message_id,))
    assert state is State.DELIVERED


def test_message_that_is_no_line_of_a_chat_is_invalid_at_the_reader(tmp_path):
    """What a node that knows only deps_v1 lets pass is invalid for everybody who chats, and acknowledged."""

    async def main():
        async with devices(tmp_path, 2, formats=FORMATS_KNOWN) as (alice, bob):
            group = await alice.create_group("chat", format=CHAT)
            await acquaint(alice, bob, group)
            await bob.leave(group)
            await bob.join(group._replace(format="deps_v1"))
            await bob.share(group, alice.key)
            bad = (await bob.send(group, deps_v1_body([], b"no json"))).message
            out = await bob.export_file(alice.key, tmp_path / "out")
            await alice.import_file(out.path)
            return alice.message(group, bad.message_id).state, texts(Room(alice, group, "alice"))

    assert asyncio.run(main()) == (State.INVALID, [])


def test_deleted_line_is_passed_over_and_still_answered(tmp_path):
    """A message whose body was deleted is not shown, and what comes next answers to it all the same."""

    async def main():
        async with devices(tmp_path, 1, formats=FORMATS_KNOWN) as (alice,):
            group = await alice.create_group("chat", format=CHAT)
            room = Room(alice, group, "alice")
            first = await room.say("secret")
            await alice.delete(group, first.message_id)
            again = Room(alice, group, "alice")
            second = await again.say("next")
            return texts(again), second.dependencies == (first.message_id,)

    assert asyncio.run(main()) == (["next"], True)


def test_empty_text_is_not_said(tmp_path):
    """What is out of bounds is refused before anything is written."""

    async def main():
        async with devices(tmp_path, 1, formats=FORMATS_KNOWN) as (alice,):
            group = await alice.create_group("chat", format=CHAT)
            room = Room(alice, group, "alice")
            with pytest.raises(LocalError):
                await room.say("")
            return texts(room)

    assert asyncio.run(main()) == []
