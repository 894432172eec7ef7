"""Laws of sending.handshakes: an invite in doubt goes on with its bytes; what certainly failed leaves nothing."""

import asyncio

import pytest

from tests.sdk.build import ALICE, PREIMAGE, ScriptedRelay, sender, sends
from tests.server.build import eventually
from waystation.protocols.bhumi.messages import FrameType, SendResult
from waystation.protocols.bhumi.payload.contents import HandshakeComplete, ResponseStatus, encode_payload
from waystation.protocols.bhumi.payload.invite import Invite, encode_invite
from waystation.sdk.bhumi import Dialect, Timeouts
from waystation.sdk.errors import InviteRefusedError, OfflineError, RelayUnreachableError, UncertainError

TOKEN = encode_invite(Invite(ALICE.public, PREIMAGE))
HASTY = Timeouts(doubt_s=0, settle_s=0)
YES = encode_payload(HandshakeComplete(ResponseStatus.OK, bytes([7]) * 32, ""))


@pytest.mark.parametrize(
    ("status", "error", "left_count"),
    [(1, OfflineError, 0), (2, InviteRefusedError, 0), (3, UncertainError, 1), (0, InviteRefusedError, 0)],
)
def test_what_is_left_of_a_handshake(tmp_path, status, error, left_count):
    """Only doubt keeps the handshake; what it issued for the inviter stays, for a relay that denies it may lie."""

    async def scenario():
        async with (
            ScriptedRelay(answer=lambda _: (status, b"garbage" if status == 0 else b"")) as relay,
            sender(tmp_path, relay.url, find=False, timeouts=HASTY) as (bob, state),
        ):
            with pytest.raises(error):
                await bob.accept(TOKEN)
            return len(state.pending()), len(state.preimages())

    assert asyncio.run(scenario()) == (left_count, 1)


def test_call_that_was_given_up_leaves_the_bytes_of_a_later_one(tmp_path):
    """A handshake that ends behind its call takes nothing back of another one with the same token."""

    async def scenario():
        async with (
            ScriptedRelay() as relay,
            sender(tmp_path, relay.url, find=False, timeouts=HASTY) as (bob, state),
        ):
            for count in (1, 2):
                call = asyncio.create_task(bob.accept(TOKEN))
                await relay.wait_for(FrameType.SEND, count)
                call.cancel()
            (first, _), (second, _) = relay.of_type(FrameType.SEND)
            relay.send(first, SendResult(1))
            await eventually(lambda: not state.pending(), "the end of the first")
            call = asyncio.create_task(bob.accept(TOKEN))
            await relay.wait_for(FrameType.SEND, 3)
            held = state.pending()
            relay.send(second, SendResult(0, b"garbage"))
            await eventually(lambda: len(state.all("SELECT 1 FROM heads")) == 2, "the end of the second")
            call.cancel()
            return held, state.pending()

    held, pending = asyncio.run(scenario())

    assert len(held) == 1
    assert pending == held


def test_answer_to_a_call_that_was_given_up_pairs_the_later_one(tmp_path):
    """A later call that has written other bytes, and gets nothing for them, returns the peer that the first one met."""

    async def scenario():
        async with (
            ScriptedRelay() as relay,
            sender(tmp_path, relay.url, find=False, timeouts=HASTY, dialect=Dialect.NONE) as (bob, state),
        ):
            for count in (1, 2):
                call = asyncio.create_task(bob.accept(TOKEN))
                await relay.wait_for(FrameType.SEND, count)
                call.cancel()
            (first, _), (second, _) = relay.of_type(FrameType.SEND)
            relay.send(first, SendResult(1))
            await eventually(lambda: not state.pending(), "the end of the first")
            call = asyncio.create_task(bob.accept(TOKEN))
            (*_, (third, _)) = await relay.wait_for(FrameType.SEND, 3)
            relay.send(second, SendResult(0, YES))
            await eventually(state.peers, "the answer to the second")
            relay.send(third, SendResult(0, b"garbage"))
            return (await call).identity

    assert asyncio.run(scenario()) == ALICE.public


def test_call_that_is_given_up_before_it_leaves_takes_nothing_from_the_next(tmp_path):
    """The next call goes on with its bytes, and they stay pending once they have left."""

    async def scenario():
        async with (
            ScriptedRelay() as relay,
            sender(tmp_path, relay.url, find=False, timeouts=HASTY) as (bob, state),
        ):
            first = asyncio.create_task(bob.accept(TOKEN))
            await eventually(state.pending, "the first")
            following = asyncio.create_task(bob.accept(TOKEN))
            first.cancel()
            await relay.wait_for(FrameType.SEND)
            left = [each.payload for each in state.pending()]
            following.cancel()
            return left, [each.payload for each in sends(relay)]

    left, sent = asyncio.run(scenario())

    assert left == sent[:1]


def test_no_relay_leaves_the_token_good(tmp_path):
    """Without a relay nothing has left, and nothing is kept."""

    async def scenario():
        async with sender(tmp_path, "tcp://127.0.0.1:1", find=False) as (bob, state):
            with pytest.raises(RelayUnreachableError):
                await bob.accept(TOKEN)
            return state.pending(), state.preimages()

    assert asyncio.run(scenario()) == ([], [])


def test_handshake_in_doubt_can_go_on_in_another_dialect(tmp_path):
    """A handshake in doubt repeats its bytes, but one whose dialect the user corrects is written anew."""
    told = iter([(3, b""), (3, b""), (0, YES)])

    async def scenario():
        async with ScriptedRelay(answer=lambda _: next(told)) as relay:
            for dialect in (None, None, Dialect.NONE):
                async with sender(tmp_path, relay.url, find=False, timeouts=HASTY, dialect=dialect) as (bob, state):
                    try:
                        peer = await bob.accept(TOKEN, alias="alice")
                    except UncertainError:
                        continue
                    return peer.dialect, [send.payload for send in sends(relay)], state.pending()
            raise AssertionError("the last handshake has no outcome")

    dialect, payloads, pending = asyncio.run(scenario())

    assert (dialect, pending) == (Dialect.NONE, [])
    assert payloads[0] == payloads[1] != payloads[2]
