"""Laws of a device with more peers than a relay takes commits: nobody is lost without a word (B8)."""

import asyncio
import contextlib

import pytest

from tests.sdk.build import BOB, LoopbackRelay, RunningDevice, echo, sender
from tests.server.build import eventually
from waystation.core.errors import LocalError
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.client.base import commit_of
from waystation.protocols.bhumi.messages import FrameType
from waystation.sdk.bhumi import BhumiState, Outcome, Trouble
from waystation.sdk.bhumi.pairing.admission import RESPONSE_TTL_S
from waystation.sdk.bhumi.state import HandshakeFacts

PEERS = 10_000
SPARES = 3


def key(number):
    return number.to_bytes(4, "big") + bytes(28)


def preimage(number, which):
    return number.to_bytes(4, "big") + bytes([which + 1]) * 28


def crowd(home, peers_count=PEERS):
    """Make a device with many peers of three permissions each, issued in rounds as if all had paired one by one."""
    with contextlib.closing(BhumiState(home)) as state, state.transaction():
        for number in range(peers_count):
            state.run(
                "INSERT INTO peers (id, alias, url, gives_spares, created) VALUES (?, ?, '', 1, 0)",
                key(number), f"peer {number}",
            )  # fmt: skip
            for which in range(SPARES):
                given = preimage(number, which)
                state.run(
                    "INSERT INTO issued (preimage, hint, peer, suite_hint) VALUES (?, ?, ?, ?)",
                    given, given[:8], key(number), given[-8:],
                )  # fmt: skip


def test_ten_thousand_peers_are_registered_as_far_as_possible(tmp_path):
    """Invites come first, then one permission of each peer that asked lately; the device says who is left out, once."""
    with contextlib.closing(BhumiState(tmp_path)) as state:
        invite = state.make_invite("bob").preimage
    crowd(tmp_path)

    async def scenario():
        async with LoopbackRelay() as relay, RunningDevice(tmp_path, relay.url, echo) as device:
            await device.until(Trouble)
            await asyncio.gather(device.listening())
            ((_, payload),) = await relay.wait_for(FrameType.I_AM)
            return wire.decode_i_am(payload).commits, [
                each.reason for each in device.events if isinstance(each, Trouble)
            ]

    commits, troubles = asyncio.run(scenario())

    latest = range(PEERS - 1, PEERS - wire.COMMITS_MAX, -1)
    assert commits == (commit_of(invite), *(commit_of(preimage(number, 0)) for number in latest))
    assert len(troubles) == 1
    assert troubles[0].startswith("5905 of 10000 peers cannot reach this device now: a relay takes 4096 commits, and 1")


def test_invite_that_nobody_could_use_is_refused(tmp_path):
    """Beyond what a relay takes an invitation is refused with the numbers, and made again when there is room."""
    crowd(tmp_path, wire.COMMITS_MAX - 1)
    with contextlib.closing(BhumiState(tmp_path)) as state:
        state.make_invite("the last")
        with pytest.raises(LocalError, match="4095 peers and 1 invites can reach this identity; a relay takes 4096"):
            state.make_invite("one more")
        state.unpair(key(7))
        state.make_invite("fits")


def test_crowded_device_answers_and_renews(tmp_path):
    """A peer of a crowded device asks again and again: what its answers give is registered, spares of others make room.

    No second I_AM is needed for that.
    """
    crowd(tmp_path / "alice", 2_000)

    async def scenario():
        async with LoopbackRelay() as relay, RunningDevice(tmp_path / "alice", relay.url, echo) as alice:
            token = alice.token()
            await alice.listening()
            async with sender(tmp_path, relay.url) as (bob, state):
                await bob.accept(token, alias="alice")
                await eventually(lambda: state.find_peer("alice").rights == SPARES, "spares")
                outcomes = {(await bob.send("alice", str(number))).outcome for number in range(8)}
            troubles = [event for event in alice.events if isinstance(event, Trouble)]
            return outcomes, len(relay.of_type(FrameType.I_AM)), troubles

    outcomes, introductions_count, troubles = asyncio.run(scenario())

    assert outcomes == {Outcome.ANSWERED}
    assert (introductions_count, troubles) == (1, [])


def test_order_of_what_is_registered(tmp_path):
    """What a peer has most likely never got comes after what it will use; an old answer can be asked for again."""
    now = [1_000.0]
    with contextlib.closing(BhumiState(tmp_path, clock=lambda: now[0])) as state:
        state.finish(bytes(32), BOB.public, (), HandshakeFacts("bob", ""))
        given = [bytes([number]) * 32 for number in range(1, 6)]
        state.answered(bytes([0x77]) * 32, BOB.public, b"answer", given[:3], None)
        state.answered(given[1], BOB.public, b"answer", given[3:4], None)
        soon = state.preimages()
        now[0] += RESPONSE_TTL_S + 1

        assert soon == [given[2], given[3], given[0]]
        assert state.preimages() == [given[2], given[1], given[3], given[0]]
        assert state.reach() == (0, 1)
