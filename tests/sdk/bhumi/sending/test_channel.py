import asyncio

import pytest

from tests.sdk.build import ScriptedRelay
from waystation.core.errors import LocalError
from waystation.protocols.bhumi import messages
from waystation.protocols.bhumi.messages import FrameType
from waystation.sdk.bhumi.sending.channel import Channel
from waystation.sdk.bhumi.sending.retry import Verdict
from waystation.transport.dial import RelayUrl

RECIPIENT, PREIMAGE = bytes(32), bytes([1]) * 32


def channel(relay):
    return Channel(RelayUrl.parse(relay.url), None, 5)


def test_answer_and_status():
    """A result's status becomes an outcome, with the recipient's bytes; one connection serves many requests."""

    async def scenario():
        answers = iter([(0, b"yes"), (1, b""), (2, b""), (3, b"")])
        async with ScriptedRelay(answer=lambda _: next(answers)) as relay:
            used = channel(relay)
            outcomes = [(await used.ask(RECIPIENT, PREIMAGE, b"x"))[:2] for _ in range(4)]
            await used.close()
            return outcomes, {peer for peer, _, _ in relay.frames}

    outcomes, connections = asyncio.run(scenario())

    assert outcomes == [
        (Verdict.ANSWERED, b"yes"), (Verdict.OFFLINE, b""), (Verdict.SPENT, b""), (Verdict.UNCERTAIN, b""),
    ]  # fmt: skip
    assert len(connections) == 1


def test_broken_connection_is_doubt_and_heals():
    """A connection that breaks under a request leaves it in doubt; the next request opens a new one."""

    async def scenario():
        async with ScriptedRelay() as relay:
            used = channel(relay)
            asking = asyncio.create_task(used.ask(RECIPIENT, PREIMAGE, b"x"))
            ((first, _),) = await relay.wait_for(FrameType.SEND)
            relay.cut(first)
            outcome, _, _ = await asking
            again = asyncio.create_task(used.ask(RECIPIENT, PREIMAGE, b"x"))
            second = (await relay.wait_for(FrameType.SEND, 2))[1][0]
            relay.send(second, messages.SendResult(0, b"late"))
            return outcome, first == second, await again

    outcome, same, again = asyncio.run(scenario())

    assert (outcome, same, again[:2]) == (Verdict.UNCERTAIN, False, (Verdict.ANSWERED, b"late"))


def test_nobody_there_is_not_sent():
    """Without a relay, or with one that breaks its protocol instead of greeting, nothing was sent."""

    async def scenario():
        alone = Channel(RelayUrl.parse("tcp://127.0.0.1:1"), None, 5)
        async with ScriptedRelay() as relay:
            real, relay.connected = relay.connected, lambda pipe: pipe.write([b"HTTP/1.1 400 Bad Request\r\n\r\n"])
            rude = channel(relay)
            results = await alone.ask(RECIPIENT, PREIMAGE, b"x"), await rude.ask(RECIPIENT, PREIMAGE, b"x")
            relay.connected = real
            return results

    for outcome, _, reason in asyncio.run(scenario()):
        assert outcome is Verdict.UNREACHABLE
        assert "127.0.0.1" in reason


def test_sixteen_at_once():
    """More requests than the window wait their turn and are all answered in order."""

    async def scenario():
        async with ScriptedRelay() as relay:
            used = channel(relay)
            asking = [asyncio.create_task(used.ask(RECIPIENT, PREIMAGE, bytes([n]))) for n in range(20)]
            await relay.wait_for(FrameType.SEND, 16)
            before = len(relay.of_type(FrameType.SEND))
            for number in range(20):
                await relay.wait_for(FrameType.SEND, number + 1)
                relay.send(1, messages.SendResult(0, bytes([number])))
            return before, [answer for _, answer, _ in await asyncio.gather(*asking)]

    before, answers = asyncio.run(scenario())

    assert before == 16
    assert answers == [bytes([number]) for number in range(20)]


def test_too_large():
    """A payload over the relay's limit raises with both numbers, and the channel goes on."""

    async def scenario():
        async with ScriptedRelay(max_payload_bytes=4, answer=lambda _: (0, b"ok")) as relay:
            used = channel(relay)
            with pytest.raises(LocalError, match=r"5 bytes.*at most 4"):
                await used.ask(RECIPIENT, PREIMAGE, b"12345")
            return await used.ask(RECIPIENT, PREIMAGE, b"1234")

    assert asyncio.run(scenario())[1] == b"ok"


def test_cancelled_callers_leave_no_gap():
    """Sixteen calls that were cut have no result yet; when the results come, the next request takes its turn (B4)."""

    async def scenario():
        async with ScriptedRelay() as relay:
            used = channel(relay)
            asking = [asyncio.create_task(used.ask(RECIPIENT, PREIMAGE, bytes([number]))) for number in range(16)]
            await relay.wait_for(FrameType.SEND, 16)
            for task in asking:
                task.cancel()
            await asyncio.wait(asking)
            late = asyncio.create_task(used.ask(RECIPIENT, PREIMAGE, b"late"))
            await asyncio.sleep(0)
            for number in range(16):
                relay.send(1, messages.SendResult(0, bytes([number])))
            await relay.wait_for(FrameType.SEND, 17)
            relay.send(1, messages.SendResult(0, b"yes"))
            return await late, used.is_idle

    assert asyncio.run(scenario()) == ((Verdict.ANSWERED, b"yes", "the relay answered with status 0"), True)


def test_closing_tells_who_waits():
    """A request that waits when the channel is closed may have been delivered."""

    async def scenario():
        async with ScriptedRelay() as relay:
            used = channel(relay)
            asking = asyncio.create_task(used.ask(RECIPIENT, PREIMAGE, b"x"))
            await relay.wait_for(FrameType.SEND)
            await used.close()
            return (await asking)[0]

    assert asyncio.run(scenario()) is Verdict.UNCERTAIN
