"""What a relay that lies cannot do: the tests of the table in docs/bhumi.md, over real sockets."""

import asyncio
import contextlib

import pytest

from tests.sdk.bhumi.hostile import Eve, HostileRelay
from tests.sdk.build import QUICK, RunningDevice, sender
from waystation.protocols.bhumi import messages
from waystation.protocols.bhumi.client.base import commit_of
from waystation.sdk.bhumi import Dialect, Handled, PeerJoined, Trouble
from waystation.sdk.bhumi.answers import KEPT_VALID_MAX
from waystation.sdk.bhumi.dialect import dialect_of
from waystation.sdk.bhumi.retry import Timeouts

EVE = Eve()
SOON = Timeouts(doubt_s=0.3, settle_s=0.0)
WEAKER = [Dialect.NONE, Dialect.E2E, Dialect.SUITE_1, Dialect.SUITE_2]
every_form = pytest.mark.parametrize("dialect", list(Dialect))


class Stage:
    """A hostile relay, a device "alice" that counts what its handler gets, and her peer "bob"."""

    def __init__(self, relay, alice, bob, state, calls):
        self.relay, self.alice, self.bob, self.state, self.calls = relay, alice, bob, state, calls

    @property
    def device(self):
        """Whom the forgeries are for."""
        return self.alice.state.identity

    async def troubles(self, count=1):
        """Return the reasons that Alice has for not taking something."""
        return [trouble.reason for trouble in await self.alice.until(Trouble, count)]


@contextlib.asynccontextmanager
async def stage(tmp_path, *, pairs=True, legacy=False, timeouts=QUICK, **options):
    """Give all of it; Bob is paired unless told otherwise."""
    calls = []

    async def handler(request):
        calls.append((request.alias, request.content))
        return b"done " + request.content

    async with (
        HostileRelay() as relay,
        RunningDevice(tmp_path / "alice", relay.url, handler) as alice,
        sender(tmp_path, relay.url, timeouts=timeouts, **options) as (bob, state),
    ):
        await alice.listening()
        if pairs:
            await bob.accept(alice.token(legacy=legacy), alias="alice")
        yield Stage(relay, alice, bob, state, calls)


@every_form
def test_relay_cannot_forge_a_request(tmp_path, dialect):
    """Every preimage that passed through, in every form that Eve can write: no handler is called, no permission lost."""

    async def scenario():
        async with stage(tmp_path) as scene:
            await scene.bob.send("alice", b"one")
            scene.relay.rewrite = lambda _: None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await scene.bob.send("alice", b"held back")
            preimages = scene.relay.preimages()
            before = len(scene.calls)
            issued = scene.alice.state.preimages()
            answers = [
                await scene.relay.ask(scene.device, each, EVE.request(dialect, scene.device, each))
                for each in preimages
            ]
            return len(preimages), before, scene.calls, answers[-1], scene.alice.state.preimages() == issued

    count, before, calls, answer, kept = asyncio.run(scenario())

    assert count >= 3
    assert calls == [("bob", b"one")] and before == 1
    assert (answer, kept) == (b"", True)


@every_form
def test_relay_cannot_put_its_own_request_in_the_place_of_another(tmp_path, dialect):
    """A request that is exchanged on its way is not handled; the true one, tried again, is."""

    async def scenario():
        async with stage(tmp_path) as scene:

            def exchange(send):
                scene.relay.rewrite = lambda send: send
                return messages.Send(send.recipient, send.preimage, EVE.request(dialect, scene.device, send.preimage))

            scene.relay.rewrite = exchange
            reply = await scene.bob.send("alice", b"lights on")
            return reply.outcome.value, scene.calls

    outcome, calls = asyncio.run(scenario())

    assert ("bob", b"UNLOCK THE DOOR") not in calls
    assert calls in ([("bob", b"lights on")], [])
    assert outcome != "answered" or calls


@every_form
def test_relay_cannot_answer_in_the_place_of_a_device(tmp_path, dialect):
    """An answer that the device did not give is none, in whatever form: Bob is in doubt, and gains no permission."""

    async def scenario():
        async with stage(tmp_path, timeouts=SOON) as scene:
            bob = scene.state.identity
            scene.relay.answer = lambda send, _: messages.SendResult(0, EVE.answer(dialect, bob, send))
            reply = await scene.bob.send("alice", b"lights on")
            gained = scene.state.all("SELECT 1 FROM theirs WHERE preimage = ?", bytes([0xEF]) * 32)
            return reply.ok, reply.content, gained

    assert asyncio.run(scenario()) == (False, b"", [])


@every_form
def test_relay_cannot_use_an_invite_that_passes_through(tmp_path, dialect):
    """Eve sees the preimage of an invite, and pairs neither as herself nor as Bob; Bob, who has the token, does."""

    async def scenario():
        async with stage(tmp_path, pairs=False) as scene:
            token = scene.alice.token()
            (invite,) = scene.alice.state.preimages()
            bob = scene.state.identity
            for sender_ in (None, bob):
                forged = EVE.handshake(dialect, scene.device, invite, sender_)
                assert await scene.relay.ask(scene.device, invite, forged) == b""
            joined = [event for event in scene.alice.events if isinstance(event, PeerJoined)]
            strangers = scene.alice.state.peers()
            peer = await scene.bob.accept(token, alias="alice")
            reply = await scene.bob.send(peer, b"hello")
            return joined, strangers, reply.content

    assert asyncio.run(scenario()) == ([], [], b"done hello")


@every_form
def test_relay_cannot_welcome_in_the_place_of_an_inviter(tmp_path, dialect):
    """Whoever answers a handshake without the inviter's key is not taken for the inviter."""

    async def scenario():
        async with stage(tmp_path, pairs=False, timeouts=SOON) as scene:
            bob = scene.state.identity
            scene.relay.answer = lambda send, _: messages.SendResult(0, EVE.welcome(dialect, bob, send))
            with pytest.raises(Exception, match=r"refused|outcome"):
                await scene.bob.accept(scene.alice.token(), alias="alice")
            return scene.state.peers()

    assert asyncio.run(scenario()) == []


def test_relay_cannot_give_the_answer_of_one_request_to_another(tmp_path):
    """An answer that the device has given, kept back, and handed out for another request, is none to that one."""

    async def scenario():
        async with stage(tmp_path, timeouts=SOON) as scene:
            kept = []
            scene.relay.answer = lambda _, result: kept.append(result) or result
            await scene.bob.send("alice", b"one")
            scene.relay.answer = lambda *_: kept[0]
            reply = await scene.bob.send("alice", b"two")
            return reply.ok, reply.content

    assert asyncio.run(scenario()) == (False, b"")


@pytest.mark.parametrize("dialect", WEAKER)
def test_relay_cannot_downgrade(tmp_path, dialect):
    """What Bob sends to a peer with a root is in the form of the pairing; no weaker one is taken in his name."""

    async def scenario():
        async with stage(tmp_path) as scene:
            await scene.bob.send("alice", b"one")
            forms = {dialect_of(send.preimage, send.payload) for send in scene.relay.seen}
            (preimage, *_) = scene.alice.state.preimages()
            await scene.relay.ask(scene.device, preimage, EVE.request(dialect, scene.device, preimage))
            return forms, (await scene.troubles())[0], scene.calls

    forms, trouble, calls = asyncio.run(scenario())

    assert forms == {Dialect.SUITE_3}
    assert trouble.startswith("a request in the name of bob came in ")
    assert trouble.endswith(", weaker than suite-3, and was not taken")
    assert calls == [("bob", b"one")]


def test_legacy_invite_in_the_name_of_a_paired_peer_is_not_taken(tmp_path):
    """Who steals a legacy invite can pair as a stranger, but weakens nobody's pairing."""

    async def scenario():
        async with stage(tmp_path) as scene:
            bob = scene.state.identity
            scene.alice.token(legacy=True)
            (invite,) = [each.preimage for each in scene.alice.state.invites()]
            answer = await scene.relay.ask(scene.device, invite, EVE.handshake(Dialect.E2E, scene.device, invite, bob))
            reply = await scene.bob.send("alice", b"hello")
            return answer, scene.alice.state.peer(bob).dialect, reply.content, await scene.troubles()

    answer, dialect, content, troubles = asyncio.run(scenario())

    assert (answer, dialect, content) == (b"", Dialect.SUITE_3, b"done hello")
    assert "is paired in a stronger form" in troubles[0]


def test_junk_for_a_request_under_way_is_not_what_others_wait_for(tmp_path):
    """Junk with the preimage of a request that the handler works on joins nothing and stops nothing."""

    async def scenario():
        goes_on = asyncio.Event()

        async def slow(request):
            await goes_on.wait()
            return b"done " + request.content

        async with HostileRelay() as relay, RunningDevice(tmp_path / "alice", relay.url, slow) as alice:
            await alice.listening()
            async with sender(tmp_path, relay.url) as (bob, _):
                await bob.accept(alice.token(), alias="alice")
                asking = asyncio.create_task(bob.send("alice", b"lights on"))
                while (
                    not any(send.preimage == relay.preimages()[-1] for send in relay.seen[-1:]) or len(relay.seen) < 3
                ):
                    await asyncio.sleep(0)
                preimage = relay.preimages()[-1]
                junk = asyncio.create_task(
                    relay.ask(alice.state.identity, preimage, EVE.request(Dialect.E2E, alice.state.identity, preimage))
                )
                goes_on.set()
                reply = await asking
                await junk
                return reply.content, len(await alice.until(Handled))

    assert asyncio.run(scenario()) == (b"done lights on", 1)


def test_preimages_are_registered_again_within_a_bound(tmp_path):
    """A preimage that junk has used up at the relay is registered again, sixteen times and no more."""

    async def scenario():
        async with stage(tmp_path) as scene:
            (preimage, *_) = scene.alice.state.preimages()
            for _ in range(KEPT_VALID_MAX + 4):
                await scene.relay.ask(scene.device, preimage, b"junk")
            await scene.troubles(KEPT_VALID_MAX + 4)
            updates = [payload for _, payload in scene.relay.of_type(messages.FrameType.UPDATE_COMMITS)]
            again = [payload for payload in updates if payload == b"\0\x01" + commit_of(preimage)]
            return len(again), (await scene.bob.send("alice", b"hello")).content

    again, content = asyncio.run(scenario())

    assert again == KEPT_VALID_MAX
    assert content == b"done hello"
