import asyncio
import random
import socket

import pytest

from tests.sdk.build import LoopbackRelay, ScriptedRelay
from waystation.core.errors import HostError, LocalError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import messages, wire
from waystation.protocols.bhumi.extension_messages import Presence, RelayAd, Relays, WhereEntry, WhereResult
from waystation.protocols.bhumi.extension_wire import encode_extension
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.signed_records import sign_advert, sign_presence
from waystation.sdk.bhumi.guide import ADVERTS_MAX, PLACES_MAX, REFRESH_ASKS, Guide
from waystation.sdk.bhumi.relay_book import NEUTRAL_SCORE, RelayBook
from waystation.sdk.errors import RelayUnreachableError

NOW = 1_800_000_000
ALICE = KeyPair.from_seed(bytes([0xA1]) * 32)
EVE = KeyPair.from_seed(bytes([0xE5]) * 32)
INWARD = "inward.example"
RELAYS = [KeyPair.from_seed(bytes([number]) * 32) for number in range(1, 70)]


class GuidingRelay(ScriptedRelay):
    """Takes OPTIONS and answers each question with the frames that the test gives."""

    def __init__(self, *answers, features=Feature.PRESENCE, closes=False):
        super().__init__()
        self._answers = b"".join(answers)
        self._closes = closes
        self._features = features

    def received(self, pipe, data):
        before = len(self.frames)
        super().received(pipe, data)
        for peer, frame_type, _ in self.frames[before:]:
            if frame_type == FrameType.OPTIONS and self._features is not None:
                self.send(peer, messages.Options(self._features))
            elif frame_type in (FrameType.WHERE, FrameType.RELAYS_REQUEST):
                self.pipes[peer].write([self._answers])
                if self._closes:
                    self.pipes[peer].close()


def guide(timeout_s=20.0):
    return Guide(timeout_s=timeout_s, clock=lambda: NOW)


def presence(relay=0, issued_s=NOW, ttl_s=300, key_pair=ALICE):
    return sign_presence(key_pair, RELAYS[relay].public, issued_s, ttl_s)


def ask_where(*entries, identity=ALICE.public):
    """Return what a guide makes of an answer with these presences."""

    async def scenario():
        answer = WhereResult(ALICE.public, tuple(WhereEntry(each, "tls://r.example:1") for each in entries))
        async with GuidingRelay(encode_extension(answer)) as relay:
            return await guide().where(relay.url, identity)

    return asyncio.run(scenario())


def ask_relays(*adverts):
    async def scenario():
        async with GuidingRelay(encode_extension(Relays(adverts))) as relay:
            return await guide().relays(relay.url)

    return asyncio.run(scenario())


def refused(relay, timeout_s=20.0):
    """Return the error of a question to this relay."""

    async def scenario():
        async with relay:
            with pytest.raises(HostError) as caught:
                await guide(timeout_s).relays(relay.url)
            return caught.value

    return asyncio.run(scenario())


def test_newest_place_comes_first_and_one_a_relay():
    """What the owner signed and what lives is told; of two words about one relay the later holds."""
    old, new, other = presence(0, NOW - 50), presence(0, NOW - 10), presence(1, NOW - 30)

    assert ask_where(old, other, new) == (WhereEntry(new, "tls://r.example:1"), WhereEntry(other, "tls://r.example:1"))


@pytest.mark.parametrize(
    "bad",
    [
        presence(key_pair=EVE),
        presence(issued_s=NOW - 300),
        presence(issued_s=NOW + 121),
        presence(ttl_s=601),
        presence(ttl_s=0),
        Presence(ALICE.public, RELAYS[0].public, NOW, 301, presence().signature),
        Presence(ALICE.public, RELAYS[1].public, NOW, 300, presence().signature),
        Presence(ALICE.public, RELAYS[0].public, NOW, 300, bytes(64)),
    ],
)
def test_place_that_cannot_be_believed_is_left_out(bad):
    """A foreign, ended, early, long, prolonged, moved or unsigned presence is nothing; the good one beside it stays."""
    assert ask_where(bad, presence(2)) == (WhereEntry(presence(2), "tls://r.example:1"),)


def test_only_so_many_places_are_looked_at():
    """A relay that sends 255 of them costs no more than eight verifications."""
    assert len(ask_where(*(presence(number % 60, NOW - number % 60) for number in range(255)))) == PLACES_MAX


def test_answer_about_somebody_else_is_no_answer():
    """A relay that answers another question than was asked, and leaves, has not answered."""

    async def scenario():
        answer = WhereResult(ALICE.public, (WhereEntry(presence(), ""),))
        async with GuidingRelay(encode_extension(answer), closes=True) as relay:
            with pytest.raises(RelayUnreachableError, match="did not answer: the relay closed"):
                await guide().where(relay.url, EVE.public)

    asyncio.run(scenario())


def test_adverts_are_verified_before_they_are_told():
    """Untimely and unsigned ones are left out; where they lead is the book's business."""
    good = sign_advert(RELAYS[0], "tls://127.0.0.1:1", NOW, 600)
    bad = [
        sign_advert(RELAYS[1], "tls://r.example:1", NOW - 600, 600),
        sign_advert(RELAYS[1], "tls://r.example:1", NOW, 3_601),
        RelayAd(RELAYS[1].public, NOW, 600, "tls://r.example:1", bytes(64)),
    ]

    assert ask_relays(*bad, good) == (good,)


def test_only_so_many_adverts_are_looked_at():
    """A relay cannot make us verify a frame full of them."""
    adverts = [sign_advert(pair, f"tls://r{at}.example:1", NOW, 600) for at, pair in enumerate(RELAYS)]

    assert ask_relays(*adverts) == tuple(adverts[:ADVERTS_MAX])


def test_relay_without_the_extension_says_so():
    """Whether OPTIONS is declined or ignored, the reason is told."""
    for relay in (GuidingRelay(features=Feature(0)), GuidingRelay(features=None)):
        assert "answers no questions about other relays" in str(refused(relay, timeout_s=3.0))


def test_our_relay_without_a_key_has_nothing_to_tell():
    """The real machine declines what it does not offer, and the guide says so at once."""
    assert "answers no questions about other relays" in str(refused(LoopbackRelay()))


def test_silent_relay_costs_a_bounded_time():
    """A relay that takes the question and says nothing ends in a sentence with the time it was given."""
    error = refused(GuidingRelay(wire.encode(messages.Keepalive())), timeout_s=2.0)

    assert isinstance(error, RelayUnreachableError)
    assert "did not answer" in str(error)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "the relay closed the connection"),
        (bytes.fromhex("0049 00000003 ffff00"), "we closed the connection"),
        (bytes.fromhex("0049 7fffffff"), "we closed the connection"),
    ],
)
def test_relay_that_breaks_off_or_breaks_the_rules_is_unreachable(answer, reason):
    """The error says which it was."""
    error = refused(GuidingRelay(answer, closes=not answer))

    assert isinstance(error, RelayUnreachableError)
    assert reason in str(error)


def test_nobody_there_and_no_address():
    """What cannot be dialled is the host's error, what is no address the caller's."""

    async def scenario():
        async with ScriptedRelay() as relay:
            url = relay.url
        with pytest.raises(HostError, match="nobody listens"):
            await guide().relays(url)
        with pytest.raises(LocalError):
            await guide().where("gopher://x", ALICE.public)

    asyncio.run(scenario())


def test_greeting_that_never_comes_is_said():
    """A server of something else that closes at once did not greet us."""

    class Mute(ScriptedRelay):
        def connected(self, pipe):
            pipe.peer = 1
            self.pipes[1] = pipe
            self._buffers[1] = wire.FrameBuffer({})
            pipe.close()

    assert "did not greet us" in str(refused(Mute()))


def test_refresh_asks_a_few_relays_and_fills_the_book(tmp_path):
    """Up to three relays are asked at once; what they say that can be believed is learnt, and who failed is told."""

    async def scenario():
        book = RelayBook(tmp_path, clock=lambda: NOW)
        adverts = [
            sign_advert(RELAYS[0], "tls://a.example:1", NOW, 600),
            sign_advert(RELAYS[1], "tls://192.168.1.1:1", NOW, 600),
        ]
        async with GuidingRelay(encode_extension(Relays(tuple(adverts)))) as relay, ScriptedRelay() as gone:
            gone.stop()
            for address in (relay.url, gone.url):
                book.add_seed(address)
            refreshed = await guide().refresh(book, lambda _address: NEUTRAL_SCORE, random.Random(1))
            known = {entry.address for entry in book.entries()}
        book.close()
        return refreshed, known, relay.url, gone.url

    refreshed, known, asked, gone = asyncio.run(scenario())

    assert refreshed.asked == [asked]
    assert set(refreshed.troubles) == {gone} and "nobody listens" in refreshed.troubles[gone]
    assert known == {asked, gone, "tls://a.example:1"}


def test_refresh_asks_no_more_than_three(tmp_path):
    """A book of many relays does not become many connections."""

    async def scenario():
        book = RelayBook(tmp_path, clock=lambda: NOW)
        for number in range(10):
            book.add_seed(f"tcp://127.0.0.1:{number + 1}")
        refreshed = await guide().refresh(book, lambda _address: NEUTRAL_SCORE, random.Random(1))
        book.close()
        return refreshed

    refreshed = asyncio.run(scenario())

    assert len(refreshed.asked) + len(refreshed.troubles) == REFRESH_ASKS


@pytest.mark.parametrize("allow_private", [False, True])
def test_refresh_does_not_follow_a_name_into_our_own_network(tmp_path, monkeypatch, allow_private):
    """An advert may name a host that leads to this machine; it is not dialled, unless private places are allowed."""
    ask = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest, **more: ask("127.0.0.1" if host == INWARD else host, *rest, **more)
    )

    async def scenario():
        async with GuidingRelay(encode_extension(Relays(()))) as relay:
            book = RelayBook(tmp_path, clock=lambda: NOW, allow_private=allow_private)
            address = f"tcp://{INWARD}:{relay.url.rpartition(':')[2]}"
            assert book.learn(sign_advert(RELAYS[0], address, NOW, 600))
            refreshed = await guide().refresh(book, lambda _address: NEUTRAL_SCORE, random.Random(1))
            book.close()
            return refreshed.asked == [address], refreshed.troubles.get(address, ""), bool(relay.frames)

    answered, trouble, dialled = asyncio.run(scenario())

    assert answered is dialled is allow_private
    assert ("leads to 127.0.0.1" in trouble) is not allow_private
