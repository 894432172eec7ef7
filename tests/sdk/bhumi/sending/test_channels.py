"""Laws of sending.channels: no request waits for another, no connection shows two peers, and there are few enough."""

import asyncio

import pytest

from tests.sdk.build import ALICE, BOB, ScriptedRelay
from tests.server.build import eventually
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import messages
from waystation.protocols.bhumi.messages import FrameType
from waystation.sdk.bhumi.sending.channel import Channel
from waystation.sdk.bhumi.sending.channels import CHANNELS_MAX, CONNECTING_MAX, PER_RELAY_MAX, Channels
from waystation.transport.dial import RelayUrl

PREIMAGE = bytes([1]) * 32
PEERS = [KeyPair.from_seed(number.to_bytes(32, "big")).public for number in range(1, 101)]
HERE = RelayUrl.parse("tcp://127.0.0.1:1")


def channels(**options):
    return Channels(lambda relay, gate: Channel(relay, None, 5, gate=gate), **options)


async def ask(kept, relay, peer, payload=b"x"):
    with kept.lease(RelayUrl.parse(relay.url), peer) as channel:
        return (await channel.ask(peer, PREIMAGE, payload))[1]


def test_slow_peer_delays_nobody():
    """The answer of a quick peer arrives while a slow one works; nothing is answered in the order of asking (B3)."""

    async def scenario():
        async with ScriptedRelay() as relay:
            kept = channels()
            slow = asyncio.create_task(ask(kept, relay, ALICE.public, b"slow"))
            await relay.wait_for(FrameType.SEND)
            quick = asyncio.create_task(ask(kept, relay, BOB.public, b"quick"))
            (first, _), (second, _) = await relay.wait_for(FrameType.SEND, 2)
            relay.send(second, messages.SendResult(0, b"at once"))
            answer, is_waiting = await quick, not slow.done()
            relay.send(first, messages.SendResult(0, b"late"))
            result = answer, is_waiting, await slow, first != second
            await kept.close()
            return result

    assert asyncio.run(scenario()) == (b"at once", True, b"late", True)


def test_connection_is_one_peers():
    """A free connection serves the next request to its peer, and none to another."""

    async def scenario():
        async with ScriptedRelay(answer=lambda _: (0, b"yes")) as relay:
            kept = channels()
            for peer in (ALICE.public, BOB.public, ALICE.public, BOB.public):
                await ask(kept, relay, peer)
            await kept.close()
            return [peer for peer, _ in relay.of_type(FrameType.SEND)]

    alice, bob, *again = asyncio.run(scenario())
    assert alice != bob
    assert again == [alice, bob]


def test_free_connection_is_closed():
    """A connection that nobody uses ends after its time, by our side."""

    async def scenario():
        async with ScriptedRelay(answer=lambda _: (0, b"yes")) as relay:
            kept = channels(idle_s=0.05)
            await ask(kept, relay, ALICE.public)
            await eventually(lambda: not relay.pipes, "the end of the connection")
            await kept.close()
            return kept.of(RelayUrl.parse(relay.url))

    assert asyncio.run(scenario()) == []


def test_connection_with_a_result_to_come_stays():
    """A caller that was cancelled leaves a connection that is not free until its result has come."""

    async def scenario():
        async with ScriptedRelay() as relay:
            kept = channels(idle_s=0.05)
            asking = asyncio.create_task(ask(kept, relay, ALICE.public))
            ((peer, _),) = await relay.wait_for(FrameType.SEND)
            asking.cancel()
            await asyncio.wait([asking])
            (channel,) = kept.of(RelayUrl.parse(relay.url))
            kept._timers[channel].cancel()
            kept._look_at(channel)
            stands = kept.of(RelayUrl.parse(relay.url)) == [channel]
            relay.send(peer, messages.SendResult(0, b""))
            await eventually(lambda: not relay.pipes, "the end of the connection")
            await kept.close()
            return stands

    assert asyncio.run(scenario())


@pytest.mark.parametrize("count", [PER_RELAY_MAX, PER_RELAY_MAX + 10])
def test_connections_to_one_relay_are_bounded(count):
    """Above the limit requests share connections instead of waiting for a free one, and all are answered."""

    async def scenario():
        async with ScriptedRelay() as relay:
            kept = channels()
            asking = [asyncio.create_task(ask(kept, relay, peer)) for peer in PEERS[:count]]
            sent = await relay.wait_for(FrameType.SEND, count)
            for peer, _ in sent:
                relay.send(peer, messages.SendResult(0, b"yes"))
            answers = await asyncio.gather(*asking)
            await kept.close()
            return len({peer for peer, _ in sent}), set(answers)

    assert asyncio.run(scenario()) == (PER_RELAY_MAX, {b"yes"})


def test_connections_in_all_are_bounded():
    """Above the limit a free connection of another peer or relay is closed for a new one."""

    async def scenario():
        kept = channels()
        places = [RelayUrl.parse(f"tcp://127.0.1.{number}:1") for number in range(1, CHANNELS_MAX + 20)]
        for place in places:
            with kept.lease(place, ALICE.public):
                pass
        left = [place for place in places if kept.of(place)]
        await kept.close()
        return left == places[-CHANNELS_MAX:]

    assert asyncio.run(scenario())


def test_few_handshakes_at_once():
    """A relay that takes its time to greet sees no more than so many connections that wait for its HELLO."""

    async def scenario():
        async with ScriptedRelay() as relay:
            waiting, most = [], 0

            def note(pipe):
                nonlocal most
                waiting.append(pipe)
                most = max(most, len(waiting))

            greet, relay.connected = relay.connected, note
            kept = channels()
            asking = [asyncio.create_task(ask(kept, relay, peer)) for peer in PEERS[:PER_RELAY_MAX]]
            for _ in range(PER_RELAY_MAX):
                await eventually(lambda: waiting, "a connection")
                greet(waiting.pop(0))
            for peer, _ in await relay.wait_for(FrameType.SEND, PER_RELAY_MAX):
                relay.send(peer, messages.SendResult(0, b""))
            await asyncio.gather(*asking)
            await kept.close()
            return most

    assert asyncio.run(scenario()) <= CONNECTING_MAX
