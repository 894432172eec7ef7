"""Laws of sdk.bhumi_delivery: the same bytes everywhere, known places first, and no question before it is needed."""

import asyncio
import contextlib
import random
import socket

import pytest

from tests.sdk.build import ALICE, PREIMAGE, ScriptedRelay, know_alice, sender, sends
from tests.sdk.telling import Telling, said
from waystation.protocols.bhumi.messages import FrameType
from waystation.protocols.bhumi.signed_records import sign_advert
from waystation.sdk.bhumi import Dialect, Outcome, RelayBook, RelayQuality, Timeouts
from waystation.sdk.bhumi.finder import Findings
from waystation.sdk.bhumi.sending.delivery import PLACES_MAX, Deliveries, Delivery, Route
from waystation.sdk.bhumi.sending.retry import Verdict
from waystation.sdk.bhumi.state import HandshakeFacts, Pending, PendingKind
from waystation.sdk.errors import AnswerError, OfflineError, RelayUnreachableError
from waystation.transport.dial import RelayUrl

NONE = Timeouts(wait_s=0.0, doubt_s=0.0, settle_s=0.0)
PLAIN = b'{"ok":true,"data":"came"}'
HERE, THERE, ELSEWHERE = (RelayUrl.parse(f"tcp://127.0.0.{number}:1") for number in (1, 2, 3))


def test_route_goes_round():
    """Each place in turn; a round is over when all have had theirs."""
    route = Route([HERE, THERE, HERE])
    taken = [(route.take(), route.is_round) for _ in range(4)]

    assert taken == [(HERE, False), (THERE, True), (HERE, False), (THERE, True)]


def test_new_places_come_next():
    """What was found is tried before the old places again; what is known is no news."""
    route = Route([HERE, THERE])
    route.take()
    route.take()
    count = route.add([THERE, ELSEWHERE, ELSEWHERE])

    assert (count, route.take(), route.take()) == (1, ELSEWHERE, HERE)


def test_route_is_bounded():
    """A flood of places does not make a request endless."""
    route = Route([HERE])
    count = route.add([RelayUrl.parse(f"tcp://127.0.0.{number}:1") for number in range(2, 200)])

    assert (count, len(route.places)) == (PLACES_MAX - 1, PLACES_MAX)


class Answering(ScriptedRelay):
    """Answers each request with statuses in turn; status 0 in the clear, or with bytes that no sender can open."""

    def __init__(self, *statuses, answer=b"garbage"):
        told = iter(statuses)
        super().__init__(answer=lambda _: ((status := next(told)), answer if status == 0 else b""))


@pytest.mark.parametrize("allow_private", [False, True])
def test_relay_of_the_book_is_not_followed_into_our_own_network(tmp_path, monkeypatch, allow_private):
    """An advert may name a host that leads to this machine; a request does not go there, unless that is allowed."""
    ask = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest, **more: ask("127.0.0.1" if "inward" in host else host, *rest, **more)
    )

    async def scenario():
        async with Answering(1) as relay:
            book = RelayBook(tmp_path / "bob", allow_private=allow_private)
            address = f"tcp://inward.example:{relay.url.rpartition(':')[2]}"
            assert book.learn(sign_advert(ALICE, address, int(book._clock()), 600))
            async with sender(tmp_path, [], book=book, find=False, timeouts=NONE) as (bob, state):
                know_alice(state, PREIMAGE)
                with pytest.raises((OfflineError, RelayUnreachableError)) as caught:
                    (await bob.send("alice", "x")).check()
            book.close()
            return caught.type, len(sends(relay))

    expected = (OfflineError, 1) if allow_private else (RelayUnreachableError, 0)
    assert asyncio.run(scenario()) == expected


def test_same_bytes_go_to_the_place_that_was_found(tmp_path):
    """Status 1 at the known relay, a look-up, and the very same SEND at the new one; its place is remembered."""

    async def scenario():
        async with Answering(0, answer=PLAIN) as new:
            old = Telling(said(new.url))
            old._answer = lambda _: (1, b"")
            async with old, sender(tmp_path, old.url, timeouts=NONE, dialect=Dialect.NONE) as (bob, state):
                know_alice(state, PREIMAGE)
                (await bob.send("alice", "x")).check()
                return sends(old), sends(new), state.place_of(ALICE.public) == new.url, old.asked_count

    at_old, at_new, is_remembered, asked_count = asyncio.run(scenario())
    assert at_old == at_new
    assert (len(at_old), is_remembered, asked_count) == (1, True, 1)


def test_no_question_while_the_known_relay_answers(tmp_path):
    """An ordinary request asks nobody anything else."""

    async def scenario():
        relay = Telling(said())
        relay._answer = lambda _: (0, b"garbage")
        async with relay, sender(tmp_path, relay.url, timeouts=NONE) as (bob, state):
            know_alice(state, PREIMAGE)
            with pytest.raises(AnswerError):
                (await bob.send("alice", "x")).check()
            return relay.asked_count, len(relay.of_type(FrameType.OPTIONS)), state.place_of(ALICE.public)

    assert asyncio.run(scenario()) == (0, 0, "")


@pytest.mark.parametrize("find", [True, False])
def test_offline_peer_is_named_with_its_places(tmp_path, find):
    """The error says where the peer was looked for; without finding nobody is asked."""

    async def scenario():
        relay = Telling()
        relay._answer = lambda _: (1, b"")
        async with relay, sender(tmp_path, relay.url, timeouts=NONE, find=find) as (bob, state):
            know_alice(state, PREIMAGE)
            with pytest.raises(OfflineError, match=f"alice is not connected to {relay.url}; nothing"):
                (await bob.send("alice", "x")).check()
            return relay.asked_count, state.peer(ALICE.public).rights

    assert asyncio.run(scenario()) == (int(find), 1)


def test_relay_that_cannot_be_reached_is_named_as_such(tmp_path):
    """A peer is said to be absent only where a relay said so; the other relays are named as unreachable."""

    async def scenario():
        async with Answering(1) as relay, sender(tmp_path, [str(HERE), relay.url], timeouts=NONE, find=False) as pair:
            bob, state = pair
            know_alice(state, PREIMAGE)
            with pytest.raises(OfflineError) as raised:
                (await bob.send("alice", "x")).check()
            return relay.url, str(raised.value)

    url, sentence = asyncio.run(scenario())
    assert sentence == f"alice is not connected to {url}, and {HERE} cannot be reached; nothing was delivered"


def test_private_place_is_named_and_not_dialled(tmp_path):
    """Who talks to public relays is not sent into a private network; the error says how to allow it."""

    class Fixed:
        dials_private = False

        async def find(self, _identity, _known):
            return Findings([], ["tcp://10.0.0.1:22"])

        def judge(self, _address):
            return None

    async def scenario():
        async with Answering(1) as relay, sender(tmp_path, relay.url) as (_, state):
            source = random.Random(1)
            ways = Deliveries(state, [RelayUrl.parse(relay.url)], Fixed(), None, source, None, 5)
            pending = Pending(PREIMAGE, ALICE.public, PendingKind.MESSAGE, b"x", "", 0.0)
            ended = await ways.deliver(Delivery(pending, NONE), None)
            await ways.close()
            return ended.verdict, ended.places

    verdict, places = asyncio.run(scenario())
    assert verdict is Verdict.OFFLINE
    assert "it is at tcp://10.0.0.1:22, a private place, which only dials_private goes to" in places


def test_dead_relay_is_no_end(tmp_path):
    """The relay that was named cannot be reached; the place that the peer told us is tried."""

    async def scenario():
        plain = Dialect.NONE
        async with (
            Answering(0, answer=PLAIN) as told,
            sender(tmp_path, str(HERE), timeouts=NONE, dialect=plain) as (bob, state),
        ):
            state.finish(bytes([0xEE]) * 32, ALICE.public, [PREIMAGE], HandshakeFacts("alice", told.url))
            (await bob.send("alice", "x")).check()
            return len(sends(told)), state.place_of(ALICE.public) == told.url

    assert asyncio.run(scenario()) == (1, True)


def test_remembered_place_comes_first(tmp_path):
    """Next time the place that worked is tried before the relay that was named."""

    async def scenario():
        async with (
            Answering(0) as last,
            Answering() as named,
            sender(tmp_path, named.url, timeouts=NONE) as (bob, state),
        ):
            know_alice(state, PREIMAGE)
            state.remember_place(ALICE.public, last.url)
            with pytest.raises(AnswerError):
                (await bob.send("alice", "x")).check()
            return len(sends(last)), len(sends(named))

    assert asyncio.run(scenario()) == (1, 0)


def test_nobody_there_at_all(tmp_path):
    """Without any relay the error is about relays, not about the peer."""

    async def scenario():
        async with sender(tmp_path, str(HERE), timeouts=NONE) as (bob, state):
            know_alice(state, PREIMAGE)
            with pytest.raises(RelayUnreachableError, match="nobody listens"):
                await bob.send("alice", "x")
            return state.peer(ALICE.public).rights

    assert asyncio.run(scenario()) == 1


def test_connects_are_observed(tmp_path):
    """A relay that greets and one that is not there leave a trace in the view; a request leaves none."""

    async def scenario():
        with contextlib.closing(RelayQuality(tmp_path / "bob")) as quality:
            async with Answering(1, 1) as relay:
                relays = [str(HERE), relay.url]
                async with sender(tmp_path, relays, timeouts=NONE, find=False, quality=quality) as (bob, state):
                    know_alice(state, PREIMAGE)
                    for _ in range(2):
                        with pytest.raises(OfflineError):
                            (await bob.send("alice", "x")).check()
            return quality.score(str(HERE)) < 0.5 < quality.score(relay.url)

    assert asyncio.run(scenario())


def test_address_without_scheme_of_an_original_node_is_tcp(tmp_path):
    """An original node writes host:port and has no TLS, so its place is dialled by TCP (interop B2)."""

    async def scenario():
        plain = Dialect.NONE
        async with (
            Answering(0, answer=PLAIN) as told,
            sender(tmp_path, str(HERE), timeouts=NONE, dialect=plain) as (bob, state),
        ):
            place = told.url.removeprefix("tcp://")
            state.finish(bytes([0xEE]) * 32, ALICE.public, [PREIMAGE], HandshakeFacts("alice", place, dialect=plain))
            return (await bob.send("alice", "x")).outcome

    assert asyncio.run(scenario()) is Outcome.ANSWERED
