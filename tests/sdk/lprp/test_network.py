"""Over networks that lose, double and reorder datagrams, between real UDP ports: everything arrives once."""

import asyncio
import contextlib

import pytest

from tests.sdk.lprp.build import STUBBORN, HostServer, LossyNetwork, run, take
from waystation.sdk.lprp import ClientSettings, LprpSender, LprpTenant, Outcome

HASTY = ClientSettings(retry_ms=20, tries=8, work_first_bits=4, heartbeat_ms=500)
QUIET_S = 0.1


async def send_stubbornly(sender, recipient, text, room):
    """Send a text until it is accepted, as the same message each time."""
    message_id = None
    async with room:
        while True:
            sent = await sender.send(recipient, text, message_id=message_id, timeout_s=1.0)
            if sent.outcome is Outcome.ACCEPTED:
                return
            message_id = sent.message_id


async def until_quiet(holds, listening):
    """Wait until something holds, and a moment longer for what should not come any more."""
    while not holds():
        await asyncio.wait([listening], timeout=0.02)
    await asyncio.wait([listening], timeout=QUIET_S)
    listening.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await listening


@pytest.mark.parametrize("count", [100, pytest.param(500, marks=pytest.mark.slow)])
def test_relays_with_loss_duplication_and_reordering_both_ways(tmp_path, count):
    """With 20 % loss, 10 % duplication and reordering both ways each arrives exactly once; the queue is empty."""
    texts = [f"message {number}" for number in range(count)]
    came = []
    note = came.append

    async def scenario():
        async with HostServer(retry_ms=20, retries=20) as server, LossyNetwork(server.host, seed=7) as way:
            alice = LprpTenant(tmp_path / "alice", way.host, settings=STUBBORN)
            bob = LprpSender(tmp_path / "bob", way.host, settings=HASTY)
            async with alice, bob:
                await alice.allow(bob.public_key)

                async def listen():
                    async for message in alice.messages():
                        note(message.text)

                def is_over():
                    # A packet of a send that was given up is still repeated, and may be accepted until it has ended.
                    on_the_way = bob.connection.machine.sizes()
                    return (
                        len(came) >= count
                        and not on_the_way["waiting"] + on_the_way["in_flight"]
                        and not server.queue(alice.public_key)
                    )

                listening = asyncio.ensure_future(listen())
                room = asyncio.Semaphore(100)
                await asyncio.gather(*(send_stubbornly(bob, alice.public_key, text, room) for text in texts))
                await until_quiet(is_over, listening)
                return server.queue(alice.public_key), way

    queue, way = run(scenario, timeout_s=60)

    assert sorted(came) == sorted(texts)
    assert queue == 0
    assert way.lost > count / 2
    assert way.doubled > count / 4


def test_long_message_over_a_bad_network(tmp_path):
    """A message of 60 packets, from somebody who must work for none of them, comes whole and once."""
    text = "".join(f"line {number}\n" for number in range(1_600))

    async def scenario():
        async with HostServer() as server, LossyNetwork(server.host, seed=3) as way:
            alice = LprpTenant(tmp_path / "alice", way.host, settings=STUBBORN)
            async with alice, LprpSender(tmp_path / "bob", way.host, settings=STUBBORN) as bob:
                await alice.allow(bob.public_key)
                sent = await bob.send(alice.public_key, text)
                (message,) = await take(alice)
                return sent, message.text

    sent, came = run(scenario)

    assert came == text
    assert (sent.outcome, sent.accepted_count) == (Outcome.ACCEPTED, sent.parts_count)
    assert sent.parts_count > 50
