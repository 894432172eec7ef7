import asyncio
import random

import pytest

from tests.sdk.build import (
    BACK,
    BOB,
    LoopbackRelay,
    RunningDevice,
    ScriptedRelay,
    echo,
    handshake,
    introduced,
    issue,
    paired,
)
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.client.base import commit_of
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.payload.contents import (
    ContentType,
    DeviceMessage,
    HandshakeComplete,
    HandshakeInit,
    ResponseStatus,
    decode_payload,
)
from waystation.protocols.bhumi.payload.envelope import open_envelope
from waystation.protocols.bhumi.payload.suites import SharedSecrets
from waystation.sdk.backoff import Backoff
from waystation.sdk.bhumi import BhumiState, Device, Dialect, Disconnected, Handled, PeerJoined, Trouble
from waystation.sdk.bhumi import device as bhumi_device
from waystation.sdk.bhumi.dialect import write_request
from waystation.sdk.errors import HomeBusyError


def message(device, preimage, content=b"hi", content_type=ContentType.TEXT):
    """Return a sealed message."""
    request = DeviceMessage(content_type, content)
    return write_request(Dialect.E2E, SharedSecrets(BOB), device.state.identity, preimage, request, random.Random(2))


def opened(ack_payload):
    """Return what an ACK's payload says to Bob."""
    return decode_payload(open_envelope(BOB, wire.decode_ack(ack_payload).payload))


def test_commits_leave_before_the_answer(tmp_path):
    """For every answer the relay hears UPDATE_COMMITS first, with the commit of the preimage the answer gives."""

    async def scenario():
        async with LoopbackRelay() as relay, paired(tmp_path, relay) as (_, bob, _state):
            await bob.send("alice", "hi")
            (device,) = relay.identified
            return [kind for peer, kind, _ in relay.frames if peer == device]

    kinds = asyncio.run(scenario())

    start = kinds.index(FrameType.UPDATE_COMMITS)
    assert kinds[:start] == [FrameType.OPTIONS, FrameType.I_AM, FrameType.KEEPALIVE]
    assert kinds[start:] == [FrameType.UPDATE_COMMITS, FrameType.ACK] * 3


def test_answer_is_on_disk_before_it_leaves(tmp_path):
    """When the relay sees an ACK, another program reads the same bytes from the device's state."""

    async def scenario():
        async with LoopbackRelay() as relay:
            kept = []

            def look():
                if relay.frames[-1][1] == FrameType.ACK:
                    reader = BhumiState(tmp_path / "alice")
                    answer = wire.decode_ack(relay.frames[-1][2]).payload
                    kept.append(answer in [each.response for each in reader.recent_responses()])
                    reader.close()

            relay.on_frames = look
            async with paired(tmp_path, relay) as (_, bob, _state):
                await bob.send("alice", "hi")
            return kept

    assert asyncio.run(scenario()) == [True] * 3


def test_handshake_gives_and_takes_a_preimage(tmp_path):
    """An invite makes a peer of whoever shakes hands: it gets a registered preimage, and its own one is kept."""

    async def scenario():
        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, echo) as device:
            invite = device.state.add_invite("bob", random.Random(1))
            peer = await introduced(relay)
            relay.send(peer, messages.Deliver(1, handshake(device, invite), invite))
            ((_, ack),) = await relay.wait_for(FrameType.ACK)
            (joined,) = await device.until(PeerJoined)
            answer = opened(ack)
            updates = [wire.decode_update_commits(each).commits for _, each in relay.of_type(FrameType.UPDATE_COMMITS)]
            known = device.state.peer(BOB.public)
            return (
                answer,
                updates,
                joined,
                known,
                device.state.next_right(BOB.public),
                device.state.grant_of(invite),
                invite,
            )

    answer, updates, joined, known, right, grant, _invite = asyncio.run(scenario())

    assert isinstance(answer, HandshakeComplete) and answer.status is ResponseStatus.OK
    assert updates == [(commit_of(answer.preimage),)]
    assert (joined.alias, known.url, right, grant) == ("bob", "tcp://bob:1", BACK, None)


def test_refused_handshake_gives_nothing(tmp_path):
    """Whom the owner does not admit gets status 1, no preimage, no URL, and is not remembered."""

    async def scenario():
        async with (
            ScriptedRelay() as relay,
            RunningDevice(tmp_path, relay.url, echo, admit=lambda _key, alias: alias != "bob") as device,
        ):
            invite = device.state.add_invite("bob", random.Random(1))
            peer = await introduced(relay)
            relay.send(peer, messages.Deliver(1, handshake(device, invite), invite))
            ((_, ack),) = await relay.wait_for(FrameType.ACK)
            return opened(ack), device.state.peers(), device.state.preimages()

    assert asyncio.run(scenario()) == (HandshakeComplete(ResponseStatus.REFUSED), [], [])


def test_same_preimage_twice_is_handled_once(tmp_path):
    """Deliveries of one preimage, side by side or later, get the same bytes; the handler works once."""

    async def scenario():
        calls, called, gate = [], asyncio.Event(), asyncio.Event()

        async def slow(request):
            calls.append(request)
            called.set()
            await gate.wait()
            return "done"

        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, slow) as device:
            preimage = bytes([1]) * 32
            issue(device.state, BOB.public, [preimage])
            peer = await introduced(relay)
            for number in (1, 2):
                relay.send(peer, messages.Deliver(number, message(device, preimage), preimage))
            await called.wait()
            gate.set()
            await relay.wait_for(FrameType.ACK, 2)
            relay.send(peer, messages.Deliver(3, message(device, preimage), preimage))
            acks = [wire.decode_ack(payload) for _, payload in await relay.wait_for(FrameType.ACK, 3)]
            return acks, len(calls), len(await device.until(Handled))

    acks, calls_count, handled_count = asyncio.run(scenario())

    assert sorted(ack.message_id for ack in acks) == [1, 2, 3]
    assert len({ack.payload for ack in acks}) == 1
    assert (calls_count, handled_count) == (1, 1)


@pytest.mark.parametrize(
    ("content_type", "content"),
    [(ContentType.TEXT, b"no bulb"), (ContentType.COMMAND, b'{"ok":false,"error":"no bulb"}')],
)
def test_failing_handler_is_the_peers_error(tmp_path, content_type, content):
    """A handler that raises answers with status 1 and its reason, in JSON for a command, and the device goes on."""

    async def scenario():
        async def broken(_request):
            raise RuntimeError("no bulb")

        async with LoopbackRelay() as relay, paired(tmp_path, relay, broken) as (alice, bob, _):
            first = await bob.send("alice", '{"cmd":"led"}', content_type)
            second = await bob.send("alice", '{"cmd":"led"}', content_type)
            return first, second, await alice.until(Trouble)

    first, second, troubles = asyncio.run(scenario())

    assert (first.status, first.content) == (second.status, second.content) == (1, content)
    assert "no bulb" in troubles[0].reason


def test_commands_get_json(tmp_path):
    """What a handler returns for a command is JSON data, whether it is JSON or plain words."""

    async def scenario():
        async def answer(request):
            return '{"t":21.5}' if request.command().cmd == "temp" else "plain words"

        async with LoopbackRelay() as relay, paired(tmp_path, relay, answer) as (_, bob, _state):
            return await bob.command("alice", "temp"), await bob.command("alice", "say", {"x": 1})

    assert asyncio.run(scenario()) == ({"t": 21.5}, "plain words")


def test_answer_over_the_limit_is_an_error(tmp_path):
    """An answer that the relay would not take is replaced by an error that it takes."""

    async def scenario():
        async def long(_request):
            return bytes(1_000)

        async with ScriptedRelay(max_payload_bytes=600) as relay, RunningDevice(tmp_path, relay.url, long) as device:
            preimage = bytes([1]) * 32
            issue(device.state, BOB.public, [preimage])
            peer = await introduced(relay)
            relay.send(peer, messages.Deliver(1, message(device, preimage), preimage))
            ((_, ack),) = await relay.wait_for(FrameType.ACK)
            return opened(ack)

    answer = asyncio.run(scenario())

    assert answer.status == ResponseStatus.REFUSED
    assert answer.content == b"the answer is larger than the relay takes"
    assert any(answer.next_preimage)


def test_largest_answer_fits(tmp_path):
    """The size check leaves exactly the room that envelope and structure need."""

    async def scenario():
        sizes = []
        for size in (300, 600):
            async with ScriptedRelay(max_payload_bytes=size) as relay:
                room = size - 80 - 40 - len(relay.url)

                async def exact(_request, room=room):
                    return bytes(room)

                async with RunningDevice(tmp_path / str(size), relay.url, exact) as device:
                    preimage = bytes([1]) * 32
                    issue(device.state, BOB.public, [preimage])
                    peer = await introduced(relay)
                    relay.send(peer, messages.Deliver(1, message(device, preimage), preimage))
                    ((_, ack),) = await relay.wait_for(FrameType.ACK)
                    sizes.append(len(wire.decode_ack(ack).payload))
        return sizes

    assert asyncio.run(scenario()) == [300, 600]


def test_hint_finds_the_preimage(tmp_path):
    """A relay that ignores OPTIONS delivers without preimage; the envelope's hint tells which one it is."""

    async def scenario():
        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, echo) as device:
            preimages = [bytes([number]) * 32 for number in range(1, 6)]
            issue(device.state, BOB.public, preimages)
            ((peer, _),) = await relay.wait_for(FrameType.I_AM)
            relay.send(peer, messages.Deliver(1, message(device, preimages[2], b"third")))
            await relay.wait_for(FrameType.ACK)
            relay.send(peer, messages.Deliver(2, message(device, preimages[2], b"third")))
            acks = [wire.decode_ack(each).payload for _, each in await relay.wait_for(FrameType.ACK, 2)]
            return acks, device.state.grant_of(preimages[2]), relay.of_type(FrameType.ACK)[0][1]

    acks, grant, first = asyncio.run(scenario())

    assert opened(first).content == b"third"
    assert acks[0] == acks[1]
    assert grant is None


@pytest.mark.parametrize("payload", [b"", b"nonsense", bytes(200)])
def test_unknown_preimage_is_answered_empty(tmp_path, payload):
    """A request whose preimage was never given out gets an empty answer, and trouble is reported."""

    async def scenario():
        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, echo) as device:
            peer = await introduced(relay)
            relay.send(peer, messages.Deliver(1, payload, bytes([9]) * 32))
            ((_, ack),) = await relay.wait_for(FrameType.ACK)
            return wire.decode_ack(ack), await device.until(Trouble)

    ack, troubles = asyncio.run(scenario())

    assert ack == messages.Ack(1, b"")
    assert len(troubles) == 1


def test_what_cannot_be_opened_spends_nothing(tmp_path):
    """Bytes that are no envelope get an empty answer; the handler sees nothing, and the peer's permission stays."""

    async def scenario():
        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, echo) as device:
            preimage = bytes([1]) * 32
            issue(device.state, BOB.public, [preimage])
            peer = await introduced(relay)
            relay.send(peer, messages.Deliver(1, b"nonsense", preimage))
            ((_, ack),) = await relay.wait_for(FrameType.ACK)
            return wire.decode_ack(ack).payload, device.state.preimages(), await device.until(Trouble)

    answer, preimages, _ = asyncio.run(scenario())

    assert (answer, preimages) == (b"", [bytes([1]) * 32])


def test_invite_made_by_another_program_is_registered(tmp_path):
    """A listening device notices what another program wrote and tells the relay the new commit."""

    async def scenario():
        async with LoopbackRelay() as relay, RunningDevice(tmp_path, relay.url, echo) as device:
            await device.listening()
            other = BhumiState(tmp_path)
            preimage = other.add_invite("late", random.Random(1))
            other.close()
            ((_, update),) = await relay.wait_for(FrameType.UPDATE_COMMITS)
            return wire.decode_update_commits(update).commits, preimage

    commits, preimage = asyncio.run(scenario())

    assert commits == (commit_of(preimage),)


def test_reconnects_and_carries_recent_answers(tmp_path):
    """After its relay goes away the device registers with the next one, and brings its commits and last answers."""

    async def scenario():
        async with (
            LoopbackRelay() as first,
            ScriptedRelay() as second,
            RunningDevice(tmp_path, [first.url, second.url], echo) as device,
        ):
            preimage = bytes([1]) * 32
            issue(device.state, BOB.public, [preimage])
            await device.listening()
            device.state.answered(preimage, BOB.public, b"the answer", [bytes([2]) * 32], None)
            first.stop()
            ((_, introduction),) = await second.wait_for(FrameType.I_AM)
            return wire.decode_i_am(introduction), preimage, await device.until(Disconnected)

    introduction, preimage, _ = asyncio.run(scenario())

    assert introduction.responses == (messages.RecentResponse(preimage, b"the answer"),)
    assert introduction.commits == (commit_of(bytes([2]) * 32),)


@pytest.mark.parametrize(("stands_s", "steps"), [(30.0, [0.01, 0.02, 0.04]), (0.0, [0.01, 0.01, 0.01])])
def test_delay_grows_until_a_connection_has_stood(tmp_path, monkeypatch, stands_s, steps):
    """A relay that takes us and drops us at once is met ever less often; one that has kept us is not."""
    monkeypatch.setattr(bhumi_device, "STABLE_S", stands_s)

    async def scenario():
        backoff = Backoff(random.Random(1), first_s=0.01, cap_s=1.0)
        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, echo, backoff=backoff) as device:
            for number in range(1, len(steps) + 1):
                await device.listening(number)
                relay.cut(relay.of_type(FrameType.I_AM)[-1][0])
                ends = await device.until(Disconnected, number)
            return [end.retry_s for end in ends]

    for delay, step in zip(asyncio.run(scenario()), steps, strict=True):
        assert 0.005 <= delay <= step


def test_reconnect_ends_the_pause(tmp_path):
    """NODE-BACK: a device that waits for an hour listens at once when its program says that the network is back."""

    async def scenario():
        backoff = Backoff(random.Random(1), first_s=3_600, cap_s=3_600)
        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, echo, backoff=backoff) as device:
            await device.listening()
            relay.cut(relay.of_type(FrameType.I_AM)[-1][0])
            await device.until(Disconnected)
            device.device.reconnect()
            return len(await device.listening(2))

    assert asyncio.run(scenario()) == 2


def test_late_answer_goes_to_the_next_connection(tmp_path):
    """An answer that is ready after its connection broke is offered to the relay by a refreshed I_AM."""

    async def scenario():
        called, gate = asyncio.Event(), asyncio.Event()

        async def slow(_request):
            called.set()
            await gate.wait()
            return "late"

        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, slow) as device:
            preimage = bytes([1]) * 32
            issue(device.state, BOB.public, [preimage])
            peer = await introduced(relay)
            await device.listening()
            relay.send(peer, messages.Deliver(1, message(device, preimage), preimage))
            await called.wait()
            relay.cut(peer)
            ((_, again),) = (await relay.wait_for(FrameType.I_AM, 2))[1:]
            gate.set()
            refreshed = (await relay.wait_for(FrameType.I_AM, 3))[2][1]
            return wire.decode_i_am(again), wire.decode_i_am(refreshed), relay.of_type(FrameType.ACK), preimage

    again, refreshed, acks, preimage = asyncio.run(scenario())

    assert again.responses == ()
    assert [response.preimage for response in refreshed.responses] == [preimage]
    assert acks == []


def test_one_listener_per_identity(tmp_path):
    """A second listener for one identity is refused: the two would push each other off the relay for ever."""

    async def scenario():
        async with LoopbackRelay() as relay, RunningDevice(tmp_path, relay.url, echo) as device:
            await device.listening()
            with pytest.raises(HomeBusyError):
                await Device(device.state, relay.url, echo).run()

    asyncio.run(scenario())


def sealed_init(recipient, preimage, sender):
    """Return a handshake that claims an identity."""
    return write_request(
        Dialect.E2E, SharedSecrets(BOB), recipient, preimage, HandshakeInit(sender, BACK), random.Random(1)
    )


@pytest.mark.parametrize("case", ["message", "nonsense", "weak identity", "own identity"])
def test_misused_invite_stays_valid(tmp_path, case):
    """An invite used for anything but a proper handshake gets an empty answer, and is still there for its holder."""

    async def scenario():
        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, echo) as device:
            invite = device.state.add_invite("bob", random.Random(1))
            own = device.state.identity
            peer = await introduced(relay)
            payload = {
                "message": lambda: message(device, invite),
                "nonsense": lambda: b"nonsense",
                "weak identity": lambda: sealed_init(own, invite, bytes(32)),
                "own identity": lambda: sealed_init(own, invite, own),
            }[case]()
            relay.send(peer, messages.Deliver(1, payload, invite))
            ((_, ack),) = await relay.wait_for(FrameType.ACK)
            await device.until(Trouble)
            left = device.state.preimages()
            return wire.decode_ack(ack).payload, left == [invite], device.state.peers()

    assert asyncio.run(scenario()) == (b"", True, [])


def test_handshake_of_a_known_peer_is_refused(tmp_path):
    """A handshake needs an invite; with an ordinary preimage it is refused, and spends it."""

    async def scenario():
        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, echo) as device:
            preimage = bytes([1]) * 32
            issue(device.state, BOB.public, [preimage])
            peer = await introduced(relay)
            relay.send(peer, messages.Deliver(1, handshake(device, preimage), preimage))
            ((_, ack),) = await relay.wait_for(FrameType.ACK)
            return opened(ack), device.state.preimages()

    assert asyncio.run(scenario()) == (HandshakeComplete(ResponseStatus.REFUSED), [])


def test_delivery_without_preimage_or_hint(tmp_path):
    """A delivery that names no preimage and hints at none gets an empty answer."""

    async def scenario():
        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, echo) as device:
            ((peer, _),) = await relay.wait_for(FrameType.I_AM)
            relay.send(peer, messages.Deliver(1, bytes(100)))
            ((_, ack),) = await relay.wait_for(FrameType.ACK)
            return wire.decode_ack(ack).payload, len(await device.until(Trouble))

    assert asyncio.run(scenario()) == (b"", 1)


def test_no_answer_without_the_disk(tmp_path):
    """When the state cannot be written nothing is answered: the sender sees a timeout, not a broken promise."""

    async def scenario():
        async with ScriptedRelay() as relay, RunningDevice(tmp_path, relay.url, echo, poll_s=60) as device:
            preimage = bytes([1]) * 32
            issue(device.state, BOB.public, [preimage])
            peer = await introduced(relay)
            await device.listening()
            device.state._database.execute("PRAGMA query_only = ON")
            relay.send(peer, messages.Deliver(1, message(device, preimage), preimage))
            (trouble,) = await device.until(Trouble)
            return trouble.reason, relay.of_type(FrameType.ACK)

    reason, acks = asyncio.run(scenario())

    assert "bhumi.db" in reason
    assert acks == []
