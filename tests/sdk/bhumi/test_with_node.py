"""The SDK against the real node in a process of its own, over TLS."""

import asyncio
import contextlib
import json
from dataclasses import replace

import pytest

from tests.sdk.build import QUICK, RunningDevice, echo
from tests.server.build import eventually
from tools.served import ServedNode
from waystation.protocols.bhumi.messages import Status
from waystation.protocols.bhumi.payload.invite import decode_invite, encode_invite
from waystation.sdk.bhumi import BhumiClient, BhumiState, Dialect, Disconnected, Handled, Sender, Timeouts
from waystation.sdk.bhumi.sending.channel import Channel
from waystation.sdk.bhumi.sending.retry import Verdict
from waystation.sdk.errors import OfflineError, RelayUnreachableError
from waystation.transport.dial import RelayUrl
from waystation.transport.tls import client_context


class Node(ServedNode):
    """A node with Bhumi alone, over TLS."""

    def __init__(self, home):
        super().__init__(home, "bhumi")

    @property
    def url(self):
        return self.address_of("bhumi")

    @property
    def tls(self):
        return client_context(self.home / "tls" / "ca.pem")


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node for the module."""
    running = Node(tmp_path_factory.mktemp("node")).start()
    yield running
    assert running.stop() == 0


@contextlib.asynccontextmanager
async def pairing(tmp_path, node, handler=echo, **options):
    """Give a listening device, a sender that has accepted its invite, and the sender's state."""
    dialect = {"dialect": options["dialect"]} if "dialect" in options else {}
    async with RunningDevice(tmp_path / "alice", node.url, handler, tls=node.tls, **options) as alice:
        await alice.listening()
        state = BhumiState(tmp_path / "bob")
        timeouts = Timeouts(doubt_s=10, settle_s=1)
        async with Sender(state, node.url, tls=node.tls, timeouts=timeouts, **dialect) as bob:
            await bob.accept(alice.token(legacy="dialect" in options), alias="alice")
            await eventually(lambda: state.find_peer("alice").rights == 3, "spares")
            yield alice, bob, state
        state.close()


def test_request_and_response(node, tmp_path):
    """An invite made while listening pairs two strangers over TLS, and requests are answered in one try each."""

    async def scenario():
        async with pairing(tmp_path, node) as (alice, bob, state):
            replies = [await bob.send("alice", text) for text in ("one", "two")]
            (listening,) = await alice.listening()
            return (
                [(reply.text, reply.tries_count) for reply in replies],
                listening.confirmed,
                state.find_peer("alice").rights,
            )

    assert asyncio.run(scenario()) == ([("one", 1), ("two", 1)], True, 3)


def test_cancelled_call_is_answered_behind(node, tmp_path):
    """A call that is cancelled leaves its request behind: it is answered once, and ``recover`` has the answer."""

    async def scenario():
        calls, called, gate = [], asyncio.Event(), asyncio.Event()

        async def slow(request):
            calls.append(request.text)
            called.set()
            await gate.wait()
            return "kept"

        async with pairing(tmp_path, node, slow) as (_, bob, state):
            asking = asyncio.create_task(bob.send("alice", "x"))
            await called.wait()
            asking.cancel()
            await asyncio.wait([asking])
            gate.set()
            await eventually(lambda: not state.pending(), "the outcome")
            (recovered,) = await bob.recover()
            return recovered.reply.text, calls, state.find_peer("alice").rights

    assert asyncio.run(scenario()) == ("kept", ["x"], 3)


def test_offline_then_back(node, tmp_path):
    """A peer that is away is reported at once; with timeouts the request waits until it is back."""

    async def scenario():
        async with pairing(tmp_path, node):
            pass
        state = BhumiState(tmp_path / "bob")
        async with Sender(state, node.url, tls=node.tls, timeouts=QUICK) as bob:
            with pytest.raises(OfflineError):
                (await bob.send("alice", "x")).check()
        async with Sender(state, node.url, tls=node.tls, timeouts=Timeouts(wait_s=10)) as bob:
            asking = asyncio.create_task(bob.send("alice", "again"))
            async with RunningDevice(tmp_path / "alice", node.url, echo, tls=node.tls):
                reply = await asking
        rights = state.find_peer("alice").rights
        state.close()
        return reply.text, rights

    assert asyncio.run(scenario()) == ("again", 3)


def test_replayed_preimage_is_refused(node, tmp_path):
    """A preimage that was used and answered is worth nothing afterwards: status 2, and the device is not bothered."""

    async def scenario():
        async with pairing(tmp_path, node) as (alice, bob, state):
            used = state.next_right(alice.state.identity)
            await bob.send("alice", "x")
            channel = Channel(RelayUrl.parse(node.url), node.tls, 5)
            first = await channel.ask(alice.state.identity, used, b"replay")
            second = await channel.ask(alice.state.identity, used, b"replay")
            await channel.close()
            return first[0], second

    # The first replay fetches the cached answer (spec 5.3 step 1), sealed for Bob; then the entry is gone.
    first, second = asyncio.run(scenario())

    assert first is Verdict.ANSWERED
    assert second[0] is Verdict.SPENT
    assert f"status {Status.BAD_PREIMAGE.value}" in second[2]


def test_relay_killed_and_started_again(tmp_path):
    """After kill -9 and a restart the device is back by itself and the same peers go on talking."""
    node = Node(tmp_path).start()

    async def scenario():
        async with pairing(tmp_path, node) as (alice, bob, _):
            before = (await bob.send("alice", "before")).text
            node.kill()
            await alice.until(Disconnected)
            await asyncio.get_running_loop().run_in_executor(None, node.start)
            await alice.listening(2)
            return before, (await bob.send("alice", "after")).text

    texts = asyncio.run(scenario())

    assert texts == ("before", "after")
    assert node.stop() == 0


def test_answers_move_to_another_relay(node, tmp_path):
    """The answer to a lost request is carried to a second relay, which gives it to the sender's retry."""
    other = Node(tmp_path).start()

    async def scenario():
        calls, called, gate = [], asyncio.Event(), asyncio.Event()

        async def slow(request):
            calls.append(request.text)
            called.set()
            await gate.wait()
            return "carried"

        async with pairing(tmp_path, node, slow) as (alice, bob, _):
            asking = asyncio.create_task(bob.send("alice", "x"))
            await called.wait()
            asking.cancel()
            await asyncio.wait([asking])
            gate.set()
            await alice.until(Handled)
        state = BhumiState(tmp_path / "bob")
        async with (
            RunningDevice(tmp_path / "alice", other.url, slow, tls=other.tls) as moved,
            Sender(state, other.url, tls=other.tls, timeouts=QUICK) as bob,
        ):
            await moved.listening()
            (recovered,) = await bob.recover()
        state.close()
        return recovered.reply.text, calls

    result = asyncio.run(scenario())

    assert result == ("carried", ["x"])
    assert other.stop() == 0


def test_plaintext(node, tmp_path):
    """Without encryption, commands of the original node go through, too."""

    async def scenario():
        async def answer(request):
            return json.dumps({"did": request.command().cmd})

        async with pairing(tmp_path, node, answer, dialect=Dialect.NONE) as (_, bob, state):
            return await bob.command("alice", "led"), state.find_peer("alice").rights

    assert asyncio.run(scenario()) == ({"did": "led"}, 3)


def test_token_brings_the_authority(node, tmp_path):
    """Over TLS to a node with an authority of its own, the token is all: the client trusts that one from then on."""

    async def scenario():
        async with BhumiClient(tmp_path / "alice", node.url, tls=node.tls) as alice:
            token = alice.invite("bob")
            serving = asyncio.create_task(alice.serve(echo))
            async with BhumiClient(tmp_path / "bob") as bob:
                await bob.accept(token, alias="alice")
            async with BhumiClient(tmp_path / "bob") as bob:
                reply = await bob.send("alice", "again")
                kept = bob.state.authorities()
            serving.cancel()
            await asyncio.wait([serving])
            return reply.text, len(kept), decode_invite(token).relays

    assert asyncio.run(scenario()) == ("again", 1, (node.url,))


def test_another_authority_is_refused(node, tmp_path):
    """A token that names another authority than the node shows pairs nobody, and says why."""

    async def scenario():
        async with BhumiClient(tmp_path / "alice", node.url, tls=node.tls) as alice:
            invite = replace(decode_invite(alice.invite("bob")), authority=bytes(32))
            async with BhumiClient(tmp_path / "bob") as bob:
                with pytest.raises(RelayUnreachableError, match="does not show the authority"):
                    await bob.accept(encode_invite(invite))
                return bob.state.authorities(), bob.peers()

    assert asyncio.run(scenario()) == ([], [])
