"""A device that moves between two nodes in processes of their own, and a sender that only knows the old one."""

import asyncio
import contextlib
import socket

import pytest

from tests.sdk.build import RunningDevice
from tests.server.build import NodeProcess, until
from waystation.sdk import bhumi_device
from waystation.sdk.bhumi import BhumiState, Moved, Patience, PresenceAsserted, Sender

PATIENT = Patience(doubt_s=30.0, settle_s=2.0)


def free_port():
    """Return a port that is free for a moment: an advert must name it before its node listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Two nodes that have each other's advert."""
    started = []
    with contextlib.ExitStack() as stack:
        for name in ("old", "new"):
            address = f"127.0.0.1:{free_port()}"
            told = {"bhumi__plain": address, "bhumi__advertise": f"tcp://{address}", "bhumi__dials_private": "true"}
            peers = ",".join(f"tcp://{node.settings['bhumi.plain']}" for node in started)
            node = NodeProcess(tmp_path_factory.mktemp(name), **told, bhumi__peers=peers).start()
            stack.callback(node.stop)
            started.append(node)
        until(lambda: all(node.ask("GET", "/admin/v1/bhumi")[1]["neighbours"] for node in started), "adverts")
        yield tuple(node.url() for node in started)


@pytest.mark.parametrize("late", [False, True], ids=["ready before the old relay is left", "ready after the move"])
def test_device_moves_in_mid_exchange(tmp_path, nodes, monkeypatch, late):
    """The answer arrives and the handler runs once, whether it is ready in time for the old relay or not."""
    monkeypatch.setattr(bhumi_device, "LEAVE_S", 0.05 if late else 10.0)
    old, new = nodes
    calls = []

    async def scenario():
        called, gate, left = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def handler(request):
            calls.append(request.text)
            called.set()
            await gate.wait()
            return f"answer to {request.text}"

        async with RunningDevice(tmp_path / "alice", old, handler) as alice:
            await alice.until(PresenceAsserted)
            state = BhumiState(tmp_path / "bob")
            async with Sender(state, old, patience=PATIENT) as bob:
                await bob.accept(alice.token(), alias="alice")
                asking = asyncio.create_task(bob.send("alice", "hi"))
                await called.wait()
                before = alice.device._connection
                before.link.ended.add_done_callback(lambda _: left.set())
                await alice.device.move(new)
                if late:
                    await left.wait()
                gate.set()
                reply = await asking
                again = await bob.send("alice", "and again")
            place = state.place_of(alice.state.identity)
            state.close()
            return reply.text, again.text, place, [(event.before, event.after) for event in await alice.until(Moved)]

    reply, again, place, moves = asyncio.run(scenario())
    assert (reply, again) == ("answer to hi", "answer to and again")
    assert calls == ["hi", "and again"]
    assert (place, moves) == (new, [(old, new)])
