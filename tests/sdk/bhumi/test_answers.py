"""Laws of sdk.bhumi_answers: one request is handled once, whatever connections it comes by."""

import asyncio
import random

import pytest

from tests.sdk.build import BOB, PREIMAGE, handshake, issue
from tests.server.build import eventually
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.client.device import Delivered
from waystation.protocols.bhumi.payload.contents import (
    Command,
    ContentType,
    DeviceMessage,
    HandshakeComplete,
    ResponseStatus,
    encode_command,
)
from waystation.protocols.bhumi.payload.suites import SharedSecrets
from waystation.sdk.bhumi import Dialect, Handled, PeerJoined, Trouble
from waystation.sdk.bhumi.answers import SPARES_COMMAND, SPARES_MAX, Answers
from waystation.sdk.bhumi.dialect import command_result, read_answer, write_request
from waystation.sdk.bhumi.state import BhumiState

SECRETS = SharedSecrets(BOB)


@pytest.fixture
def state(tmp_path):
    """A device that has given Bob one preimage."""
    made = BhumiState(tmp_path)
    issue(made, BOB.public, [PREIMAGE])
    yield made
    made.close()


def answers(state, handler, events=None, **options):
    """Return what answers for a device, at a relay of this name."""
    report = (events if events is not None else []).append
    made = Answers(state, handler, Dialect.E2E, random.Random(2), options.get("admit"), report)
    made.relay = "tls://here:1"
    return made


def delivered(state, message_id=1, content=b"hi", content_type=ContentType.TEXT, preimage=PREIMAGE):
    """Return a delivery of Bob's request."""
    message = DeviceMessage(content_type, content)
    payload = write_request(Dialect.E2E, SECRETS, state.identity, preimage, message, random.Random(3))
    return Delivered(message_id, payload, preimage)


def opened(state, done, preimage=PREIMAGE):
    """Return what Bob reads in an answer."""
    return read_answer(Dialect.E2E, SECRETS, state.identity, preimage, done.answer)


def test_two_deliveries_of_one_request_are_one(state):
    """While the handler works, and afterwards, the same request gets the same bytes; it is told of once."""
    calls = []

    async def scenario():
        gate = asyncio.Event()

        async def handler(request):
            calls.append(request.text)
            await gate.wait()
            return "done"

        made = answers(state, handler)
        first = asyncio.create_task(made.answer_to(delivered(state)))
        second = asyncio.create_task(made.answer_to(delivered(state, 77)))
        await eventually(lambda: calls, "a call")
        gate.set()
        return [*await asyncio.gather(first, second), await made.answer_to(delivered(state, 5))]

    results = asyncio.run(scenario())
    assert calls == ["hi"]
    assert len({result.answer for result in results}) == 1
    assert [type(result.event) for result in results] == [Handled, type(None), type(None)]
    assert (opened(state, results[0]).content, opened(state, results[0]).url) == (b"done", "tls://here:1")


def test_answer_names_the_relay_of_now(state):
    """Where peers are told to look is where the device is when it answers."""

    async def handler(_request):
        made.relay = "tls://moved:1"
        return "x"

    made = answers(state, handler)

    assert opened(state, asyncio.run(made.answer_to(delivered(state)))).url == "tls://moved:1"


def test_handler_that_fails_is_an_answer(state):
    """The peer is told, gets its next preimage, and the owner hears why."""
    events = []

    async def handler(_request):
        raise ValueError("no such lamp")

    done = asyncio.run(answers(state, handler, events).answer_to(delivered(state)))

    assert opened(state, done).status == ResponseStatus.REFUSED
    assert [event.reason for event in events] == ["the handler failed: ValueError('no such lamp')"]
    assert not done.event.ok


def test_answer_too_large_for_the_relay_is_refused(state):
    """What the relay does not take is not promised."""
    events = []

    async def handler(_request):
        return b"x" * 900

    made = answers(state, handler, events)
    made.payload_bytes_max = 1_000

    assert opened(state, asyncio.run(made.answer_to(delivered(state)))).status == ResponseStatus.REFUSED
    assert "the answer has 900 bytes" in events[0].reason


def test_spares_are_given_without_the_handler(state):
    """A peer that asks for many preimages gets a bounded number of them."""

    async def handler(_request):
        raise AssertionError

    content = encode_command(Command(SPARES_COMMAND, {"n": 1_000}))
    done = asyncio.run(answers(state, handler).answer_to(delivered(state, 1, content, ContentType.COMMAND)))

    assert len(command_result(opened(state, done).content)["spares"]) == SPARES_MAX
    assert len(state.preimages()) == SPARES_MAX + 1


@pytest.mark.parametrize("admitted", [True, False])
def test_invite_is_used(state, admitted):
    """Whoever is admitted becomes a peer, with us as its right; who is not gets a refusal."""
    invite = state.add_invite("bob", random.Random(4))
    holder = type("Holder", (), {"state": state})
    made = answers(state, None, admit=lambda _key, alias: admitted and alias == "bob")
    done = asyncio.run(made.answer_to(Delivered(1, handshake(holder, invite), invite)))

    answer = opened(state, done, invite)
    assert isinstance(answer, HandshakeComplete)
    assert (answer.status == ResponseStatus.OK) is admitted
    assert isinstance(done.event, PeerJoined) is admitted
    assert (state.peer(BOB.public) is not None) is admitted


@pytest.mark.parametrize("preimage", [None, bytes([9]) * 32], ids=["none", "not ours"])
def test_stranger_gets_an_empty_answer(state, preimage):
    """Without a preimage of ours there is nothing to say, and nobody is called."""
    stranger = KeyPair.from_seed(bytes([5]) * 32)
    message = DeviceMessage(ContentType.TEXT, b"hi")
    known = preimage or bytes([9]) * 32
    payload = write_request(Dialect.E2E, SharedSecrets(stranger), state.identity, known, message, random.Random(3))
    done = asyncio.run(answers(state, None).answer_to(Delivered(1, payload, preimage)))

    assert done.answer == b""
    assert isinstance(done.event, Trouble)


def test_work_ends_with_the_device(state):
    """What has no answer when the device stops leaves nothing behind, and its preimage is good for another try."""

    async def scenario():
        async def handler(_request):
            await asyncio.Event().wait()

        made = answers(state, handler)
        waiting = asyncio.create_task(made.answer_to(delivered(state)))
        await eventually(lambda: made._running, "work")
        await made.stop()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return made._running

    assert asyncio.run(scenario()) == {}
    assert state.grant_of(PREIMAGE) is not None
