"""Laws of sdk.bhumi_sender: what is left without an outcome, and what a later process makes of it."""

import asyncio
import json

import pytest

from tests.sdk.build import (
    ALICE,
    PREIMAGE,
    LoopbackRelay,
    RunningDevice,
    ScriptedRelay,
    echo,
    know_alice,
    sender,
    sends,
)
from tests.server.build import eventually
from waystation.protocols.bhumi.payload.contents import (
    HandshakeComplete,
    ResponseStatus,
    encode_payload,
)
from waystation.protocols.bhumi.payload.envelope import hint_of
from waystation.protocols.bhumi.payload.invite import Invite, encode_invite
from waystation.sdk.bhumi import Dialect, Timeouts
from waystation.sdk.errors import (
    UncertainError,
)


def test_uncertain_handshake_goes_on_with_the_same_token(tmp_path):
    """A handshake without outcome stays pending; accepting the token again repeats the very same bytes."""

    async def scenario():
        async with LoopbackRelay() as relay, RunningDevice(tmp_path / "alice", relay.url, echo) as alice:
            token = alice.token()
            await alice.listening()
            async with ScriptedRelay(answer=lambda _: (3, b"")) as deaf:
                async with sender(tmp_path, deaf.url, timeouts=Timeouts(doubt_s=0)) as (bob, _):
                    with pytest.raises(UncertainError, match="same token"):
                        await bob.accept(token, alias="alice")
                (first,) = sends(deaf)
            async with sender(tmp_path, relay.url) as (bob, state):
                peer = await bob.accept(token, alias="alice")
                await eventually(lambda: state.find_peer("alice").rights == 3, "spares")
                return first == sends(relay)[0], peer.alias, state.pending()

    assert asyncio.run(scenario()) == (True, "alice", [])


@pytest.mark.parametrize(
    ("status", "answer", "note", "left_count"),
    [
        (2, b"", "has no outcome yet", 1),
        (3, b"", "has no outcome yet", 1),
        (1, b"", "has no outcome yet", 1),
        (
            0,
            b"nonsense",
            "the answer is not sealed for this identity and request; does the device use this --e2e?",
            1,
        ),
    ],
)
def test_recovery_without_an_answer(tmp_path, status, answer, note, left_count):
    """Recovering says what became of each request; nothing that a relay says by itself is an outcome."""
    sealed = hint_of(PREIMAGE) + b"the very bytes"

    async def scenario():
        async with (
            ScriptedRelay(answer=lambda _: (status, answer)) as relay,
            sender(tmp_path, relay.url, timeouts=Timeouts(doubt_s=0, settle_s=0), find=False) as (bob, state),
        ):
            know_alice(state, PREIMAGE)
            state.begin_message(PREIMAGE, ALICE.public, sealed)
            (recovered,) = await bob.recover()
            return recovered.reply, recovered.note, [send.payload for send in sends(relay)], len(state.pending())

    assert asyncio.run(scenario()) == (None, note, [sealed], left_count)


def test_recovery_survives_one_that_cannot_be_sent(tmp_path):
    """A pending request that no relay takes does not keep the others from their outcome."""

    async def scenario():
        async with (
            ScriptedRelay(max_payload_bytes=10, answer=lambda _: (2, b"")) as relay,
            sender(tmp_path, relay.url, timeouts=Timeouts(doubt_s=0)) as (bob, state),
        ):
            know_alice(state)
            state.begin_message(bytes([1]) * 32, ALICE.public, bytes(11))
            state.begin_message(bytes([2]) * 32, ALICE.public, bytes(10))
            return [recovered.note for recovered in await bob.recover()]

    first, second = asyncio.run(scenario())

    assert "at most 10" in first
    assert second == "has no outcome yet"


@pytest.mark.parametrize("listed", [None, 1, [], ["zz" * 32], ["00" * 31], [" " * 2 + "00" * 31], [1], {"a": 1}])
def test_nonsense_for_spares_is_not_kept(tmp_path, listed):
    """Spares that are no preimages are not kept, and the peer is not asked again."""
    handed = iter([bytes([number]) * 32 for number in range(1, 9)])

    def node(send):
        if send.payload[:1] == b"\x01":
            return 0, encode_payload(HandshakeComplete(ResponseStatus.OK, next(handed), ""))
        return 0, json.dumps({"ok": True, "data": {"spares": listed}}).encode() + next(handed)

    async def scenario():
        plain = Dialect.NONE
        async with ScriptedRelay(answer=node) as relay, sender(tmp_path, relay.url, dialect=plain) as (bob, state):
            await bob.accept(encode_invite(Invite(ALICE.public, PREIMAGE)), alias="node")
            await eventually(lambda: not state.find_peer("node").gives_spares, "the end of asking")
            return state.find_peer("node").rights

    assert asyncio.run(scenario()) == 1
