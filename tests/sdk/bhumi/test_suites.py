"""Devices and senders in each dialect, over real sockets."""

import asyncio
import random

import pytest

from tests.sdk.build import (
    ALICE,
    BACK,
    BOB,
    PREIMAGE,
    QUICK,
    LoopbackRelay,
    RunningDevice,
    ScriptedRelay,
    echo,
    introduced,
    issue,
    know_alice,
    sender,
    sends,
)
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.payload.contents import (
    ContentType,
    DeviceMessage,
    HandshakeComplete,
    HandshakeInit,
    MessageResponse,
    ResponseStatus,
)
from waystation.protocols.bhumi.payload.suites import HANDSHAKE_BIT, SharedSecrets, suite_hint_of
from waystation.sdk.bhumi import BhumiState, PeerJoined, Sender, Timeouts, Trouble
from waystation.sdk.bhumi.dialect import Dialect, dialect_of, read_answer, write_answer, write_request
from waystation.sdk.bhumi.state import HandshakeFacts
from waystation.sdk.errors import AnswerError, InviteRefusedError, OfflineError, UncertainError

SUITES = [Dialect.SUITE_1, Dialect.SUITE_2]
SEALED = [Dialect.E2E, *SUITES]
EVE = KeyPair.from_seed(bytes([0xE5]) * 32)
HELLO = DeviceMessage(ContentType.TEXT, b"hello")


def spoken(relay):
    """Return in which dialects requests came to a relay."""
    return {dialect_of(send.preimage, send.payload) for send in sends(relay)}


def delivered(device, key_pair, dialect, request=HELLO, preimage=PREIMAGE):
    """Return a delivery, without its preimage, of what somebody writes."""
    payload = write_request(
        dialect, SharedSecrets(key_pair), device.state.identity, preimage, request, random.Random(1)
    )
    return messages.Deliver(1, payload)


async def acknowledged(relay):
    """Return the payload of the only ACK."""
    ((_, ack),) = await relay.wait_for(FrameType.ACK)
    return wire.decode_ack(ack).payload


@pytest.mark.parametrize("dialect", SEALED)
def test_conversation_with_one_device(tmp_path, dialect):
    """A device that was told nothing answers in what it was asked; both sides remember in what they met."""

    async def scenario():
        async with LoopbackRelay() as relay, RunningDevice(tmp_path / "alice", relay.url, echo) as alice:
            token = alice.token(legacy=True)
            await alice.listening()
            async with sender(tmp_path, relay.url, dialect=dialect) as (bob, state):
                await bob.accept(token, alias="alice")
                replies = [await bob.send("alice", text) for text in ("one", "two")]
                binary = await bob.send("alice", bytes(range(256)), ContentType.BINARY)
                met = (state.find_peer("alice").dialect, alice.state.peer(state.identity).dialect)
                rights = state.find_peer("alice").rights
            return [reply.text for reply in replies], binary.content, met, spoken(relay), rights

    replies, binary, met, used, rights = asyncio.run(scenario())

    assert (replies, binary) == (["one", "two"], bytes(range(256)))
    assert met == (dialect, dialect)
    assert used == {dialect}
    assert rights == 3


def test_one_device_answers_each_peer_in_its_dialect(tmp_path):
    """Three peers that met a device in three dialects are all answered, side by side."""

    async def talk(relay, alice, token, dialect):
        async with sender(tmp_path / dialect.value, relay.url, dialect=dialect) as (bob, state):
            await bob.accept(token, alias="alice")
            reply = await bob.send("alice", dialect.value)
            return reply.text, alice.state.peer(state.identity).dialect

    async def scenario():
        async with LoopbackRelay() as relay, RunningDevice(tmp_path / "alice", relay.url, echo) as alice:
            tokens = [alice.token(legacy=True) for _ in SEALED]
            await alice.listening()
            talks = [talk(relay, alice, token, dialect) for token, dialect in zip(tokens, SEALED, strict=True)]
            return await asyncio.gather(*talks)

    assert asyncio.run(scenario()) == [(dialect.value, dialect) for dialect in SEALED]


@pytest.mark.parametrize("dialect", [*SUITES, Dialect.NONE])
def test_sender_speaks_what_it_met_a_peer_in(tmp_path, dialect):
    """A later sender that is told nothing goes on as the handshake began, and one that is told something obeys."""
    other = Dialect.SUITE_1 if dialect is Dialect.SUITE_2 else Dialect.SUITE_2

    async def answer(request):
        return request.command().cmd

    async def scenario():
        device_dialect = Dialect.NONE if dialect is Dialect.NONE else Dialect.E2E
        options = {"dialect": device_dialect}
        async with (
            LoopbackRelay() as relay,
            RunningDevice(tmp_path / "alice", relay.url, answer, **options) as alice,
        ):
            token = alice.token(legacy=True)
            await alice.listening()
            async with sender(tmp_path, relay.url, dialect=dialect) as (bob, _):
                await bob.accept(token, alias="alice")
            relay.frames.clear()
            async with sender(tmp_path, relay.url) as (bob, _):
                data = await bob.command("alice", "led")
            untold = spoken(relay)
            relay.frames.clear()
            if dialect is not Dialect.NONE:
                async with sender(tmp_path, relay.url, dialect=other) as (bob, _):
                    await bob.command("alice", "led")
            return data, untold, spoken(relay)

    data, untold, told = asyncio.run(scenario())

    assert data == "led"
    assert untold == {dialect}
    assert told == (set() if dialect is Dialect.NONE else {other})


@pytest.mark.parametrize("told", SUITES)
@pytest.mark.parametrize("dialect", SEALED)
def test_device_that_insists_on_a_suite(tmp_path, told, dialect):
    """A device that was told a suite takes nothing else: there the preimage alone never speaks for a peer."""

    async def scenario():
        async with (
            LoopbackRelay() as relay,
            RunningDevice(tmp_path / "alice", relay.url, echo, dialect=told) as alice,
        ):
            token = alice.token(legacy=True)
            await alice.listening()
            async with sender(tmp_path, relay.url, dialect=dialect) as (bob, state):
                if dialect is told:
                    await bob.accept(token, alias="alice")
                    return (await bob.send("alice", "x")).text
                with pytest.raises(InviteRefusedError, match="another --e2e"):
                    await bob.accept(token, alias="alice")
                return len(state.peers()) + len(alice.state.peers())

    assert asyncio.run(scenario()) == ("x" if dialect is told else 0)


@pytest.mark.parametrize("dialect", SUITES)
def test_hint_finds_the_preimage(tmp_path, dialect):
    """When the relay leaves the preimage out, handshake and message are found by the suites' own hint."""

    async def scenario():
        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, echo) as device:
            ((peer, _),) = await relay.wait_for(FrameType.I_AM)
            alice = device.state.identity
            invite = device.state.add_invite("bob", random.Random(1))
            init = HandshakeInit(BOB.public, BACK, "tcp://bob:1")
            relay.send(peer, delivered(device, BOB, dialect, init, invite))
            answer = read_answer(dialect, SharedSecrets(BOB), alice, invite, await acknowledged(relay))
            await device.until(PeerJoined)
            relay.send(peer, delivered(device, BOB, dialect, HELLO, answer.preimage))
            (_, (_, ack)) = await relay.wait_for(FrameType.ACK, 2)
            payload = wire.decode_ack(ack).payload
            return answer, read_answer(dialect, SharedSecrets(BOB), alice, answer.preimage, payload)

    joined, answer = asyncio.run(scenario())

    assert isinstance(joined, HandshakeComplete) and joined.status is ResponseStatus.OK
    assert (answer.status, answer.content) == (0, b"hello")


@pytest.mark.parametrize("dialect", SUITES)
def test_second_delivery_gets_the_same_bytes(tmp_path, dialect):
    """A request delivered twice is handled once, and answered with the bytes of the first time."""

    async def scenario():
        calls = []

        async def handler(request):
            calls.append(request.content)
            return b"done"

        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, handler) as device:
            issue(device.state, BOB.public, [PREIMAGE])
            ((peer, _),) = await relay.wait_for(FrameType.I_AM)
            for number in range(2):
                relay.send(peer, messages.Deliver(number, delivered(device, BOB, dialect).payload))
            (_, first), (_, second) = await relay.wait_for(FrameType.ACK, 2)
            return calls, wire.decode_ack(first).payload == wire.decode_ack(second).payload

    assert asyncio.run(scenario()) == ([b"hello"], True)


@pytest.mark.parametrize("dialect", SUITES)
@pytest.mark.parametrize("request_", [HELLO, HandshakeInit(BOB.public, BACK, "tcp://eve:1")])
def test_leaked_preimage_does_not_speak_for_a_peer(tmp_path, dialect, request_):
    """Whoever has a peer's preimage, but not its identity, is not heard, and takes nothing away from the peer."""

    async def scenario():
        calls = []

        async def handler(request):
            calls.append(request)
            return b""

        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, handler) as device:
            issue(device.state, BOB.public, [PREIMAGE])
            peer = await introduced(relay)
            deliver = delivered(device, EVE, dialect, request_)
            relay.send(peer, messages.Deliver(1, deliver.payload, PREIMAGE))
            payload = await acknowledged(relay)
            await device.until(Trouble)
            return calls, payload, device.state.preimages()

    assert asyncio.run(scenario()) == ([], b"", [PREIMAGE])


@pytest.mark.parametrize("suite_byte", [0, 5, 0x7F, HANDSHAKE_BIT, HANDSHAKE_BIT | 9])
@pytest.mark.parametrize("is_invite", [True, False])
def test_unknown_suite_is_refused(tmp_path, suite_byte, is_invite):
    """A suite byte that is unknown gets an empty answer, the device says which it was, and the preimage stays."""

    async def scenario():
        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, echo) as device:
            issue(device.state, BOB.public, [PREIMAGE])
            preimage = device.state.add_invite("bob", random.Random(1)) if is_invite else PREIMAGE
            ((peer, _),) = await relay.wait_for(FrameType.I_AM)
            payload = suite_hint_of(preimage) + bytes([suite_byte]) + bytes(100)
            relay.send(peer, messages.Deliver(1, payload))
            (trouble,) = await device.until(Trouble)
            return await acknowledged(relay), trouble.reason, device.state.grant_of(preimage) is not None

    assert asyncio.run(scenario()) == (b"", f"a request came in suite {suite_byte & 0x7F}, which is unknown here", True)


@pytest.mark.parametrize("dialect", SUITES)
@pytest.mark.parametrize("case", ["reflected", "of another request", "bhumi-v1", "unknown suite", "cut", "empty"])
def test_wrong_answer_is_refused(tmp_path, dialect, case):
    """Anything but the peer's own answer gives an error and no content, and ends no doubt: the request stays."""
    content = MessageResponse(0, bytes([0x13]) * 32, b"forged")
    alice = SharedSecrets(ALICE)
    rng = random.Random(3)

    async def scenario():
        def answer(send):
            own = write_answer(dialect, alice, state.identity, send.preimage, content, rng)
            return 0, {
                "reflected": lambda: send.payload,
                "of another request": lambda: write_answer(dialect, alice, state.identity, BACK, content, rng),
                "bhumi-v1": lambda: write_answer(Dialect.E2E, alice, state.identity, send.preimage, content, rng),
                "unknown suite": lambda: own[:8] + b"\x04" + own[9:],
                "cut": lambda: own[:-1],
                "empty": lambda: b"",
            }[case]()

        async with ScriptedRelay(answer=answer) as relay, sender(tmp_path, relay.url) as (bob, state):
            state.finish(bytes([0xEE]) * 32, ALICE.public, (PREIMAGE,), HandshakeFacts("alice", "", dialect=dialect))
            with pytest.raises(AnswerError):
                (await bob.send("alice", "x")).check()
            return spoken(relay), [each.preimage for each in state.pending()], len(set(sends(relay)))

    assert asyncio.run(scenario()) == ({dialect}, [PREIMAGE], 1)


@pytest.mark.parametrize("dialect", SUITES)
def test_recovery_reads_what_the_request_was_written_in(tmp_path, dialect):
    """What another process left pending is finished in the dialect of its own bytes by whoever recovers it."""

    async def scenario():
        async with LoopbackRelay() as relay, RunningDevice(tmp_path / "alice", relay.url, echo) as alice:
            token = alice.token(legacy=True)
            await alice.listening()
            hasty = Timeouts(doubt_s=0, settle_s=0)
            async with (
                ScriptedRelay(answer=lambda _: (3, b"")) as deaf,
                sender(tmp_path, deaf.url, dialect=dialect, timeouts=hasty) as (bob, _),
            ):
                with pytest.raises(UncertainError):
                    await bob.accept(token, alias="alice")
            async with sender(tmp_path, relay.url) as (bob, state):
                notes = [recovered.note for recovered in await bob.recover()]
                return notes, state.find_peer("alice").dialect, (await bob.send("alice", "x")).text, spoken(relay)

    assert asyncio.run(scenario()) == (["the handshake is complete"], dialect, "x", {dialect})


def test_peers_of_before_speak_bhumi_v1(tmp_path):
    """A peer of whom nothing else is known is asked in bhumi-v1."""

    async def scenario():
        async with ScriptedRelay(answer=lambda _: (1, b"")) as relay, sender(tmp_path, relay.url) as (bob, state):
            know_alice(state, PREIMAGE)
            with pytest.raises(OfflineError, match="not connected"):
                (await bob.send("alice", "x")).check()
            return spoken(relay)

    assert asyncio.run(scenario()) == {Dialect.E2E}


def test_meeting_again_changes_the_dialect(tmp_path):
    """Who accepts another invite of a known peer in another dialect speaks that from then on; untold, the old one."""

    async def scenario():
        async with LoopbackRelay() as relay, RunningDevice(tmp_path / "alice", relay.url, echo) as alice:
            tokens = [alice.token(legacy=True) for _ in range(3)]
            await alice.listening()
            met = []
            for token, dialect in zip(tokens, (Dialect.E2E, Dialect.SUITE_2, None), strict=True):
                async with sender(tmp_path, relay.url, dialect=dialect) as (bob, state):
                    await bob.accept(token, alias="alice")
                    met.append(state.find_peer("alice").dialect)
            return met

    assert asyncio.run(scenario()) == [Dialect.E2E, Dialect.SUITE_2, Dialect.SUITE_2]


def test_state_of_the_device_is_what_its_sender_uses(tmp_path):
    """The invited one's dialect is remembered at the inviter, too, for what that one asks later."""

    async def scenario():
        async with LoopbackRelay() as relay, RunningDevice(tmp_path / "alice", relay.url, echo) as alice:
            token = alice.token(legacy=True)
            await alice.listening()
            async with RunningDevice(tmp_path / "bob", relay.url, echo) as bob:
                async with Sender(bob.state, relay.url, timeouts=QUICK, dialect=Dialect.SUITE_1) as asker:
                    await asker.accept(token, alias="alice")
                await bob.listening()
                relay.frames.clear()
                other = BhumiState(tmp_path / "alice")
                async with Sender(other, relay.url, timeouts=QUICK) as asker:
                    reply = await asker.send("bob", "back")
                other.close()
                return reply.text, spoken(relay)

    assert asyncio.run(scenario()) == ("back", {Dialect.SUITE_1})
