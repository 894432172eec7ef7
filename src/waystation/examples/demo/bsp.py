"""The BSP part of ``waystation demo``: a chat of three and a node; one goes offline and catches up; then a file.

``examples.demo.run`` calls ``run`` with a started node. Each step checks its result and reports what differs. The SDK
is used as an application would use it.
"""

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

from waystation.examples.chat.format import CHAT, FORMATS_KNOWN
from waystation.examples.chat.room import Room, Said
from waystation.sdk.bsp import ID_BYTES, BspHome, BspPeer, BspUrl, Delivered, Group, PublicKey, Visibility

__all__ = ["BspDemo"]

STEP_TIMEOUT_S: Final = 30.0
NAMES: Final = ("mira", "noor", "omar")
REPLIES: Final = 20
_SHOWN: Final = 4


class _Member:
    """Somebody in the chat, with a device that runs or does not."""

    def __init__(self, folder: Path, name: str, group: Group) -> None:
        self.name = name
        self.home = folder / name
        self._group = group
        self.delivered: list[bytes] = []
        """Identifiers in the order in which this device delivered them, over all its lives."""
        self.peer: BspPeer
        self.room: Room
        self._delivered_event = asyncio.Event()
        self._stack = contextlib.AsyncExitStack()

    async def come(self, *, dials: bool = True) -> None:
        """Start the device; with ``dials`` it connects with the node."""
        self.peer = await self._stack.enter_async_context(BspPeer(self.home, formats=FORMATS_KNOWN, dials=dials))
        self.room = Room(self.peer, self._group, self.name)
        news = self.peer.news()
        task = asyncio.get_running_loop().create_task(self._listen(news))
        self._stack.push_async_callback(_end, task)

    async def go(self) -> None:
        """End the device, and with it its connections."""
        await self._stack.aclose()

    async def until_delivered(self, count: int) -> None:
        """Return once the device has delivered so many messages, over all its lives."""
        async with asyncio.timeout(STEP_TIMEOUT_S):
            while len(self.delivered) < count:
                self._delivered_event.clear()
                await self._delivered_event.wait()

    async def say(self, text: str) -> None:
        """Add a message, and return once it is on this device's disk and delivered."""
        count = len(self.delivered) + 1
        await self.room.say(text)
        await self.until_delivered(count)

    async def _listen(self, news: Any) -> None:
        async for event in news:
            if isinstance(event, Delivered) and self.room.receive(event) is not None:
                self.delivered.append(event.message_id)
                self._delivered_event.set()


class BspDemo:
    """Plays the steps against one running node that is a member of the chat."""

    def __init__(self, folder: Path, say: Callable[[str, str], None], expect: Callable[[bool, str], None]) -> None:
        """Prepare; the group and the members' keys are made here, since the node must know them.

        Args:
            folder: Where identities lie.
            say: Shows who did what.
            expect: Notes what is not as promised.
        """
        self._folder = folder
        self._say = say
        self._expect = expect
        homes = [BspHome(folder / name) for name in NAMES]
        self._keys = [home.key for home in homes]
        self._group = homes[0].profile.group(random.SystemRandom().randbytes(ID_BYTES), b"", CHAT)
        for home in homes:
            home.close()

    @property
    def settings(self) -> tuple[str, ...]:
        """Settings of the node: it is a member, for which the plainer format deps_v1 is enough."""
        members = ",".join(json.dumps(key.hex()) for key in self._keys)
        group = f'client_id="{self._group.client_id.hex()}",descriptor="",format="deps_v1",share_with=[{members}]'
        return (f"bsp.groups=[{{{group}}}]",)

    async def run(self, node: PublicKey, url: str) -> None:
        """Play every step.

        Args:
            node: Key of the node.
            url: Where it listens for BSP.
        """
        for name, key in zip(NAMES, self._keys, strict=True):
            self._acquaint(name, key, node, url)
        async with asyncio.timeout(4 * STEP_TIMEOUT_S), self._members() as (mira, noor, omar):
            await self._talk(mira, noor, omar)
            await self._cut_off(mira, noor, omar)
            await self._return(mira, noor, omar)
            await self._carry(mira, noor, omar)

    def _acquaint(self, name: str, key: PublicKey, node: PublicKey, url: str) -> None:
        """Let a member know the node, which it dials, and the other members, whom it meets by files."""
        home = BspHome(self._folder / name)
        others = [(each, "") for each in self._keys if each != key]
        records = [home.put_group("walks", self._group)]
        for other, place in [(node, BspUrl.parse(url).place), *others]:
            label = "node" if other == node else NAMES[self._keys.index(other)]
            records += [home.put_peer(label, other, place)]
            records += [home.put_share(self._group.group_id, other, Visibility.SHARED)]
        home.commit(records)
        home.close()

    @contextlib.asynccontextmanager
    async def _members(self) -> AsyncIterator[list[_Member]]:
        members = [_Member(self._folder, name, self._group) for name in NAMES]
        try:
            for member in members:
                await member.come()
            yield members
        finally:
            for member in members:
                await member.go()

    async def _talk(self, mira: _Member, noor: _Member, omar: _Member) -> None:
        began = time.perf_counter()
        await mira.say("who comes along on sunday?")
        for member in (mira, noor, omar):
            await member.until_delivered(1)
        took_ms = (time.perf_counter() - began) * 1_000
        self._say("mira", f"asked her group of three; everybody has it after {took_ms:.0f} ms, by way of the node")

    async def _cut_off(self, mira: _Member, noor: _Member, omar: _Member) -> None:
        await omar.go()
        self._say("omar", "is cut off: no connection, his device is down")
        for number in range(REPLIES // 2):
            for speaker, other in ((noor, mira), (mira, noor)):
                await speaker.say(f"{speaker.name}'s thought {number + 1}")
                await other.until_delivered(len(speaker.delivered))
        self._say("noor", f"and mira went on: {REPLIES} messages, each in answer to the one before")

    async def _return(self, mira: _Member, noor: _Member, omar: _Member) -> None:
        await omar.come(dials=False)
        for text in ("I am in!", "shall I bring the map?"):
            await omar.say(text)
        await omar.go()
        self._say("omar", "wrote two messages in a place without a network; they wait on his disk")
        began, before = time.perf_counter(), len(omar.delivered)
        await omar.come()
        total = 1 + REPLIES + 2
        for member in (omar, mira, noor):
            await member.until_delivered(total)
        took_ms = (time.perf_counter() - began) * 1_000
        self._say(
            "omar", f"came back and caught up: {total - before} new to him, 2 of his to the others, {took_ms:.0f} ms"
        )
        self._check_equal(mira, noor, omar)
        for said in mira.room.history()[-_SHOWN:]:
            self._say("mira reads", f"{said.order:>3}. {said.line.nick}: {said.line.text}")

    async def _carry(self, mira: _Member, noor: _Member, omar: _Member) -> None:
        for member in (noor, omar):
            await member.go()
            await member.come(dials=False)
        await omar.say("meet you at the hut")
        path = self._folder / "to-noor.bsp"
        written = await omar.peer.export_file("noor", path)
        size = f"{written.messages_count} messages, {written.size_bytes:,} bytes, sealed"
        self._say("omar", f"has no network again, and puts all that noor may lack into a file: {size}")
        readings = [await noor.peer.import_file(path) for _ in range(2)]
        await noor.until_delivered(len(omar.delivered))
        self._expect([each.new_count for each in readings][-1] == 0, f"a file read twice brought {readings}")
        self._expect(readings[0].refused_count == 0, f"a file was not taken: {readings[0]}")
        self._say("noor", f"read the file, twice to be sure: {readings[0].new_count} new, then {readings[1].new_count}")
        said = noor.room.history()[-1]
        self._expect(said.line.text == "meet you at the hut", f"the file brought {said.line.text!r}")
        await noor.go()
        await noor.come()
        await mira.until_delivered(len(noor.delivered))
        self._check_equal(mira, noor)
        self._say("mira", "has it too, once noor was back: it does not matter by which way a message comes")

    def _check_equal(self, *members: _Member) -> None:
        """Expect equal sets, each message once, and none before what it answers to."""
        sets = [sorted(member.delivered) for member in members]
        self._expect(all(each == sets[0] for each in sets), f"sets differ: {[len(each) for each in sets]}")
        self._expect(len(set(sets[0])) == len(sets[0]), "a message was delivered twice")
        for member in members:
            self._expect(_is_causal(member.room.history()), f"{member.name} saw an answer before what it answers")


def _is_causal(history: list[Said]) -> bool:
    seen: set[bytes] = set()
    for said in history:
        if not seen.issuperset(said.answers):
            return False
        seen.add(said.message_id)
    return True


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
