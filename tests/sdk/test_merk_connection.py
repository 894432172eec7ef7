"""Laws of sdk.merk_connection."""

import asyncio
import random

from tests.sdk.merk_build import ALICE, BOB, NODE, RelayServer, ScriptedServer
from tests.server.build import eventually
from waystation.protocols.merk.client import MerkClient
from waystation.protocols.merk.client_events import Ended, FrameOutcome, Ready
from waystation.protocols.merk.messages import DeliveryCode
from waystation.protocols.merk.refusals import Refusal
from waystation.protocols.merk.sealing import data_frame
from waystation.sdk.link import now
from waystation.sdk.merk_connection import Connection
from waystation.transport.websocket_dial import dial_websocket


async def connect(relay, events):
    """Return a connection that nobody runs yet."""
    link = await dial_websocket(relay.url, text=False)
    return Connection(MerkClient(ALICE, random.Random(1)), link, events.append)


def test_machine_is_driven_to_its_end():
    """Effects leave, events come, commands given in an event's handler leave too, and the end is told last."""

    async def scenario():
        events = []
        async with RelayServer() as relay:
            connection = await connect(relay, events)
            frame = data_frame(ALICE.signing, BOB.signing.public, b"x", header_signature=True)

            def react(event):
                events.append(event)
                if isinstance(event, Ready):
                    connection.machine.send_frame(frame, now())
                elif isinstance(event, FrameOutcome):
                    relay_closes.set()

            relay_closes = asyncio.Event()
            connection._on_event = react
            running = asyncio.create_task(connection.run())
            await relay_closes.wait()
            await relay.cut(1001)
            await running
            return events, connection.status

    events, status = asyncio.run(scenario())

    assert [type(event) for event in events] == [Ready, FrameOutcome, Ended]
    assert events[0].server == NODE.public
    assert events[1].code is DeliveryCode.UNKNOWN_TARGET
    assert status == 1001


def test_machine_that_closes_says_why_on_the_wire():
    """The status of the refusal is in the closing handshake."""

    async def scenario():
        events = []
        async with ScriptedServer([b"nonsense"]) as relay:
            connection = await connect(relay, events)
            await connection.run()
            return events, connection.status

    events, status = asyncio.run(scenario())

    assert events == [Ended(Refusal.SHORT)]
    assert status == 1002


def test_deadline_of_the_machine_is_kept(monkeypatch):
    """A relay that says nothing is left when the handshake's time is over."""
    monkeypatch.setattr("waystation.protocols.merk.client.HANDSHAKE_MS", 20)

    async def scenario():
        events = []
        async with ScriptedServer() as relay:
            connection = await connect(relay, events)
            await connection.run()
            return events

    assert asyncio.run(scenario()) == [Ended(Refusal.AUTH_TIMEOUT)]


def test_cancelled_connection_is_closed():
    """Who cancels ``run`` leaves no socket and no timer."""

    async def scenario():
        events = []
        async with RelayServer() as relay:
            connection = await connect(relay, events)
            running = asyncio.create_task(connection.run())
            await eventually(lambda: connection.machine.is_ready, "the handshake")
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            return events[-1], connection.status, connection._timer is None or connection._timer.cancelled()

    assert asyncio.run(scenario()) == (Ended(None), 1000, True)
