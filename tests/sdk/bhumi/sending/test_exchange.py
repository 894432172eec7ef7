"""Laws of sending.exchange: one request, one permission; the next one only where that cannot repeat anything."""

import asyncio
import random

import pytest

from tests.sdk.build import ALICE, BACK, PREIMAGE, ScriptedRelay, know_alice, sender, sends
from tests.server.build import eventually
from waystation.protocols.bhumi.messages import FrameType, SendResult
from waystation.protocols.bhumi.payload.contents import MessageResponse
from waystation.protocols.bhumi.payload.suites import SharedSecrets
from waystation.sdk.bhumi import Dialect, Outcome, Timeouts
from waystation.sdk.bhumi.dialect import read_request, write_answer
from waystation.sdk.errors import RelayUnreachableError

NEXT = bytes([0x55]) * 32
HASTY = Timeouts(doubt_s=0, settle_s=0)


def know(state, *preimages):
    """Make Alice a peer that knows no spares, so that nothing but the request itself leaves."""
    know_alice(state, *preimages)
    state.stop_spares(ALICE.public)


def device(state, send, status=0, given=NEXT):
    """Answer as Alice does."""
    response = MessageResponse(status, given, asked(state, send))
    return write_answer(Dialect.E2E, SharedSecrets(ALICE), state.identity, send.preimage, response, random.Random(1))


def asked(state, send):
    """Return what a request says, as Alice reads it."""
    return read_request(Dialect.E2E, SharedSecrets(ALICE), state.identity, send.preimage, send.payload).content


@pytest.mark.parametrize("statuses", [[1], [1, 1]])
def test_content_leaves_under_the_same_permission_after_offline(tmp_path, statuses):
    """Status 1 gives the permission back to the front: the next request takes it, so at most one of them is handled."""

    async def scenario():
        told = iter(statuses)

        def answer(send):
            status = next(told, 0)
            return status, b"" if status else device(state, send)

        async with ScriptedRelay(answer=answer) as relay, sender(tmp_path, relay.url, find=False) as (bob, state):
            know(state, PREIMAGE, BACK)
            replies = [await bob.send("alice", str(number)) for number in range(len(statuses) + 1)]
            return [reply.outcome for reply in replies], {send.preimage for send in sends(relay)}, state.pending()

    outcomes, preimages, pending = asyncio.run(scenario())

    assert outcomes == [*[Outcome.OFFLINE] * len(statuses), Outcome.ANSWERED]
    assert (preimages, pending) == ({PREIMAGE}, [])


def test_cancelled_before_it_left_takes_the_permission_back(tmp_path):
    """A call that is cancelled while its peer is offline is taken back: nothing arrives when the peer comes."""
    told = []

    async def scenario():
        async with (
            ScriptedRelay(answer=lambda _: (1, b"")) as relay,
            sender(tmp_path, relay.url, find=False, timeouts=Timeouts(wait_s=60), on_event=told.append) as (
                bob,
                state,
            ),
        ):
            know(state, PREIMAGE)
            asking = asyncio.create_task(bob.send("alice", "x"))
            await relay.wait_for(FrameType.SEND)
            await eventually(lambda: told, "the end of the try")
            asking.cancel()
            await asyncio.wait([asking])
            await eventually(lambda: not bob._tasks, "the end of it")
            return asking.cancelled(), state.pending(), state.next_right(ALICE.public), await bob.recover()

    assert asyncio.run(scenario()) == (True, [], PREIMAGE, [])


def test_time_that_is_up_before_it_left_is_no_doubt(tmp_path):
    """A call whose time is up while no relay has taken the request says that nothing was delivered."""

    async def scenario():
        async with (
            ScriptedRelay(answer=lambda _: (1, b"")) as relay,
            sender(tmp_path, relay.url, find=False, timeouts=Timeouts(wait_s=60)) as (bob, state),
        ):
            know(state, PREIMAGE)
            reply = await bob.send("alice", "x", timeout_s=0.3)
            return reply.outcome, reply.sentence, state.pending(), state.next_right(ALICE.public)

    outcome, sentence, pending, right = asyncio.run(scenario())

    assert (outcome, pending, right) == (Outcome.NOT_SENT, [], PREIMAGE)
    assert sentence == "nothing was delivered to alice within 0.3 s: alice is not connected"


def test_time_that_is_up_leaves_the_request_behind(tmp_path):
    """A call whose time is up in doubt says so; the request goes on, and its answer and permission are kept."""

    async def scenario():
        async with ScriptedRelay() as relay, sender(tmp_path, relay.url, find=False) as (bob, state):
            know(state, PREIMAGE)
            reply = await bob.send("alice", "x", timeout_s=0.2)
            ((peer, _),) = relay.of_type(FrameType.SEND)
            relay.send(peer, SendResult(0, device(state, sends(relay)[0])))
            await eventually(lambda: not state.pending(), "the outcome")
            (kept,) = await bob.recover()
            return reply.outcome, kept.reply.text, state.next_right(ALICE.public)

    assert asyncio.run(scenario()) == (Outcome.UNCERTAIN, "x", NEXT)


@pytest.mark.parametrize("status", [2, 1])
def test_lie_of_a_relay_about_one_permission_is_no_second_execution(tmp_path, status):
    """A relay delivers, says that it did not, and delivers the next request under that permission: one is handled."""

    async def scenario():
        handled = {}

        def answer(send):
            first = send.preimage not in handled
            handled.setdefault(send.preimage, asked(state, send))
            return (status, b"") if first else (0, device(state, send))

        options = {"find": False, "timeouts": HASTY}
        async with ScriptedRelay(answer=answer) as relay, sender(tmp_path, relay.url, **options) as (bob, state):
            know(state, PREIMAGE)
            first = await bob.send("alice", "one")
            await bob.send("alice", "two")
            return first.outcome.retry_safe, handled

    assert asyncio.run(scenario()) == (True, {PREIMAGE: b"one"})


def test_nobody_reached_gives_the_permission_back(tmp_path):
    """Without a relay the call raises, and the permission is the next to be used."""

    async def scenario():
        async with sender(tmp_path, "tcp://127.0.0.1:1", find=False) as (bob, state):
            know(state, PREIMAGE)
            with pytest.raises(RelayUnreachableError):
                await bob.send("alice", "x")
            return state.next_right(ALICE.public), state.pending()

    assert asyncio.run(scenario()) == (PREIMAGE, [])


def test_answer_returns_before_spares(tmp_path):
    """A device that sleeps after its answer costs the call nothing: spares are asked for behind it."""

    async def scenario():
        def answer(send):
            if asked(state, send) == b"x":
                return 0, device(state, send)
            return 3, b""

        async with ScriptedRelay(answer=answer) as relay, sender(tmp_path, relay.url, find=False) as (bob, state):
            know_alice(state, PREIMAGE)
            async with asyncio.timeout(1):
                reply = await bob.send("alice", "x")
            await relay.wait_for(FrameType.SEND, 2)
            return reply.text, [each.kind.value for each in state.pending()]

    assert asyncio.run(scenario()) == ("x", ["spares"])
