import asyncio

import pytest

from tests.sdk.build import ScriptedRelay
from waystation.core.errors import HostError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import device_client, messages, wire
from waystation.protocols.bhumi.client_base import Greeted
from waystation.protocols.bhumi.device_client import Delivered, DeviceClient, Registered
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.sender_client import Lost, SenderClient
from waystation.sdk.link import Link, no_greeting, now
from waystation.transport.dial import RelayUrl

KEY_PAIR = KeyPair.from_seed(bytes([0xA1]) * 32)


def test_commands_leave_in_one_write():
    """Commands given before one flush leave together, in order."""

    async def scenario():
        async with ScriptedRelay() as relay:
            machine, events = DeviceClient(KEY_PAIR), asyncio.Queue()
            link = Link(machine, events.put_nowait)
            await link.open(RelayUrl.parse(relay.url), None, 5)
            ((peer, _),) = await relay.wait_for(FrameType.I_AM)
            relay.send(peer, messages.Deliver(1, b"x"))
            while not isinstance(await events.get(), Delivered):
                pass
            machine.add_commits([bytes(32)])
            machine.answer(1, b"y")
            before = len(relay.frames)
            link.flush()
            await relay.wait_for(FrameType.ACK)
            link.close()
            return [kind for _, kind, _ in relay.frames[before:]]

    assert asyncio.run(scenario()) == [FrameType.UPDATE_COMMITS, FrameType.ACK]


def test_events_in_order_and_one_end():
    """Events reach the owner in order; the end is told once, with its reason."""

    async def scenario():
        async with ScriptedRelay() as relay:
            machine, events = SenderClient(), asyncio.Queue()
            link = Link(machine, events.put_nowait)
            await link.open(RelayUrl.parse(relay.url), None, 5)
            first = await events.get()
            machine.send(bytes(32), bytes(32), b"x", now())
            link.flush()
            ((peer, _),) = await relay.wait_for(FrameType.SEND)
            relay.pipes[peer].close()
            return await link.ended, [first, await events.get()]

    reason, events = asyncio.run(scenario())

    assert reason == "the relay closed the connection"
    assert events == [Greeted(65_536), Lost(1)]


def test_broken_protocol_closes_with_its_reason():
    """What the machine refuses ends the connection, and the reason names the refusal."""

    async def scenario():
        async with ScriptedRelay() as relay:
            link = Link(DeviceClient(KEY_PAIR), lambda _: None)
            await link.open(RelayUrl.parse(relay.url), None, 5)
            ((peer, _),) = await relay.wait_for(FrameType.I_AM)
            relay.pipes[peer].write([wire.encode(messages.SendResult(0))])
            return await link.ended

    assert asyncio.run(scenario()) == "we closed the connection: wrong_direction"


def test_timer_wakes_the_machine(monkeypatch):
    """A deadline of the machine is kept without any bytes arriving."""
    monkeypatch.setattr(device_client, "CONFIRM_MS", 10)

    async def scenario():
        async with ScriptedRelay() as relay:
            registered = asyncio.get_running_loop().create_future()
            link = Link(
                DeviceClient(KEY_PAIR),
                lambda event: registered.set_result(event) if isinstance(event, Registered) else None,
            )
            await link.open(RelayUrl.parse(relay.url), None, 5)
            event = await asyncio.wait_for(registered, 5)
            link.close()
            return event, link._timer

    event, timer = asyncio.run(scenario())

    assert not event.confirmed
    assert timer is None


def test_nobody_listens():
    """A relay that is not there is an error of the host."""

    async def scenario():
        await Link(SenderClient(), lambda _: None).open(RelayUrl.parse("tcp://127.0.0.1:1"), None, 5)

    with pytest.raises(HostError, match="nobody listens"):
        asyncio.run(scenario())


def test_silent_tcp_port_may_be_a_tls_one():
    """Only for a plain address the sentence suggests tls."""
    plain, tls = RelayUrl("tcp", "r", 1), RelayUrl("tls", "r", 1)

    assert no_greeting(plain, "x") == "tcp://r:1 did not greet us: x; is this a TLS port? try tls://r:1"
    assert no_greeting(tls, "x") == "tls://r:1 did not greet us: x"
