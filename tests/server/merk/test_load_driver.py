"""Laws of bench.merk.driver: what it takes for a fault of a relay is one."""

import asyncio

import pytest

from bench.merk.driver import ARRIVING_BYTES, BATCH, Client, Flow
from bench.websocket import PONG

PINGS = [b"\x89\x00", b"\x89\x04ping"]


class Wire(asyncio.Transport):
    """Collects what was written."""

    def __init__(self):
        super().__init__()
        self.written = b""

    def write(self, data):
        self.written += bytes(data)


def flow_of():
    """Return a flow, what its sender wrote, its receiver, and what the receiver wrote."""
    sender, receiver = (Client("/", "host", number) for number in (2, 1))
    for client in (sender, receiver):
        client.transport = Wire()
    return Flow(sender, receiver), sender.transport, receiver, receiver.transport


def arriving(written):
    """Return what a relay makes of the frames of a sender."""
    size = 4 + 4 + 376
    frames = [written[at + 8 : at + size] for at in range(0, len(written), size)]
    return [b"\x82\x7e" + len(frame).to_bytes(2, "big") + frame for frame in frames]


@pytest.mark.parametrize("ping", PINGS)
@pytest.mark.parametrize("cut", [0, 1, 2, ARRIVING_BYTES // 2, -1])
def test_ping_of_the_relay_is_no_wrong_frame(ping, cut):
    """A run of more than ten seconds gets one, anywhere between two frames and cut anywhere: it is answered."""

    async def scenario():
        flow, written, receiver, answers = flow_of()
        running = asyncio.create_task(flow.run(BATCH))
        await asyncio.sleep(0)
        frames = arriving(written.written)
        stream = b"".join(frames[:7]) + ping + b"".join(frames[7:])
        at = 7 * ARRIVING_BYTES + cut
        for piece in (stream[:at], stream[at:]):
            receiver.on_bytes(piece)
        await running
        return answers.written

    assert asyncio.run(scenario()) == PONG


def test_wrong_byte_is_still_found():
    """A frame that is not the one that was sent ends the run, with a ping before it or not."""

    async def scenario():
        flow, written, receiver, _ = flow_of()
        running = asyncio.create_task(flow.run(BATCH))
        await asyncio.sleep(0)
        frames = arriving(written.written)
        receiver.on_bytes(frames[0] + PINGS[0] + frames[2])
        with pytest.raises(AssertionError, match="not what was sent"):
            await running

    asyncio.run(scenario())
