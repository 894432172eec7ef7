"""Laws of one send over a network that fails: handled once or never, an answer or a true sentence, no permission lost.

Times are a two-hundredth of those of the field: a relay waits 30 s for a device, handlers take 1, 40 and 70 s, the
network fails for 5, 70 and 300 s.
"""

import asyncio
import contextlib

import pytest

from tests.sdk.bhumi.sending.build_holes import Stretch
from tests.sdk.build import LoopbackRelay, RunningDevice, sender
from tests.server.build import eventually
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.sdk.bhumi import Outcome, Timeouts
from waystation.sdk.bhumi import listener as bhumi_listener
from waystation.sdk.bhumi.pairing import admission

SCALE = 200
ACK_S = 30 / SCALE
TIMEOUTS = Timeouts(doubt_s=60 / SCALE, settle_s=2 / SCALE)
HOLES_S = [
    pytest.param(5 / SCALE, id="hole 5 s"),
    pytest.param(70 / SCALE, id="hole 70 s"),
    pytest.param(300 / SCALE, id="hole 300 s", marks=pytest.mark.slow),
]


async def waiting(_request, takes_s):
    """Take a while, as a device that works does."""
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=takes_s)


@contextlib.asynccontextmanager
async def over(tmp_path, takes_s, settings=None):
    """Give a sender and a device, each behind a stretch of network, and what the handler was asked."""
    calls, called = [], asyncio.Event()

    async def handler(request):
        calls.append(request.text)
        called.set()
        await waiting(request, takes_s)
        return f"done {request.text}"

    settings = settings or BhumiSettings(ack_timeout_ms=int(ACK_S * 1_000))
    async with (
        LoopbackRelay(settings) as relay,
        Stretch(relay.url) as near,
        Stretch(relay.url) as far,
        RunningDevice(tmp_path / "alice", far.url, handler) as alice,
    ):
        token = alice.token()
        await alice.listening()
        async with sender(tmp_path, near.url, find=False, timeouts=TIMEOUTS) as (bob, state):
            await bob.accept(token, alias="alice")
            await eventually(lambda: state.find_peer("alice").rights == 3, "spares")
            yield bob, state, near, far, calls, called


async def outcome_of(bob, state, reply):
    """Return what a request has come to in the end, asking on while it is pending."""
    texts = [reply.text] if reply.outcome is Outcome.ANSWERED else []
    async with asyncio.timeout(20):
        while state.pending():
            texts += [each.reply.text for each in await bob.recover() if each.reply is not None]
    texts += [each.reply.text for each in await bob.recover() if each.reply is not None]
    return texts


@pytest.mark.parametrize("takes_s", [1 / SCALE, 40 / SCALE, 70 / SCALE], ids=["handler 1 s", "40 s", "70 s"])
@pytest.mark.parametrize("hole_s", HOLES_S)
@pytest.mark.parametrize("where", ["sender", "device", "between"])
def test_hole_while_a_device_works(tmp_path, takes_s, hole_s, where):
    """The network fails while the device works: the request is handled once, answered, and all permissions are left."""

    async def scenario():
        async with over(tmp_path, takes_s) as (bob, state, near, far, calls, called):
            cut = {"sender": [near], "device": [far], "between": [near, far]}[where]
            asking = asyncio.create_task(bob.send("alice", "toggle the pump"))
            await called.wait()
            for stretch in cut:
                stretch.cut()
            asyncio.get_running_loop().call_later(hole_s, lambda: [stretch.mend() for stretch in cut])
            reply = await asking
            texts = await outcome_of(bob, state, reply)
            after = await bob.send("alice", "and again")
            while not after.ok and after.outcome.retry_safe:
                after = await bob.send("alice", "and again")
            # A handler of 70 s outlasts the 60 s that a sender waits: it may be in doubt, and ends as the first one.
            assert await outcome_of(bob, state, after) == ["done and again"], after.sentence
            await eventually(lambda: state.find_peer("alice").rights == 3, "all permissions")
            return reply.outcome, texts, calls

    outcome, texts, calls = asyncio.run(scenario())

    assert outcome in {Outcome.ANSWERED, Outcome.UNCERTAIN}
    assert (texts, calls) == (["done toggle the pump"], ["toggle the pump", "and again"])


@pytest.mark.parametrize("takes_s", [1 / SCALE, 40 / SCALE, 70 / SCALE], ids=["handler 1 s", "40 s", "70 s"])
def test_slow_handler_on_a_good_network(tmp_path, takes_s):
    """A device that takes longer than its relay waits is asked once, and its answer comes with repeats or recover."""

    async def scenario():
        async with over(tmp_path, takes_s) as (bob, state, _, _, calls, _):
            reply = await bob.send("alice", "x")
            texts = await outcome_of(bob, state, reply)
            await eventually(lambda: state.find_peer("alice").rights == 3, "all permissions")
            return texts, calls

    assert asyncio.run(scenario()) == (["done x"], ["x"])


def test_hole_longer_than_relays_remember(tmp_path, monkeypatch):
    """The sender is away until its relay has forgotten the answer: the device has it still, and nothing runs twice."""
    monkeypatch.setattr(admission, "RESPONSE_TTL_S", 0.5)
    monkeypatch.setattr(bhumi_listener, "_LOOK_S", 0.1)

    async def scenario():
        settings = BhumiSettings(ack_timeout_ms=int(ACK_S * 1_000), response_ttl_ms=500)
        async with over(tmp_path, 0, settings) as (bob, state, near, _, calls, called):
            asking = asyncio.create_task(bob.send("alice", "x"))
            await called.wait()
            near.cut()
            reply = await asking
            asyncio.get_running_loop().call_later(0.8, near.mend)
            texts = await outcome_of(bob, state, reply)
            return reply.outcome, texts, calls

    assert asyncio.run(scenario()) == (Outcome.UNCERTAIN, ["done x"], ["x"])
