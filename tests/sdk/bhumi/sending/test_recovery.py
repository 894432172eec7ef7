"""Laws of sending.recovery: what a sender left behind is asked for by one program, and nobody waits for it."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.sdk.build import LoopbackRelay, RunningDevice, echo, paired, sender, sends
from tests.server.build import eventually
from waystation.protocols.bhumi.payload.contents import Command, ContentType, DeviceMessage, encode_command
from waystation.sdk.bhumi import BhumiState, Outcome, PendingKind, Sender, Timeouts
from waystation.sdk.bhumi.sending.outgoing import Outgoing

_ASKING = """
import asyncio, pathlib, sys
from waystation.sdk.bhumi import BhumiState, Sender

async def main():
    state = BhumiState(pathlib.Path(sys.argv[1]))
    async with Sender(state, sys.argv[2]) as bob:
        print((await bob.send("alice", sys.argv[3])).text, flush=True)

asyncio.run(main())
"""


def asking(home, relay, text):
    """Start a program that asks Alice, as Bob."""
    command = [sys.executable, "-c", _ASKING, str(home), relay.url, text]
    return asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, cwd=Path.cwd(), env=os.environ)


def test_two_programs_ask_beside_each_other(tmp_path):
    """A second program of the same home is answered while the first waits; neither recovers what the other works on."""

    async def scenario():
        calls, gate = [], asyncio.Event()

        async def slow(request):
            calls.append(request.text)
            if request.text == "slow":
                await gate.wait()
            return request.text.upper()

        async with LoopbackRelay() as relay, paired(tmp_path, relay, slow) as (_, bob, state):
            other = await asking(tmp_path / "bob", relay, "slow")
            await eventually(lambda: calls, "the first request")
            quick = await bob.send("alice", "quick")
            recovered = await bob.recover()
            gate.set()
            said, _ = await other.communicate()
            await eventually(lambda: not state.pending(), "all outcomes")
            return quick.text, recovered, said.decode().strip(), calls

    assert asyncio.run(scenario()) == ("QUICK", [], "SLOW", ["slow", "quick"])


def test_killed_program_is_recovered_once(tmp_path):
    """After kill -9 in the middle of a request another program gets its answer; the handler was called once."""

    async def scenario():
        calls, gate = [], asyncio.Event()

        async def slow(request):
            calls.append(request.text)
            await gate.wait()
            return "late"

        async with LoopbackRelay() as relay, paired(tmp_path, relay, slow) as (_, bob, state):
            other = await asking(tmp_path / "bob", relay, "x")
            await eventually(lambda: calls, "the request")
            other.send_signal(signal.SIGKILL)
            await other.wait()
            gate.set()
            (recovered,) = await bob.recover()
            await eventually(lambda: state.find_peer("alice").rights == 3, "its permission")
            return recovered.reply.text, calls, state.pending()

    assert asyncio.run(scenario()) == ("late", ["x"], [])


def test_spares_in_doubt_are_gained_later(tmp_path):
    """What asked for spares and was cut off is asked again with its bytes, and gives them."""

    async def scenario():
        async with LoopbackRelay() as relay, paired(tmp_path, relay) as (_, bob, state):
            kept = Outgoing(state, "dead")
            for _ in range(3):  # all three permissions are in doubt, and nothing of them has arrived
                kept.take(
                    state.find_peer("alice").identity,
                    PendingKind.SPARES,
                    lambda preimage: bob._write(state.find_peer("alice"), preimage, _spares_wanted()),
                    root=state.find_peer("alice").root,
                )
            reply = await bob.send("alice", "x")
            return reply.text, state.find_peer("alice").rights > 0

    assert asyncio.run(scenario()) == ("x", True)


def _spares_wanted():
    return DeviceMessage(ContentType.COMMAND, encode_command(Command("spares", {"n": 2})))


def test_peer_that_is_away_is_said_to_be_so(tmp_path):
    """With every permission in doubt and the peer away, the outcome is that it is offline, without a long wait."""

    async def scenario():
        async with LoopbackRelay() as relay:
            async with paired(tmp_path, relay) as (_, _, state):
                kept, peer = Outgoing(state, "dead"), state.find_peer("alice").identity
                for _ in range(3):
                    kept.take(peer, PendingKind.MESSAGE, lambda _: b"x")
            async with sender(tmp_path, relay.url, find=False, timeouts=Timeouts()) as (bob, state):
                async with asyncio.timeout(10):
                    return (await bob.send("alice", "x")).outcome, len(state.pending())

    assert asyncio.run(scenario()) == (Outcome.OFFLINE, 3)


def test_reply_of_a_former_process_is_kept_for_recover(tmp_path):
    """A send that frees a permission by an older request's answer keeps that answer for ``recover``."""

    async def scenario():
        async with LoopbackRelay() as relay, RunningDevice(tmp_path / "alice", relay.url, echo) as alice:
            token = alice.token()
            await alice.listening()
            state = BhumiState(tmp_path / "bob")
            async with Sender(state, relay.url) as bob:
                await bob.accept(token, alias="alice")
                await eventually(lambda: state.find_peer("alice").rights == 3, "spares")
                record = state.find_peer("alice")
                kept = Outgoing(state, "dead")
                for number in range(3):
                    kept.take(
                        record.identity,
                        PendingKind.MESSAGE,
                        lambda preimage, number=number: bob._write(record, preimage, _text(str(number))),
                        root=record.root,
                    )
                reply = await bob.send("alice", "now")
                await eventually(lambda: not state.pending(), "all outcomes")
                texts = sorted(each.reply.text for each in await bob.recover())
            state.close()
            return reply.text, texts, len({send.preimage for send in sends(relay)}) == len(set(sends(relay)))

    assert asyncio.run(scenario()) == ("now", ["0", "1", "2"], True)


def _text(content):
    return DeviceMessage(ContentType.TEXT, content.encode())


def test_new_invite_ends_a_doubt_that_nothing_else_can(tmp_path):
    """Where the device has forgotten all permissions in doubt, the error asks for a new invite, and that helps."""

    async def story():
        async with (
            LoopbackRelay() as relay,
            paired(tmp_path, relay, timeouts=Timeouts(doubt_s=0.3, settle_s=2.0)) as (alice, bob, state),
        ):
            peer = state.find_peer("alice")
            while (right := state.next_right(peer.identity)) is not None:
                state.begin_message(right, peer.identity, bytes(200), peer.root)
                alice.state.withdraw(right)
            stuck = await bob.send("alice", "first")
            pending = len(state.pending())
            await bob.accept(alice.token("bob"), alias="alice")
            return stuck, pending, await bob.send("alice", "second")

    stuck, pending, reply = asyncio.run(story())

    assert stuck.outcome is Outcome.PERMISSIONS_IN_DOUBT
    assert "new invite" in stuck.sentence
    assert pending == 3
    assert reply.content == b"second"
