"""What a relay that lies cannot do: the tests of the table in docs/bhumi.md, over real sockets."""

import asyncio
import contextlib

import pytest

from tests.sdk.bhumi.pairing.hostile import HostileRelay
from tests.sdk.build import QUICK, RunningDevice, sender
from tests.server.build import eventually
from waystation.core.errors import RemoteError
from waystation.protocols.bhumi import messages
from waystation.protocols.bhumi.client.base import commit_of
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.payload.contents import ContentType, DeviceMessage
from waystation.protocols.bhumi.payload.suites import SharedSecrets
from waystation.sdk.bhumi import BhumiState, Denied, Dialect, Handled, PeerJoined, Trouble
from waystation.sdk.bhumi.answers import KEPT_VALID_MAX
from waystation.sdk.bhumi.dialect import dialect_of, read_request, write_request
from waystation.sdk.bhumi.sending.channel import Channel
from waystation.sdk.bhumi.sending.retry import Timeouts, Verdict
from waystation.simsdk.bhumi.forger import Forger
from waystation.transport.dial import RelayUrl

EVE = Forger()
SOON = Timeouts(doubt_s=0.3, settle_s=0.0)
WEAKER = [Dialect.NONE, Dialect.E2E, Dialect.SUITE_1, Dialect.SUITE_2]
every_form = pytest.mark.parametrize("dialect", list(Dialect))


class Stage:
    """A hostile relay, a device "alice" that counts what its handler gets, and her peer "bob"."""

    def __init__(self, relay, alice, bob, state, calls, token, more):
        self.relay, self.alice, self.bob, self.state, self.calls = relay, alice, bob, state, calls
        self.token, self.more = token, more

    @property
    def device(self):
        """Whom the forgeries are for."""
        return self.alice.state.identity

    async def troubles(self, count=1):
        """Return the reasons that Alice has for not taking something."""
        return [trouble.reason for trouble in await self.alice.until(Trouble, count)]


@contextlib.asynccontextmanager
async def stage(tmp_path, *, pairs=True, extra=None, timeouts=QUICK):
    """Give all of it; Bob is paired unless told otherwise, and ``extra`` describes a second invite."""
    calls = []

    async def handler(request):
        calls.append((request.alias, request.content))
        return b"done " + request.content

    async with (
        HostileRelay() as relay,
        RunningDevice(tmp_path / "alice", relay.url, handler) as alice,
        sender(tmp_path, relay.url, timeouts=timeouts) as (bob, state),
    ):
        token, more = alice.token(), None if extra is None else alice.token(**extra)
        await alice.listening()
        if pairs:
            await bob.accept(token, alias="alice")
            await eventually(lambda: state.find_peer("alice").rights == 3, "spares")
        yield Stage(relay, alice, bob, state, calls, token, more)


@every_form
def test_relay_cannot_forge_a_request(tmp_path, dialect):
    """With every preimage that passed through, in every form: no handler is called, and no permission is lost."""

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

    assert ("bob", b"UNLOCK THE SAFE") not in calls
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
            (invite,) = scene.alice.state.preimages()
            bob = scene.state.identity
            for sender_ in (None, bob):
                forged = EVE.handshake(dialect, scene.device, invite, sender_)
                assert await scene.relay.ask(scene.device, invite, forged) == b""
            joined = [event for event in scene.alice.events if isinstance(event, PeerJoined)]
            strangers = scene.alice.state.peers()
            peer = await scene.bob.accept(scene.token, alias="alice")
            reply = await scene.bob.send(peer, b"hello")
            return joined, strangers, reply.content

    assert asyncio.run(scenario()) == ([], [], b"done hello")


@every_form
def test_relay_cannot_welcome_in_the_place_of_an_inviter(tmp_path, dialect):
    """Whoever answers a handshake without the inviter's key is not taken for the inviter."""

    async def scenario():
        async with stage(tmp_path, pairs=False, timeouts=SOON) as scene:
            bob = scene.state.identity
            scene.relay.answer = lambda send, _: messages.SendResult(0, EVE.completion(dialect, bob, send))
            with pytest.raises(Exception, match=r"refused|outcome"):
                await scene.bob.accept(scene.token, alias="alice")
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
        began, goes_on = asyncio.Event(), asyncio.Event()

        async def slow(request):
            began.set()
            await goes_on.wait()
            return b"done " + request.content

        async with HostileRelay() as relay, RunningDevice(tmp_path / "alice", relay.url, slow) as alice:
            token = alice.token()
            await alice.listening()
            async with sender(tmp_path, relay.url) as (bob, _):
                await bob.accept(token, alias="alice")
                asking = asyncio.create_task(bob.send("alice", b"lights on"))
                await began.wait()
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


def test_stranger_is_not_delivered(tmp_path):
    """Without a preimage that the device gave out nothing reaches it, and an invite without its secret pairs nobody."""

    async def scenario():
        async with stage(tmp_path, pairs=False) as scene:
            stranger = Channel(RelayUrl.parse(scene.relay.url), None, 5.0)
            made_up = bytes([0x66]) * 32
            asked = await stranger.ask(scene.device, made_up, EVE.request(Dialect.SUITE_3, scene.device, made_up))
            (invite,) = scene.alice.state.preimages()
            joined = await stranger.ask(scene.device, invite, EVE.handshake(Dialect.SUITE_3, scene.device, invite))
            await stranger.close()
            return asked[0], joined[1], scene.alice.state.peers(), scene.calls

    assert asyncio.run(scenario()) == (Verdict.SPENT, b"", [], [])


def test_who_reads_a_token_can_use_it_once_and_in_time(tmp_path):
    """The first who has a token is paired; a second one, a late one and one whose invite was cancelled are not."""

    async def accept(scene, name, token):
        async with sender(tmp_path / name, scene.relay.url, timeouts=SOON) as (other, _):
            await other.accept(token)

    async def scenario():
        clock = [1_000.0]
        async with stage(tmp_path, pairs=False) as scene:
            scene.alice.state._clock = lambda: clock[0]
            late, cancelled = scene.alice.token("late", expires_s=60), scene.alice.token("cancelled")
            scene.alice.state.cancel_invites("cancelled")
            await scene.relay.wait_for(FrameType.UPDATE_COMMITS)
            await accept(scene, "first", scene.token)
            clock[0] += 60
            for name, token in (("second", scene.token), ("late", late), ("cancelled", cancelled)):
                with pytest.raises(RemoteError):
                    await accept(scene, name, token)
            return len(scene.alice.state.peers())

    assert asyncio.run(scenario()) == 1


@pytest.mark.parametrize(
    ("content", "content_type", "denied"),
    [
        (b'{"cmd":"reading"}', ContentType.COMMAND, None),
        (b'{"cmd":"led"}', ContentType.COMMAND, "this peer may not send 'led'"),
        (b"nonsense", ContentType.COMMAND, "this peer may send certain commands only, and this is none"),
        (b"hello", ContentType.TEXT, None),
        (b"\xff", ContentType.BINARY, "this peer may not send 'binary'"),
    ],
)
def test_peer_sends_what_its_role_names(tmp_path, content, content_type, denied):
    """What the invite does not allow is refused with its reason before the handler; ``allow`` changes it."""

    async def scenario():
        async with stage(tmp_path, pairs=False, extra={"allow": {"reading", "text"}}) as scene:
            await scene.bob.accept(scene.more, alias="alice")
            reply = await scene.bob.send("alice", content, content_type)
            events = [event.reason for event in scene.alice.events if isinstance(event, Denied)]
            calls_count = len(scene.calls)
            scene.alice.state.allow(scene.state.identity, None)
            again = await scene.bob.send("alice", content, content_type)
            return reply.ok, reply.sentence, events, calls_count, again.ok

    ok, sentence, events, calls_count, again = asyncio.run(scenario())

    assert (ok, calls_count) == (denied is None, int(denied is None))
    assert events == ([] if denied is None else [denied])
    assert denied is None or sentence == f"the peer could not handle the request: {denied}"
    assert again


def test_peer_does_not_speak_for_another(tmp_path):
    """A paired peer that somehow has another's preimage is not heard as that other, and takes nothing from it."""

    async def scenario():
        async with stage(tmp_path, extra={"alias": "carol"}) as scene:
            async with sender(tmp_path / "carol", scene.relay.url) as (carol, own):
                await carol.accept(scene.more, alias="alice")
                bobs = scene.state.next_right(scene.device)
                root = own.peer(scene.device).root
            message = DeviceMessage(ContentType.TEXT, b"UNLOCK THE SAFE")
            forged = write_request(
                Dialect.SUITE_3, SharedSecrets(own.key_pair), scene.device, bobs, message, EVE.rng, root=root
            )
            answer = await scene.relay.ask(scene.device, bobs, forged)
            reply = await scene.bob.send("alice", b"hello")
            return answer, reply.content, scene.calls

    assert asyncio.run(scenario()) == (b"", b"done hello", [("bob", b"hello")])


@pytest.mark.parametrize("how", ["unpair", "block"])
def test_peer_is_heard_until_unpaired_or_blocked(tmp_path, how):
    """Its commits are revoked while the device listens, no request of it is taken, and a blocked one uses no invite."""

    async def scenario():
        async with stage(tmp_path, timeouts=SOON) as scene:
            bob = scene.state.identity
            await scene.bob.send("alice", b"one")
            getattr(scene.alice.state, how)(bob)
            await scene.relay.wait_for(FrameType.REVOKE_COMMITS)
            refused = await scene.bob.send("alice", b"two")
            preimage = scene.relay.preimages()[-1]
            mine = scene.relay.seen[-1].payload
            again = await scene.relay.ask(scene.device, preimage, mine)
            if how == "unpair":
                return refused.ok, again, scene.calls, True
            token = scene.alice.token()
            await scene.relay.wait_for(FrameType.UPDATE_COMMITS, 2)
            with pytest.raises(RemoteError):
                await scene.bob.accept(token)
            scene.alice.state.unblock(bob)
            return refused.ok, again, scene.calls, bool(scene.alice.state.preimages())

    assert asyncio.run(scenario()) == (False, b"", [("bob", b"one")], True)


def test_thief_of_a_home_has_its_own_pairings_only(tmp_path):
    """A copy of Bob's home opens what was recorded between Alice and Bob, years later, and nothing of Carol's."""

    async def scenario():
        async with stage(tmp_path, extra={"alias": "carol"}) as scene:
            await scene.bob.send("alice", b"bob's words")
            async with sender(tmp_path / "carol", scene.relay.url) as (carol, _):
                await carol.accept(scene.more, alias="alice")
                await carol.send("alice", b"carol's words")
            return scene.relay.seen, scene.device

    seen, device = asyncio.run(scenario())
    with contextlib.closing(BhumiState(tmp_path / "bob")) as stolen:
        secrets, root = SharedSecrets(stolen.key_pair), stolen.peer(device).root

    opened = [read_request(Dialect.SUITE_3, secrets, device, s.preimage, s.payload, root=root) for s in seen]
    contents = [each.content for each in opened if isinstance(each, DeviceMessage)]
    assert b"bob's words" in contents
    assert b"carol's words" not in contents
