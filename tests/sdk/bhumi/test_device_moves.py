"""A device that moves, and a sender that only knows where it was: real relays and sockets."""

import asyncio
import contextlib

import pytest

from tests.sdk.bhumi.build_open import OpenRelay, two_relays
from tests.sdk.build import RunningDevice, ScriptedRelay, echo
from tests.server.build import eventually
from waystation.core.errors import HostError, LocalError
from waystation.protocols.bhumi import extension_wire, messages, wire
from waystation.protocols.bhumi.extension_messages import QaReport, QaRequest, QaVerdict
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.sdk.bhumi import (
    BhumiState,
    Device,
    Disconnected,
    Moved,
    PresenceAsserted,
    ProbeRefused,
    RelayBook,
    RelayQuality,
    Sender,
    Timeouts,
    listener,
)
from waystation.sdk.bhumi import device as bhumi_device

PATIENT = Timeouts(doubt_s=20.0, settle_s=1.0)


class Gate:
    """A handler that counts its calls and answers once the test lets it."""

    def __init__(self):
        self.calls = []
        self.called = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, request):
        self.calls.append(request.text)
        self.called.set()
        await self.opened.wait()
        return f"answer to {request.text}"


async def pair(tmp_path, alice, old):
    """Return a sender that has accepted Alice's invite and knows the old relay only, and its state."""
    state = BhumiState(tmp_path / "bob")
    sender = Sender(state, old.url, timeouts=PATIENT)
    await sender.__aenter__()
    await sender.accept(alice.token(), alias="alice")
    return sender, state


@pytest.mark.parametrize("late", [False, True], ids=["answered at the old relay", "answered after the move"])
def test_device_moves_in_mid_exchange(tmp_path, monkeypatch, late):
    """The answer arrives whether it is ready before the old relay is left or after, and the handler runs once."""
    monkeypatch.setattr(bhumi_device, "LEAVE_S", 0.05 if late else 10.0)

    async def scenario():
        gate = Gate()
        async with two_relays() as (old, new), RunningDevice(tmp_path / "alice", old.url, gate) as alice:
            await alice.listening()
            bob, state = await pair(tmp_path, alice, old)
            asking = asyncio.create_task(bob.send("alice", "hi"))
            await gate.called.wait()
            await alice.device.move(new.url)
            if late:
                await old.until_left(alice.state.identity)
            gate.opened.set()
            reply = await asking
            again = await bob.send("alice", "again")
            place = state.place_of(alice.state.identity)
            await bob.__aexit__(None, None, None)
            state.close()
            return reply.text, again.text, gate.calls, place == new.url, await alice.until(Moved)

    reply, again, calls, is_remembered, moved = asyncio.run(scenario())
    assert (reply, again) == ("answer to hi", "answer to again")
    assert calls == ["hi", "again"]
    assert is_remembered
    assert len(moved) == 1


async def moved_sender(tmp_path, alice, relays, **options):
    """Return what a sender that knows ``relays`` gets from a device, and where it remembers it."""
    state = BhumiState(tmp_path / "bob")
    async with Sender(state, relays, timeouts=PATIENT, **options) as bob:
        await bob.accept(alice.token(), alias="alice")
        reply = await bob.send("alice", "hi")
    place = state.place_of(alice.state.identity)
    state.close()
    return reply.text, place


def test_stranger_is_found_through_the_old_relay(tmp_path):
    """An invite can be accepted by somebody who only knows where the device was."""

    async def scenario():
        async with two_relays() as (old, new), RunningDevice(tmp_path / "alice", old.url, echo) as alice:
            await alice.listening()
            await alice.device.move(new.url)
            await old.until_left(alice.state.identity)
            return (*await moved_sender(tmp_path, alice, old.url), new.url)

    text, place, new = asyncio.run(scenario())
    assert (text, place) == ("hi", new)


def test_both_relays_are_told_the_same(tmp_path):
    """The old relay gets the very presence that the new one has, and commits and answers go along."""

    async def scenario():
        async with two_relays() as (old, new), RunningDevice(tmp_path / "alice", old.url, echo) as alice:
            await alice.listening()
            await alice.until(PresenceAsserted)
            await moved_sender(tmp_path, alice, old.url)
            await alice.device.move(new.url)
            at_old = [payload for _, payload in await old.wait_for(FrameType.PRESENCE, 2)]
            at_new = [payload for _, payload in await new.wait_for(FrameType.PRESENCE)]
            said = [payload for _, payload in new.of_type(FrameType.I_AM) if payload[:32] == alice.state.identity]
            return at_old, at_new, wire.decode_i_am(said[0]), len(alice.state.preimages()), old, new

    at_old, at_new, introduction, given_out, old, new = asyncio.run(scenario())
    first, second = (extension_wire.decode_presence(payload) for payload in at_old)
    assert at_new == at_old[1:]
    assert (first.relay_id, second.relay_id) == (old.key_pair.public, new.key_pair.public)
    assert second.issued_at_s > first.issued_at_s
    assert len(introduction.commits) == given_out
    assert len(introduction.responses) == 1


def test_move_to_the_same_place_does_nothing(tmp_path):
    """No second connection, and nothing is said."""

    async def scenario():
        async with OpenRelay(1) as relay, RunningDevice(tmp_path / "alice", relay.url, echo) as alice:
            await alice.listening()
            await alice.until(PresenceAsserted)
            before = len(relay.frames)
            await alice.device.move(relay.url)
            return len(relay.frames) - before, len(relay.connections_of(alice.state.identity)), alice.events

    said, count, events = asyncio.run(scenario())
    assert (said, count) == (0, 1)
    assert not [event for event in events if isinstance(event, Moved)]


def test_move_that_fails_changes_nothing(tmp_path):
    """A relay that cannot be reached, or does not take the device, leaves it where it was."""

    async def scenario():
        async with (
            OpenRelay(1) as relay,
            ScriptedRelay() as mute,
            RunningDevice(tmp_path / "alice", relay.url, echo) as alice,
        ):
            await alice.listening()
            with pytest.raises(HostError, match="nobody listens"):
                await alice.device.move("tcp://127.0.0.1:1")
            moving = asyncio.create_task(alice.device.move(mute.url))
            await mute.wait_for(FrameType.I_AM)
            mute.stop()
            with pytest.raises(HostError, match=r"closed the connection|broke"):
                await moving
            return await moved_sender(tmp_path, alice, relay.url)

    assert asyncio.run(scenario()) == ("hi", "")


def test_only_a_running_device_moves(tmp_path):
    """There is nothing to move before ``run``."""

    async def scenario():
        state = BhumiState(tmp_path)
        with pytest.raises(LocalError, match="does not run"):
            await Device(state, "tcp://127.0.0.1:1", echo).move("tcp://127.0.0.1:2")
        state.close()

    asyncio.run(scenario())


def test_device_without_any_relay_is_refused(tmp_path):
    """Neither an address nor a book is a mistake of the caller."""
    state = BhumiState(tmp_path)
    with pytest.raises(LocalError, match="needs the address of a relay"):
        Device(state, [], echo)
    state.close()


def test_device_moves_by_itself_when_its_relay_is_gone(tmp_path):
    """The book has another relay; the sender, which only knows the dead one, asks the relays of its book."""

    async def scenario():
        async with two_relays() as (old, new):
            with contextlib.closing(RelayBook(tmp_path / "alice")) as book:
                book.add_seed(new.url)
                with contextlib.closing(RelayQuality(tmp_path / "alice")) as quality:
                    device = RunningDevice(tmp_path / "alice", old.url, echo, book=book, quality=quality)
                    async with device as alice, OpenRelay(3, peers=[new.url]) as third:
                        await third.knows_relays(2)
                        await alice.listening()
                        old.stop()
                        await alice.listening(2)
                        await third.knows_devices()
                        with contextlib.closing(RelayBook(tmp_path / "bob")) as theirs:
                            theirs.add_seed(third.url)
                            text, place = await moved_sender(tmp_path, alice, old.url, book=theirs)
                        return text, place == new.url, quality.score(old.url) < quality.score(new.url)

    assert asyncio.run(scenario()) == ("hi", True, True)


def test_device_waits_for_a_relay_to_become_known(tmp_path):
    """With an empty book there is nowhere to go until somebody enters a relay."""

    async def scenario():
        async with OpenRelay(1) as relay:
            with contextlib.closing(RelayBook(tmp_path / "alice")) as book:
                async with RunningDevice(tmp_path / "alice", [], echo, book=book) as alice:
                    (first, *_) = await alice.until(Disconnected)
                    book.add_seed(relay.url)
                    await alice.listening()
                    return first.reason

    assert asyncio.run(scenario()) == "no relay is known"


def test_hidden_device_asserts_nothing(tmp_path):
    """No relay learns what it could tell others, at a move either; who knows the place still gets an answer."""

    async def scenario():
        device = RunningDevice
        async with two_relays() as (old, new), device(tmp_path / "alice", old.url, echo, findable=False) as alice:
            await alice.listening()
            await alice.device.move(new.url)
            text, _ = await moved_sender(tmp_path, alice, new.url)
            return text, old.of_type(FrameType.PRESENCE) + new.of_type(FrameType.PRESENCE)

    assert asyncio.run(scenario()) == ("hi", [])


def test_presence_is_renewed(tmp_path, monkeypatch):
    """As long as the device stays, its presence is made anew before it ends."""
    monkeypatch.setattr(listener, "PRESENCE_EVERY_S", 0.02)

    async def scenario():
        async with OpenRelay(1) as relay, RunningDevice(tmp_path / "alice", relay.url, echo):
            said = await relay.wait_for(FrameType.PRESENCE, 3)
            return [extension_wire.decode_presence(payload) for _, payload in said]

    presences = asyncio.run(scenario())
    issued = [presence.issued_at_s for presence in presences]
    assert issued == sorted(set(issued))
    assert len(issued) >= 3


def test_binding_can_be_demanded(tmp_path):
    """A relay that demands the proof takes our device, and gives it what it is sent."""

    async def scenario():
        async with OpenRelay(1, require_binding=True) as relay, RunningDevice(tmp_path / "a", relay.url, echo) as alice:
            (listening,) = await alice.listening()
            return listening.confirmed, (await moved_sender(tmp_path, alice, relay.url))[0]

    assert asyncio.run(scenario()) == (True, "hi")


def test_probe_is_refused_without_a_book(tmp_path):
    """A device that keeps no account of relays has nowhere to put a verdict: it says no, and nothing else."""

    async def scenario():
        async with ScriptedRelay() as relay, RunningDevice(tmp_path / "alice", relay.url, echo) as alice:
            ((peer, _),) = await relay.wait_for(FrameType.I_AM)
            request = extension_wire.encode_extension(QaRequest(9, "tls://relay.example:1", 60))
            relay.pipes[peer].write([wire.encode(messages.Options(Feature.QA)), request])
            (refused,) = await alice.until(ProbeRefused)
            ((_, report),) = await relay.wait_for(FrameType.QA_REPORT)
            return refused.candidate, extension_wire.decode_qa_report(report)

    assert asyncio.run(scenario()) == ("tls://relay.example:1", QaReport(9, QaVerdict.REFUSED, 0))


def test_relay_that_asks_for_endless_probes(tmp_path):
    """It gets a handful of refusals, then silence; the device answers its peers as before."""

    async def scenario():
        async with ScriptedRelay() as relay, RunningDevice(tmp_path / "alice", relay.url, echo) as alice:
            ((peer, _),) = await relay.wait_for(FrameType.I_AM)
            requests = [QaRequest(number, "tls://relay.example:1", 60) for number in range(1_000)]
            frames = [extension_wire.encode_extension(request) for request in requests]
            relay.pipes[peer].write([wire.encode(messages.Options(Feature.QA)), *frames])
            relay.send(peer, messages.Deliver(3, b"nonsense"))
            await relay.wait_for(FrameType.ACK)
            ignored = alice.device._connection.machine.probes_ignored_count
            return len(relay.of_type(FrameType.QA_REPORT)), len(await alice.until(ProbeRefused)), ignored

    assert asyncio.run(scenario()) == (4, 4, 996)


def test_cancelled_move_leaves_nothing_behind(tmp_path):
    """Whoever gives up moving leaves the device where it was, and no connection at the other relay."""

    async def scenario():
        async with (
            OpenRelay(1) as relay,
            ScriptedRelay() as mute,
            RunningDevice(tmp_path / "alice", relay.url, echo) as alice,
        ):
            await alice.listening()
            moving = asyncio.create_task(alice.device.move(mute.url))
            await mute.wait_for(FrameType.I_AM)
            moving.cancel()
            await asyncio.wait([moving])
            await eventually(lambda: not mute.pipes, "the end of the connection")
            return await moved_sender(tmp_path, alice, relay.url)

    assert asyncio.run(scenario()) == ("hi", "")


def test_cancelled_at_the_new_relay_leaves_the_old_one(tmp_path, monkeypatch):
    """Whoever gives up when the device is there already does not keep it connected at two relays."""

    async def scenario():
        async with two_relays() as (old, new), RunningDevice(tmp_path / "alice", old.url, echo) as alice:
            await alice.listening()

            async def never(*_):
                await asyncio.Event().wait()

            monkeypatch.setattr(listener.Listener, "find_and_assert", never)
            moving = asyncio.create_task(alice.device.move(new.url))
            await alice.until(Moved)
            moving.cancel()
            await asyncio.wait([moving])
            await old.until_left(alice.state.identity)
            return len(new.connections_of(alice.state.identity))

    assert asyncio.run(scenario()) == 1
