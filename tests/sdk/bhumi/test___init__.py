import asyncio
import random

from tests.sdk.build import LoopbackRelay
from waystation.protocols.bhumi.messages import FrameType
from waystation.sdk import bhumi
from waystation.sdk.bhumi import BhumiState, Device, Invite, Sender, encode_invite


def test_everything_promised_is_there():
    """Each public name can be imported from here."""
    assert [name for name in bhumi.__all__ if not hasattr(bhumi, name)] == []


def test_the_example_works(tmp_path):
    """What the module's docstring shows runs: a device answers hello to whoever accepted its invite."""

    async def answer(request):
        return f"hello {request.alias}"

    async def scenario():
        async with LoopbackRelay() as relay:
            state = BhumiState(tmp_path / "me")
            token = encode_invite(Invite(state.identity, state.add_invite("you", random.Random(1))))
            running = asyncio.create_task(Device(state, relay.url, answer).run())
            await relay.wait_for(FrameType.KEEPALIVE)
            other = BhumiState(tmp_path / "you")
            async with Sender(other, relay.url) as sender:
                peer = await sender.accept(token, alias="me")
                text = (await sender.send(peer, "hi")).text
            running.cancel()
            await asyncio.wait([running])
            state.close()
            other.close()
            return text

    assert asyncio.run(scenario()) == "hello you"
