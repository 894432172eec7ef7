"""A device that moves, and a sender that only knows where it was: real relays and sockets."""

import asyncio

import pytest

from tests.sdk.build import RunningDevice
from tests.sdk.open_build import two_relays
from waystation.sdk import bhumi_device
from waystation.sdk.bhumi import BhumiState, Moved, Patience, Sender

PATIENT = Patience(doubt_s=20.0, settle_s=1.0)


class Gate:
    """A handler that counts its calls and answers once the test lets it."""

    def __init__(self):
        self.calls = []
        self.called = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, request):
        self.calls.append(request.text)
        self.called.set()
        await self.opened.wait()
        return f"answer to {request.text}"


async def pair(tmp_path, alice, old):
    """Return a sender that has accepted Alice's invite and knows the old relay only, and its state."""
    state = BhumiState(tmp_path / "bob")
    sender = Sender(state, old.url, patience=PATIENT)
    await sender.__aenter__()
    await sender.accept(alice.token(), alias="alice")
    return sender, state


@pytest.mark.parametrize("late", [False, True], ids=["answered at the old relay", "answered after the move"])
def test_device_moves_in_mid_exchange(tmp_path, monkeypatch, late):
    """The answer arrives whether it is ready before the old relay is left or after, and the handler runs once."""
    monkeypatch.setattr(bhumi_device, "LEAVE_S", 0.05 if late else 10.0)

    async def scenario():
        gate = Gate()
        async with two_relays() as (old, new), RunningDevice(tmp_path / "alice", old.url, gate) as alice:
            await alice.listening()
            bob, state = await pair(tmp_path, alice, old)
            asking = asyncio.create_task(bob.send("alice", "hi"))
            await gate.called.wait()
            await alice.device.move(new.url)
            if late:
                await old.until_left(alice.state.identity)
            gate.opened.set()
            reply = await asking
            again = await bob.send("alice", "again")
            place = state.place_of(alice.state.identity)
            await bob.__aexit__(None, None, None)
            state.close()
            return reply.text, again.text, gate.calls, place == new.url, await alice.until(Moved)

    reply, again, calls, is_remembered, moved = asyncio.run(scenario())
    assert (reply, again) == ("answer to hi", "answer to again")
    assert calls == ["hi", "again"]
    assert is_remembered
    assert len(moved) == 1
