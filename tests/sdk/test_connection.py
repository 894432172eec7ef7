"""Laws of sdk.connection: streams with Bhumi's clients, WebSockets with MERK's, datagrams with LPRP's."""

import asyncio
import random

import pytest

from tests.sdk.build import ScriptedRelay
from tests.sdk.merk.build import ALICE, BOB, NODE, RelayServer, ScriptedServer
from tests.server.build import eventually
from waystation.core.errors import HostError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.client import device
from waystation.protocols.bhumi.client.base import Greeted
from waystation.protocols.bhumi.client.device import Delivered, DeviceClient, Registered
from waystation.protocols.bhumi.client.sender import Lost, SenderClient
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.lprp.client.machine import LprpClient
from waystation.protocols.merk.client.events import Ended as MachineEnded
from waystation.protocols.merk.client.events import FrameOutcome, MailboxSaid, Ready
from waystation.protocols.merk.client.machine import MerkClient
from waystation.protocols.merk.messages import DeliveryCode
from waystation.protocols.merk.payload.sealing import data_frame
from waystation.protocols.merk.refusals import Refusal
from waystation.sdk import connection as connection_module
from waystation.sdk.connection import Connection, now
from waystation.transport.dial import RelayUrl, dial
from waystation.transport.websocket.dial import WebSocketDialler

KEY_PAIR = KeyPair.from_seed(bytes([0xA1]) * 32)


def test_commands_leave_in_one_write():
    """Commands given before one flush leave together, in order."""

    async def scenario():
        async with ScriptedRelay() as relay:
            machine, events = DeviceClient(KEY_PAIR), asyncio.Queue()
            link = Connection(machine, events.put_nowait)
            await dial(relay.url, link, context=None, timeout_s=5)
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
            link = Connection(machine, events.put_nowait)
            await dial(relay.url, link, context=None, timeout_s=5)
            first = await events.get()
            machine.send(bytes(32), bytes(32), b"x", now())
            link.flush()
            ((peer, _),) = await relay.wait_for(FrameType.SEND)
            relay.pipes[peer].close()
            return (await link.ended).reason, [first, await events.get()]

    reason, events = asyncio.run(scenario())

    assert reason == "the relay closed the connection"
    assert events == [Greeted(65_536), Lost(1)]


def test_broken_protocol_closes_with_its_reason():
    """What the machine refuses ends the connection, and the reason names the refusal."""

    async def scenario():
        async with ScriptedRelay() as relay:
            link = Connection(DeviceClient(KEY_PAIR), lambda _: None)
            await dial(relay.url, link, context=None, timeout_s=5)
            ((peer, _),) = await relay.wait_for(FrameType.I_AM)
            relay.pipes[peer].write([wire.encode(messages.SendResult(0))])
            return (await link.ended).reason

    assert asyncio.run(scenario()) == "we closed the connection: wrong_direction"


def test_timer_wakes_the_machine(monkeypatch):
    """A deadline of the machine is kept without any bytes arriving."""
    monkeypatch.setattr(device, "CONFIRM_MS", 10)

    async def scenario():
        async with ScriptedRelay() as relay:
            registered = asyncio.get_running_loop().create_future()
            link = Connection(
                DeviceClient(KEY_PAIR),
                lambda event: registered.set_result(event) if isinstance(event, Registered) else None,
            )
            await dial(relay.url, link, context=None, timeout_s=5)
            event = await asyncio.wait_for(registered, 20)
            link.close()
            return event, link._timer

    event, timer = asyncio.run(scenario())

    assert not event.confirmed
    assert timer is None


def test_nobody_listens():
    """A relay that is not there is an error of the host."""

    async def scenario():
        await dial("tcp://127.0.0.1:1", Connection(SenderClient(), lambda _: None), context=None, timeout_s=5)

    with pytest.raises(HostError, match="nobody listens"):
        asyncio.run(scenario())


# WebSockets


async def over_websocket(relay, events):
    """Return an open connection of a MERK client."""
    connection = Connection(MerkClient(ALICE, random.Random(1)), events.append)
    await WebSocketDialler(message_bytes_max=1_000_000).dial(relay.url, connection)
    return connection


def test_machine_is_driven_to_its_end():
    """Effects leave, events come, commands given in an event's handler leave too, and the end has its status."""

    async def scenario():
        events, outcome = [], asyncio.Event()
        async with RelayServer() as relay:
            machine = MerkClient(ALICE, random.Random(1))
            frame = data_frame(ALICE.signing, BOB.signing.public, b"x", header_signature=True)

            def react(event):
                events.append(event)
                if isinstance(event, Ready):
                    machine.send_frame(frame, now())
                elif isinstance(event, FrameOutcome):
                    outcome.set()

            connection = Connection(machine, react)
            await WebSocketDialler(message_bytes_max=1_000_000).dial(relay.url, connection)
            await outcome.wait()
            await relay.cut(1001)
            return events, await connection.ended

    events, ended = asyncio.run(scenario())

    assert [type(event) for event in events] == [Ready, MailboxSaid, FrameOutcome, MachineEnded]
    assert events[0].server == NODE.public
    assert events[2].code is DeliveryCode.UNKNOWN_TARGET
    assert (ended.status, ended.refusal) == (1001, None)


def test_machine_that_closes_says_why_on_the_wire():
    """The status of the refusal is in the closing handshake, and the refusal in the end."""

    async def scenario():
        events = []
        async with ScriptedServer([b"nonsense"]) as relay:
            connection = await over_websocket(relay, events)
            ended = await connection.ended
            await connection.wait_closed()
            return events, ended, connection.pipe.close_status

    events, ended, status = asyncio.run(scenario())

    assert events == [MachineEnded(Refusal.SHORT)]
    assert (ended.status, ended.refusal, status) == (1002, Refusal.SHORT, 1002)


def test_deadline_of_the_machine_is_kept(monkeypatch):
    """A relay that sends nothing is left when the handshake's time is over."""
    monkeypatch.setattr("waystation.protocols.merk.client.machine.HANDSHAKE_MS", 20)

    async def scenario():
        events = []
        async with ScriptedServer() as relay:
            await (await over_websocket(relay, events)).ended
            return events

    assert asyncio.run(scenario()) == [MachineEnded(Refusal.AUTH_TIMEOUT)]


def test_closed_connection_leaves_nothing():
    """After ``close`` there is no timer, and after ``wait_closed`` no pipe; closing twice is fine."""

    async def scenario():
        events = []
        async with RelayServer() as relay:
            connection = await over_websocket(relay, events)
            await eventually(lambda: any(isinstance(event, Ready) for event in events), "the handshake")
            connection.close()
            connection.close()
            await connection.wait_closed()
            left = connection._pipes, connection._lingering, connection._timer
            return events[-1], (await connection.ended).reason, left, connection.pipe.close_status

    event, reason, (pipes, lingering, timer), status = asyncio.run(scenario())

    assert (event, reason, status) == (MachineEnded(None), "closed", 1000)
    assert not pipes and not lingering
    assert timer is None or timer.cancelled()


def test_new_pipe_takes_over_from_the_old_one():
    """A connection that is opened again goes on over the new pipe; the old one is closed and says nothing more."""

    async def scenario():
        client = LprpClient(KEY_PAIR, KEY_PAIR.public, random.Random(1))
        connection = Connection(client, lambda _event: None)
        url = RelayUrl("udp", "127.0.0.1", 9)
        await dial(url, connection, context=None, timeout_s=5)
        first = connection.pipe
        await dial(url, connection, context=None, timeout_s=5)
        await eventually(lambda: not connection._lingering, "the old pipe to go")
        over = connection.ended.done()
        pipes = list(connection._pipes.values())
        connection.close()
        return first, connection.pipe, pipes, over

    first, second, pipes, over = asyncio.run(scenario())

    assert first is not second and pipes == [second]
    assert not over


def test_clocked_machine_is_told_the_time_again_and_again(monkeypatch):
    """A machine that compares times of day hears of a clock that was set."""
    monkeypatch.setattr(connection_module, "WALL_S", 0.001)
    told = []

    class Clocked(LprpClient):
        def set_wall(self, now, wall_us):
            told.append(wall_us)
            super().set_wall(now, wall_us)

    async def scenario():
        times = iter(range(100, 10**9, 100))
        connection = Connection(Clocked(KEY_PAIR, KEY_PAIR.public, random.Random(1)), print, clock=lambda: next(times))
        await eventually(lambda: len(told) > 2, "the time")
        connection.close()

    asyncio.run(scenario())

    assert told[:3] == [100_000_000, 200_000_000, 300_000_000]
