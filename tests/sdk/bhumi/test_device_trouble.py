"""Laws of sdk.bhumi_device: what peers and relay see when something around an answer fails."""

import asyncio
import random

import pytest

from tests.sdk.build import BOB, LoopbackRelay, RunningDevice, ScriptedRelay, echo, handshake, introduced, paired
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.payload.contents import Command, ContentType, encode_command
from waystation.sdk.bhumi import Trouble


@pytest.mark.parametrize(
    ("content_type", "content"),
    [(ContentType.TEXT, b"bad ? byte"), (ContentType.COMMAND, b'{"ok":false,"error":"bad ? byte"}')],
)
def test_error_that_utf8_cannot_say_is_answered(tmp_path, content_type, content):
    """A handler's error that holds half a surrogate pair still gives the peer an error answer."""

    async def broken(_request):
        raise ValueError("bad \udcff byte")

    async def scenario():
        async with LoopbackRelay() as relay, paired(tmp_path, relay, broken) as (_, bob, _state):
            return await asyncio.wait_for(bob.send("alice", '{"cmd":"led"}', content_type), 10)

    reply = asyncio.run(scenario())

    assert (reply.status, reply.content) == (1, content)


def test_long_error_is_cut(tmp_path):
    """An error longer than the relay takes is cut, so the peer hears its beginning."""

    async def broken(_request):
        raise ValueError("x" * 100_000)

    async def scenario():
        async with LoopbackRelay() as relay, paired(tmp_path, relay, broken) as (_, bob, _state):
            reply = await asyncio.wait_for(bob.send("alice", '{"cmd":"led"}', ContentType.COMMAND), 10)
            return reply.content

    assert asyncio.run(scenario()) == b'{"ok":false,"error":"' + b"x" * 256 + b'"}'


@pytest.mark.parametrize(
    ("content_type", "given", "says"),
    [
        (ContentType.TEXT, None, "NoneType, not text or bytes"),
        (ContentType.TEXT, {"a": 1}, "dict, not text or bytes"),
        (ContentType.COMMAND, {1, 2}, "set, which is neither text nor JSON"),
    ],
)
def test_handler_that_returns_no_answer_is_the_peers_error(tmp_path, content_type, given, says):
    """A handler that returns neither text nor bytes, nor JSON for a command, is an error to the peer and its owner."""

    async def broken(_request):
        return given

    async def scenario():
        async with LoopbackRelay() as relay, paired(tmp_path, relay, broken) as (alice, bob, _):
            reply = await asyncio.wait_for(bob.send("alice", '{"cmd":"led"}', content_type), 10)
            return reply, await alice.until(Trouble)

    reply, (trouble,) = asyncio.run(scenario())

    assert reply.status == 1
    assert says in trouble.reason and says in reply.sentence


@pytest.mark.parametrize("given", [{"t": 21.5}, [1, 2], 7, None, True])
def test_command_is_answered_with_what_json_can_say(tmp_path, given):
    """A handler answers a command with a dict, a list, a number or nothing, as on a microcontroller."""

    async def answer(_request):
        return given

    async def scenario():
        async with LoopbackRelay() as relay, paired(tmp_path, relay, answer) as (_, bob, _state):
            return await bob.command("alice", "reading")

    assert asyncio.run(scenario()) == given


@pytest.mark.parametrize(
    ("content_type", "content"), [(ContentType.TEXT, b"a ? b"), (ContentType.COMMAND, b'{"ok":true,"data":"a ? b"}')]
)
def test_answer_that_utf8_cannot_say_is_mended(tmp_path, content_type, content):
    """Half a surrogate pair in a handler's text becomes a question mark."""

    async def answer(_request):
        return "a \ud800 b"

    async def scenario():
        async with LoopbackRelay() as relay, paired(tmp_path, relay, answer) as (_, bob, _state):
            reply = await asyncio.wait_for(bob.send("alice", '{"cmd":"led"}', content_type), 10)
            return reply.status, reply.content

    assert asyncio.run(scenario()) == (0, content)


def test_failing_owner_does_not_leave_the_peer_waiting(tmp_path):
    """When the owner's own admission check fails the invited one gets an empty answer, and trouble is reported."""

    def admit(_key, _alias):
        raise KeyError("guest list")

    async def scenario():
        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, echo, admit=admit) as device:
            invite = device.state.add_invite("bob", random.Random(1))
            peer = await introduced(relay)
            relay.send(peer, messages.Deliver(1, handshake(device, invite), invite))
            async with asyncio.timeout(1):
                ((_, ack),) = await relay.wait_for(FrameType.ACK)
                (trouble,) = await device.until(Trouble)
            return wire.decode_ack(ack).payload, trouble.reason

    payload, reason = asyncio.run(scenario())

    assert payload == b""
    assert "guest list" in reason


def test_stored_answer_over_the_limit_is_an_empty_answer(tmp_path):
    """A retry whose stored answer this relay does not take gets an empty one at once, and trouble is reported."""

    async def scenario():
        preimage = bytes([1]) * 32
        async with ScriptedRelay(max_payload_bytes=200) as relay, RunningDevice(tmp_path, relay.url, echo) as device:
            device.state.answered(preimage, BOB.public, bytes(201), (), None)
            peer = await introduced(relay)
            relay.send(peer, messages.Deliver(1, b"again", preimage))
            async with asyncio.timeout(1):
                ((_, ack),) = await relay.wait_for(FrameType.ACK)
                (trouble,) = await device.until(Trouble)
            return wire.decode_ack(ack).payload, trouble.reason

    payload, reason = asyncio.run(scenario())

    assert payload == b""
    assert "larger than this relay takes" in reason


def test_repeated_spares_do_not_fill_the_relay(tmp_path, monkeypatch):
    """However often a peer asks for spares, the relay keeps room for new commits, and the device's list is bounded."""
    monkeypatch.setattr(wire, "COMMITS_MAX", 40)

    async def scenario():
        async with LoopbackRelay() as relay, paired(tmp_path, relay) as (alice, bob, _):
            greedy = encode_command(Command("spares", {"n": 3}))
            tries = [(await bob.send("alice", greedy, ContentType.COMMAND)).tries_count for _ in range(20)]
            tries.append((await bob.send("alice", "still there?")).tries_count)
            return tries, len(alice.device._connection._known_to_relay)

    tries, registered_count = asyncio.run(scenario())

    assert tries == [1] * 21
    assert registered_count <= 40
