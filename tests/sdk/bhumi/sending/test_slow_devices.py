"""Laws of one send to devices that take as long as in the field, at a node with its own limits (slow)."""

import asyncio
import contextlib

import pytest

from tests.sdk.build import RunningDevice
from tests.server.build import eventually
from tools.served import ServedNode
from waystation.sdk.bhumi import BhumiState, Outcome, Sender
from waystation.transport.tls import client_context


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node for the module."""
    running = ServedNode(tmp_path_factory.mktemp("node"), "bhumi").start()
    yield running
    assert running.stop() == 0


@pytest.mark.slow
def test_handlers_of_40_and_70_seconds(node, tmp_path):
    """Both are called once; 40 s are answered in the call, 70 s are in doubt after 60 s and answered by recover.

    A quick device is asked meanwhile and answers at once.
    """
    tls = client_context(node.home / "tls" / "ca.pem")
    takes_s = {"forty": 40, "seventy": 70, "quick": 0}
    calls = []

    def device(name, stack):
        async def handler(request):
            calls.append(name)
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=takes_s[name] or 0.001)
            return name.upper()

        return stack.enter_async_context(RunningDevice(tmp_path / name, node.address_of("bhumi"), handler, tls=tls))

    async def scenario():
        async with contextlib.AsyncExitStack() as stack:
            state = BhumiState(tmp_path / "bob")
            stack.callback(state.close)
            bob = await stack.enter_async_context(Sender(state, node.address_of("bhumi"), tls=tls))
            for name in takes_s:
                made = await device(name, stack)
                await made.listening()
                await bob.accept(made.token(), alias=name)
            await eventually(lambda: all(peer.rights == 3 for peer in state.peers()), "spares")
            slow = [asyncio.create_task(bob.send(name, "x")) for name in ("forty", "seventy")]
            await eventually(lambda: len(calls) == 2, "the handlers")
            async with asyncio.timeout(1):
                quick = await bob.send("quick", "x")
            forty, seventy = await asyncio.gather(*slow)
            (late,) = await bob.recover()
            await eventually(lambda: all(peer.rights == 3 for peer in state.peers()), "all permissions")
            return quick.text, forty.text, seventy.outcome, late.reply.text, sorted(calls), state.pending()

    assert asyncio.run(scenario()) == (
        "QUICK", "FORTY", Outcome.UNCERTAIN, "SEVENTY", ["forty", "quick", "seventy"], [],
    )  # fmt: skip
