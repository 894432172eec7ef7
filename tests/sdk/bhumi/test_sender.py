import asyncio
import random

import pytest

from tests.sdk.build import (
    ALICE,
    BACK,
    PREIMAGE,
    QUICK,
    LoopbackRelay,
    RunningDevice,
    ScriptedRelay,
    echo,
    know_alice,
    paired,
    sender,
    sends,
)
from waystation.core.errors import LocalError
from waystation.core.ids import PublicKey, encode_id52
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.payload.contents import (
    ContentType,
    HandshakeComplete,
    HandshakeInit,
    ResponseStatus,
    decode_payload,
    encode_payload,
)
from waystation.protocols.bhumi.payload.invite import Invite, encode_invite
from waystation.sdk.bhumi import BhumiState, Dialect, Outcome, PendingKind, Sender, Timeouts
from waystation.sdk.errors import (
    AnswerError,
    InviteRefusedError,
    NoPreimageError,
    OfflineError,
    RelayUnreachableError,
    UncertainError,
    UnknownPeerError,
)


def test_pairs_asks_and_keeps_two_spares(tmp_path):
    """After pairing there are three rights, one to use and two spares; after each request there still are."""

    async def scenario():
        async with LoopbackRelay() as relay, paired(tmp_path, relay) as (alice, bob, state):
            rights = [state.find_peer("alice").rights]
            replies = []
            for text in ("one", "two", "three"):
                replies.append(await bob.send("alice", text))
                rights.append(state.find_peer("alice").rights)
            issued = alice.state.find_peer("bob").issued
            return rights, [(reply.status, reply.text, reply.tries_count) for reply in replies], issued, state.pending()

    rights, replies, issued, pending = asyncio.run(scenario())

    assert rights == [3, 3, 3, 3]
    assert replies == [(0, "one", 1), (0, "two", 1), (0, "three", 1)]
    assert issued == 3
    assert pending == []


def test_the_relay_never_learns_who_sends(tmp_path):
    """A sender's connection carries SEND and nothing else, and no payload shows its key or its words."""

    async def scenario():
        async with LoopbackRelay() as relay, paired(tmp_path, relay) as (_, bob, state):
            await bob.send("alice", "a secret sentence")
            kinds = {kind for peer, kind, _ in relay.frames if peer not in relay.identified}
            seen = b"".join(payload for _, _, payload in relay.frames)
            return kinds, state.identity in seen, b"a secret sentence" in seen

    assert asyncio.run(scenario()) == ({FrameType.SEND}, False, False)


def test_the_inviter_can_reach_back(tmp_path):
    """The handshake gives the inviter a right to send to whoever accepted."""

    async def scenario():
        async with (
            LoopbackRelay() as relay,
            paired(tmp_path, relay) as (alice, _, _state),
            RunningDevice(tmp_path / "bob", relay.url, echo) as bob,
            Sender(alice.state, relay.url, timeouts=QUICK) as back,
        ):
            await bob.listening()
            return (await back.send("bob", "back")).text

    assert asyncio.run(scenario()) == "back"


def test_lost_connection_is_retried_from_the_cache(tmp_path):
    """When the connection breaks under a request, the same bytes are sent again and the handler is not called twice."""

    async def scenario():
        calls = []

        async def answer(request):
            calls.append(request.text)
            if request.text == "x" and len(calls) == 1:
                relay.cut_senders()
            return "answer"

        async with LoopbackRelay() as relay, paired(tmp_path, relay, answer) as (_, bob, state):
            before = len(sends(relay))
            reply = await bob.send("alice", "x")
            first, second = sends(relay)[before : before + 2]
            return reply, calls, first == second, state.pending(), state.find_peer("alice").rights

    reply, calls, same, pending, rights = asyncio.run(scenario())

    assert (reply.text, reply.tries_count, calls) == ("answer", 2, ["x"])
    assert same
    assert (pending, rights) == ([], 3)


def test_offline_is_certain_and_costs_nothing(tmp_path):
    """Status 1 is reported at once, and the same preimage serves the next request."""

    async def scenario():
        async with LoopbackRelay() as relay, sender(tmp_path, relay.url) as (bob, state):
            know_alice(state, PREIMAGE, bytes(32))
            with pytest.raises(OfflineError, match="alice is not connected"):
                (await bob.send("alice", "x")).check()
            return state.next_right(ALICE.public), state.pending()

    assert asyncio.run(scenario()) == (PREIMAGE, [])


def test_waits_for_a_peer_that_comes_back(tmp_path):
    """With timeouts, a request waits for an offline peer and is answered when it comes."""

    async def scenario():
        async with LoopbackRelay() as relay:
            async with paired(tmp_path, relay):
                pass
            async with sender(tmp_path, relay.url, timeouts=Timeouts(wait_s=5)) as (bob, _):
                asking = asyncio.create_task(bob.send("alice", "are you there?"))
                await relay.wait_for(FrameType.SEND, 3)
                async with RunningDevice(tmp_path / "alice", relay.url, echo):
                    return await asking

    reply = asyncio.run(scenario())

    assert reply.text == "are you there?"
    assert reply.tries_count > 1


def test_nobody_listens(tmp_path):
    """Without any relay nothing is lost: the error names the relay, the right stays."""

    async def scenario():
        async with sender(tmp_path, "tcp://127.0.0.1:1") as (bob, state):
            know_alice(state, PREIMAGE)
            with pytest.raises(RelayUnreachableError, match=r"127\.0\.0\.1:1"):
                await bob.send("alice", "x")
            return state.next_right(ALICE.public), state.pending()

    assert asyncio.run(scenario()) == (PREIMAGE, [])


def test_the_next_relay_is_tried(tmp_path):
    """When one relay is gone, or does not know the peer, the request goes to the next one without waiting."""

    async def scenario():
        async with LoopbackRelay() as relay, LoopbackRelay() as other:
            async with paired(tmp_path, relay):
                pass
            async with RunningDevice(tmp_path / "alice", relay.url, echo) as alice:
                await alice.listening()
                relays = ["tcp://127.0.0.1:1", other.url, relay.url]
                async with sender(tmp_path, relays) as (bob, _):
                    return await bob.send("alice", "x")

    reply = asyncio.run(scenario())

    assert (reply.text, reply.tries_count) == ("x", 3)


def test_permission_that_the_relay_does_not_know_is_no_second_try(tmp_path):
    """Status 2 at the first try has an outcome of its own; the permission goes behind the others, and is not lost."""

    async def scenario():
        async with LoopbackRelay() as relay, paired(tmp_path, relay) as (alice, bob, state):
            bogus = bytes([0xEE]) * 32
            state.give_back(bogus, alice.state.identity)
            refused = await bob.send("alice", "x")
            texts = [(await bob.send("alice", str(number))).text for number in range(4)]
            rows = state.all("SELECT preimage FROM theirs WHERE refused")
            return refused.outcome, refused.retry_safe, texts, [row[0] == bogus for row in rows], state.pending()

    assert asyncio.run(scenario()) == (Outcome.UNKNOWN_PERMISSION, True, ["0", "1", "2", "3"], [True], [])


def test_repeatable_content_goes_on_with_the_next_permission(tmp_path):
    """Who says that content may arrive twice gets it sent under the next permission, once for each."""

    async def scenario():
        async with LoopbackRelay() as relay, paired(tmp_path, relay) as (alice, bob, state):
            state.give_back(bytes([0xEE]) * 32, alice.state.identity)
            reply = await bob.send("alice", "x", repeatable=True)
            return reply.text, reply.tries_count

    assert asyncio.run(scenario()) == ("x", 2)


def test_commit_that_is_late_is_waited_for(tmp_path):
    """Status 2 is asked again for a moment: a device may be just about to hand the commit over."""

    async def scenario():
        async with LoopbackRelay() as relay, RunningDevice(tmp_path / "alice", relay.url, echo, poll_s=0.15) as alice:
            await alice.listening()
            token = alice.token()
            async with sender(tmp_path, relay.url, timeouts=Timeouts(settle_s=3.0)) as (bob, _):
                return (await bob.accept(token, alias="alice")).alias

    assert asyncio.run(scenario()) == "alice"


def test_no_right_left(tmp_path):
    """When the last preimage is gone the error says that a new invite is needed."""

    async def scenario():
        async with LoopbackRelay() as relay, paired(tmp_path, relay) as (alice, bob, state):
            for position in range(3):
                state.begin_message(state.next_right(alice.state.identity), alice.state.identity, b"x")
                state.finish(state.pending()[0].preimage, alice.state.identity, ())
                assert state.find_peer("alice").rights == 2 - position
            with pytest.raises(NoPreimageError, match="new invite"):
                (await bob.send("alice", "x")).check()

    asyncio.run(scenario())


@pytest.mark.parametrize("statuses", [[3, 2, 2, 2, 2, 2, 2], [3, 1, 1, 1, 1, 1, 1], [4, 2, 1, 3, 2, 2, 2], [3, 0, 0]])
def test_no_word_of_a_relay_ends_a_doubt(tmp_path, statuses):
    """What may have arrived keeps its preimage and its bytes, and no status brings the content under a second one."""
    told = iter(statuses)

    async def scenario():
        async with (
            ScriptedRelay(answer=lambda _: (next(told, 3), b"forged")) as relay,
            sender(tmp_path, relay.url, find=False, timeouts=Timeouts(doubt_s=0.5, settle_s=5)) as (bob, state),
        ):
            know_alice(state, PREIMAGE, BACK)
            reply = await bob.send("alice", "x")
            return reply.outcome, {send.preimage for send in sends(relay)}, [each.preimage for each in state.pending()]

    outcome, preimages, pending = asyncio.run(scenario())

    assert outcome in {Outcome.UNCERTAIN, Outcome.UNREADABLE}
    assert (preimages, pending) == ({PREIMAGE}, [PREIMAGE])


def test_repeatable_doubt_is_still_doubt(tmp_path):
    """Content that may arrive twice is sent under every permission; each one that is in doubt stays pending."""
    told = iter([3, 2, 4, 2])

    async def scenario():
        async with (
            ScriptedRelay(answer=lambda _: (next(told, 2), b"")) as relay,
            sender(tmp_path, relay.url, find=False) as (bob, state),
        ):
            know_alice(state, PREIMAGE, BACK)
            reply = await bob.send("alice", "x", repeatable=True)
            return reply.outcome, {send.preimage for send in sends(relay)}, {each.preimage for each in state.pending()}

    assert asyncio.run(scenario()) == (Outcome.UNCERTAIN, {PREIMAGE, BACK}, {PREIMAGE, BACK})


def test_all_permissions_in_doubt_is_said_so(tmp_path):
    """Where every permission waits for an outcome, the advice is not a new invite."""

    async def scenario():
        async with (
            ScriptedRelay(answer=lambda _: (3, b"")) as relay,
            sender(tmp_path, relay.url, find=False, timeouts=Timeouts(doubt_s=0)) as (bob, state),
        ):
            know_alice(state, PREIMAGE)
            return [(await bob.send("alice", "x")).outcome for _ in range(2)], (await bob.send("alice", "x")).advice

    outcomes, advice = asyncio.run(scenario())

    assert outcomes == [Outcome.UNCERTAIN, Outcome.PERMISSIONS_IN_DOUBT]
    assert "invite" not in advice


def test_invite_works_once(tmp_path):
    """The second one to use a token is refused, and does not know the inviter afterwards."""

    async def scenario():
        async with LoopbackRelay() as relay, RunningDevice(tmp_path / "alice", relay.url, echo) as alice:
            token = alice.token()
            await alice.listening()
            async with sender(tmp_path, relay.url) as (bob, _):
                await bob.accept(token)
            state = BhumiState(tmp_path / "carol")
            async with Sender(state, relay.url, timeouts=QUICK) as carol:
                with pytest.raises(InviteRefusedError):
                    await carol.accept(token)
            known = state.peers(), state.pending()
            state.close()
            return known

    assert asyncio.run(scenario()) == ([], [])


def test_offline_inviter_leaves_the_token_good(tmp_path):
    """A token whose inviter is offline can be used later."""

    async def scenario():
        async with LoopbackRelay() as relay, sender(tmp_path, relay.url) as (bob, state):
            alice = BhumiState(tmp_path / "alice")
            token = encode_invite(Invite(alice.identity, alice.add_invite("bob", random.Random(1))))
            alice.close()
            with pytest.raises(OfflineError):
                await bob.accept(token)
            left = state.pending()
            async with RunningDevice(tmp_path / "alice", relay.url, echo) as device:
                await device.listening()
                return left, (await bob.accept(token)).rights

    assert asyncio.run(scenario()) == ([], 1)


def test_own_invite_is_refused(tmp_path):
    """Nobody pairs with itself."""

    async def scenario():
        async with sender(tmp_path, "tcp://127.0.0.1:1") as (bob, state):
            with pytest.raises(LocalError, match="your own"):
                await bob.accept(encode_invite(Invite(state.identity, PREIMAGE)))

    asyncio.run(scenario())


def test_uncertain_request_is_recovered_by_the_next_process(tmp_path):
    """A request cut off in the middle stays pending with its bytes; a new process gets the very answer."""

    async def scenario():
        called, gate = asyncio.Event(), asyncio.Event()
        calls = []

        async def slow(request):
            calls.append(request.text)
            called.set()
            await gate.wait()
            return "worth waiting for"

        async with LoopbackRelay() as relay, RunningDevice(tmp_path / "alice", relay.url, slow) as alice:
            token = alice.token()
            await alice.listening()
            async with sender(tmp_path, relay.url) as (bob, state):
                await bob.accept(token, alias="alice")
                asking = asyncio.create_task(bob.send("alice", "x"))
                await called.wait()
                asking.cancel()
                await asyncio.wait([asking])
                (left,) = state.pending()
            gate.set()
            async with sender(tmp_path, relay.url) as (again, state):
                (recovered,) = await again.recover()
                return left.kind, recovered, calls, state.pending(), state.find_peer("alice").rights

    kind, recovered, calls, pending, rights = asyncio.run(scenario())

    assert kind is PendingKind.MESSAGE
    assert (recovered.reply.text, recovered.note) == ("worth waiting for", "was answered")
    assert (calls, pending, rights) == (["x"], [], 3)


@pytest.mark.parametrize("status", [3, 4, 77])
def test_no_outcome_is_uncertain(tmp_path, status):
    """Status 3, 4 and unknown ones are asked again with the same bytes, then reported as uncertain and kept."""

    async def scenario():
        async with (
            ScriptedRelay(answer=lambda _: (status, b"")) as relay,
            sender(tmp_path, relay.url, timeouts=Timeouts(doubt_s=0.01)) as (bob, state),
        ):
            know_alice(state, PREIMAGE)
            with pytest.raises(UncertainError, match=f"status {status}"):
                (await bob.send("alice", "x")).check()
            return len(set(sends(relay))), [each.preimage for each in state.pending()], state.next_right(ALICE.public)

    assert asyncio.run(scenario()) == (1, [PREIMAGE], None)


@pytest.mark.parametrize("answer", [b"", b"nonsense", bytes(200)])
def test_unreadable_answer_is_an_error_and_no_outcome(tmp_path, answer):
    """An answer that cannot be opened is no answer: the error says so, and the request stays pending."""

    async def scenario():
        async with (
            ScriptedRelay(answer=lambda _: (0, answer)) as relay,
            sender(tmp_path, relay.url) as (bob, state),
        ):
            know_alice(state, PREIMAGE)
            with pytest.raises(AnswerError, match="stays pending"):
                (await bob.send("alice", "x")).check()
            return [each.preimage for each in state.pending()], state.next_right(ALICE.public)

    assert asyncio.run(scenario()) == ([PREIMAGE], None)


def test_too_large_is_refused_before_it_leaves(tmp_path):
    """Content that the relay would not take is refused with numbers, and the right stays."""

    async def scenario():
        async with ScriptedRelay(max_payload_bytes=300) as relay, sender(tmp_path, relay.url) as (bob, state):
            know_alice(state, PREIMAGE)
            with pytest.raises(LocalError, match="at most 300"):
                await bob.send("alice", bytes(300), ContentType.BINARY)
            return sends(relay), state.next_right(ALICE.public), state.pending()

    assert asyncio.run(scenario()) == ([], PREIMAGE, [])


def test_unknown_peer(tmp_path):
    """A name that nobody has is refused before anything is opened."""

    async def scenario():
        async with sender(tmp_path, "tcp://127.0.0.1:1") as (bob, _):
            with pytest.raises(UnknownPeerError, match="'zoe'"):
                await bob.send("zoe", "x")

    asyncio.run(scenario())


def test_requests_to_one_peer_take_turns(tmp_path):
    """Requests to one peer that are made side by side are all answered, each with its own preimage."""

    async def scenario():
        async with LoopbackRelay() as relay, paired(tmp_path, relay) as (_, bob, state):
            replies = await asyncio.gather(*(bob.send("alice", str(number)) for number in range(5)))
            preimages = [send.preimage for send in sends(relay)]
            return [reply.text for reply in replies], len(preimages) == len(set(preimages)), state.pending()

    assert asyncio.run(scenario()) == (["0", "1", "2", "3", "4"], True, [])


def test_original_node_without_encryption(tmp_path):
    """With the original node: handshake in the clear, JSON, the next preimage behind it, and no spares after one no."""
    nexts = [bytes([number]) * 32 for number in range(1, 9)]

    def node(send):
        if send.payload[:1] == b"\x01":
            return 0, encode_payload(HandshakeComplete(ResponseStatus.OK, nexts[0], "relay.example:443"))
        handed = nexts[nexts.index(send.preimage) + 1]
        if b'"spares"' in send.payload:
            return 0, b'{"ok":false,"error":"unknown command"}' + handed
        return 0, b'{"ok":true,"data":"pong"}' + handed

    async def scenario():
        async with (
            ScriptedRelay(answer=node) as relay,
            sender(tmp_path, relay.url, dialect=Dialect.NONE) as (bob, state),
        ):
            peer = await bob.accept(encode_invite(Invite(ALICE.public, PREIMAGE)), alias="node")
            answers = [await bob.command("node", "ping", {}) for _ in range(2)]
            return peer, answers, sends(relay), state.find_peer("node"), state.identity

    peer, answers, sent, record, identity = asyncio.run(scenario())

    introduction = decode_payload(sent[0].payload)
    assert isinstance(introduction, HandshakeInit) and introduction.sender == identity
    assert [send.payload for send in sent[1:]] == [
        b'{"cmd":"spares","args":{"n":2}}', b'{"cmd":"ping","args":{}}', b'{"cmd":"ping","args":{}}',
    ]  # fmt: skip
    assert (peer.url, answers) == ("relay.example:443", ["pong", "pong"])
    assert (record.gives_spares, record.rights) == (False, 1)


def test_plain_device_and_sender(tmp_path):
    """Two of ours without encryption understand each other, spares included."""

    async def scenario():
        async def answer(request):
            return request.command().cmd.upper()

        async with LoopbackRelay() as relay, paired(tmp_path, relay, answer, dialect=Dialect.NONE) as (_, bob, state):
            reply = await bob.send("alice", "led")
            with pytest.raises(LocalError, match="not binary"):
                await bob.send("alice", b"\xff", ContentType.BINARY)
            return reply.content, state.find_peer("alice").rights, state.pending()

    assert asyncio.run(scenario()) == (b'{"ok":true,"data":"LED"}', 3, [])


def test_keys_are_what_names_a_peer(tmp_path):
    """A peer can be named by its id52, too."""

    async def scenario():
        async with LoopbackRelay() as relay, paired(tmp_path, relay) as (alice, bob, _):
            return (await bob.send(encode_id52(PublicKey(alice.state.identity)), "x")).text

    assert asyncio.run(scenario()) == "x"
