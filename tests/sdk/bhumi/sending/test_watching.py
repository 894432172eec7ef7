"""Laws of sending.watching: a peer that leaves or comes back is reported, over whatever its relay does meanwhile."""

import asyncio
import random

import pytest

from tests.sdk.build import ALICE, BOB, ScriptedRelay
from tests.server.build import eventually
from waystation.core.errors import LocalError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import extension_wire, messages
from waystation.protocols.bhumi.extension_messages import Watched, WatchState
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.sdk.bhumi.sending.watching import PLACES_MAX, WATCHES_MAX, Watching
from waystation.transport.dial import RelayUrl

PEERS = [KeyPair.from_seed(number.to_bytes(32, "big")).public for number in range(1, 20)]


class WatchingRelay(ScriptedRelay):
    """Agrees on watches, and reports what the test says."""

    def __init__(self, features=Feature.WATCH):
        super().__init__()
        self._features = features

    def received(self, pipe, data):
        before = len(self.frames)
        super().received(pipe, data)
        for peer, frame_type, _ in self.frames[before:]:
            if frame_type == FrameType.OPTIONS:
                self.send(peer, messages.Options(self._features))

    def report(self, connection, key, state):
        """Report a device's state on one connection."""
        self.pipes[connection].write([extension_wire.encode_extension(Watched(key.public, state))])


def run(story, *relays):
    """Run ``story`` with a watching sender and its notes."""

    async def scenario():
        notes = []
        places = [RelayUrl.parse(relay.url) for relay in relays]
        watching = Watching(
            lambda _peer: places, lambda peer, online: notes.append((peer, online)), None, 5, random.Random(1)
        )
        try:
            return await story(watching, notes)
        finally:
            await watching.close()

    return scenario()


def test_leaving_and_coming_back_are_noted():
    """What the relay reports is noted, in its order; a report of somebody else is not."""

    async def scenario():
        async with WatchingRelay() as relay:

            async def story(watching, notes):
                watching.begin(ALICE.public)
                ((connection, _),) = await relay.wait_for(FrameType.WATCH)
                for key, state in ((ALICE, WatchState.ONLINE), (BOB, WatchState.OFFLINE), (ALICE, WatchState.OFFLINE)):
                    relay.report(connection, key, state)
                await eventually(lambda: len(notes) == 2, "both reports")
                return notes

            return await run(story, relay)

    assert asyncio.run(scenario()) == [(ALICE.public, True), (ALICE.public, False)]


def test_watch_is_renewed_after_the_connection_ends():
    """The relay goes away and comes back: the watch stands again, without a call."""

    async def scenario():
        async with WatchingRelay() as relay:

            async def story(watching, notes):
                watching.begin(ALICE.public)
                ((connection, _),) = await relay.wait_for(FrameType.WATCH)
                relay.pipes[connection].abort()
                _, (again, _) = await relay.wait_for(FrameType.WATCH, 2)
                relay.report(again, ALICE, WatchState.ONLINE)
                await eventually(lambda: notes, "the report")
                return notes

            return await run(story, relay)

    assert asyncio.run(scenario()) == [(ALICE.public, True)]


def test_peer_is_online_while_one_of_its_relays_says_so():
    """A device that has moved is not offline because its old relay has lost it."""

    async def scenario():
        async with WatchingRelay() as old, WatchingRelay() as new:

            async def story(watching, notes):
                watching.begin(ALICE.public)
                ((there, _),) = await new.wait_for(FrameType.WATCH)
                new.report(there, ALICE, WatchState.ONLINE)
                await eventually(lambda: notes, "the new relay's report")
                ((here, _),) = await old.wait_for(FrameType.WATCH)
                old.report(here, ALICE, WatchState.OFFLINE)
                await eventually(lambda: len(notes) == PLACES_MAX, "the old relay's report")
                return notes

            return await run(story, old, new)

    assert asyncio.run(scenario()) == [(ALICE.public, True)] * PLACES_MAX


def test_relay_without_watches_is_left_alone():
    """It is asked once, reports nothing, and its connection ends."""

    async def scenario():
        async with WatchingRelay(Feature(0)) as relay:

            async def story(watching, notes):
                watching.begin(ALICE.public)
                await relay.wait_for(FrameType.OPTIONS)
                await eventually(lambda: not relay.pipes, "the end of the connection")
                return notes, relay.of_type(FrameType.WATCH)

            return await run(story, relay)

    assert asyncio.run(scenario()) == ([], [])


def test_every_peer_has_a_connection_of_its_own_and_an_ended_watch_none():
    """No relay learns that two peers have one watcher."""

    async def scenario():
        async with WatchingRelay() as relay:

            async def story(watching, _notes):
                watching.begin(ALICE.public)
                watching.begin(ALICE.public)
                watching.begin(BOB.public)
                asked = await relay.wait_for(FrameType.WATCH, 2)
                await watching.end(ALICE.public)
                await watching.end(PEERS[5])
                await eventually(lambda: len(relay.pipes) == 1, "the end of one watch")
                return {connection for connection, _ in asked}

            return await run(story, relay)

    assert len(asyncio.run(scenario())) == 2


def test_watches_are_bounded():
    """One peer too many is refused with a sentence; ending a watch makes room."""

    async def scenario():
        async with WatchingRelay() as relay:

            async def story(watching, _notes):
                for peer in PEERS[:WATCHES_MAX]:
                    watching.begin(peer)
                with pytest.raises(LocalError, match="16 peers are watched already"):
                    watching.begin(PEERS[WATCHES_MAX])
                await watching.end(PEERS[0])
                watching.begin(PEERS[WATCHES_MAX])

            await run(story, relay)

    asyncio.run(scenario())
