"""Laws of sending.liveness: each change is reported once, with its time."""

import asyncio

from tests.sdk.build import ALICE, PREIMAGE, LoopbackRelay, RunningDevice, echo, know_alice, sender
from tests.server.build import eventually
from waystation.sdk.bhumi import BhumiState, PeerOffline, PeerOnline, Timeouts
from waystation.sdk.bhumi.sending import liveness as bhumi_liveness
from waystation.sdk.bhumi.sending.liveness import Liveness


def test_changes_are_reported_once(tmp_path):
    """A peer counts as online until a request finds it away, and away until it answers."""
    state = BhumiState(tmp_path)
    know_alice(state, PREIMAGE)
    told, times = [], iter([10.0, 20.0])
    liveness = Liveness(state, told.append, clock=lambda: next(times))
    for is_online in (True, False, False, True, True):
        liveness.note(ALICE.public, is_online)
    state.close()

    assert told == [PeerOffline(ALICE.public, "alice", 10.0), PeerOnline(ALICE.public, "alice", 20.0)]
    assert not liveness.is_away(ALICE.public)


def test_table_is_bounded(tmp_path, monkeypatch):
    """The peer that is away longest is forgotten above the limit."""
    monkeypatch.setattr(bhumi_liveness, "AWAY_MAX", 2)
    state = BhumiState(tmp_path)
    liveness = Liveness(state, lambda _: None)
    peers = [bytes([number]) * 32 for number in range(3)]
    for peer in peers:
        liveness.note(peer, False)
    state.close()

    assert [liveness.is_away(peer) for peer in peers] == [False, True, True]


def test_send_reports_who_is_away_and_back(tmp_path):
    """A request that waits for an offline peer reports that at once, and that it answers again."""
    told = []

    async def scenario():
        async with LoopbackRelay() as relay:
            async with RunningDevice(tmp_path / "alice", relay.url, echo) as alice:
                token = alice.token()
                await alice.listening()
                async with sender(tmp_path, relay.url) as (bob, _):
                    await bob.accept(token, alias="alice")
            patient = Timeouts(wait_s=10)
            async with sender(tmp_path, relay.url, timeouts=patient, on_event=told.append) as (bob, _):
                asking = asyncio.create_task(bob.send("alice", "x"))
                await eventually(lambda: told, "an event")
                async with RunningDevice(tmp_path / "alice", relay.url, echo):
                    await asking

    asyncio.run(scenario())
    assert [type(event) for event in told] == [PeerOffline, PeerOnline]
    assert told[0].alias == "alice" and told[0].since_s < told[1].since_s
