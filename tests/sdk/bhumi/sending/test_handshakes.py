"""Laws of sending.handshakes: an invite in doubt goes on with its bytes; what certainly failed leaves nothing."""

import asyncio

import pytest

from tests.sdk.build import ALICE, PREIMAGE, ScriptedRelay, sender, sends
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
    """Only doubt keeps the handshake, and what it issued for the inviter."""

    async def scenario():
        async with (
            ScriptedRelay(answer=lambda _: (status, b"garbage" if status == 0 else b"")) as relay,
            sender(tmp_path, relay.url, find=False, timeouts=HASTY) as (bob, state),
        ):
            with pytest.raises(error):
                await bob.accept(TOKEN)
            return len(state.pending()), len(state.preimages())

    assert asyncio.run(scenario()) == (left_count, left_count)


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
