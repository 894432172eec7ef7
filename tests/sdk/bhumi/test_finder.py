"""Laws of sdk.bhumi_finder: what a peer has signed is believed, and strangers lead nowhere private."""

import asyncio
import contextlib
import random
import time

import pytest

from tests.sdk.bhumi.build_open import OpenRelay
from tests.sdk.build import ALICE, BOB, ScriptedRelay
from tests.sdk.telling import OTHER, RELAY, THERE, Telling, said
from waystation.protocols.bhumi import wire
from waystation.protocols.bhumi.extension_messages import WhereEntry
from waystation.protocols.bhumi.messages import Feature, FrameType
from waystation.protocols.bhumi.signed_records import sign_advert, sign_presence
from waystation.sdk.bhumi import finder as bhumi_finder
from waystation.sdk.bhumi.finder import BOOK_ASKS, Finder
from waystation.sdk.bhumi.guide import Guide
from waystation.sdk.bhumi.moves import RelayChoice
from waystation.sdk.bhumi.relay_book import RelayBook
from waystation.transport.dial import RelayUrl

NOWHERE = RelayUrl.parse("tcp://127.0.0.1:1")


def finder(book=None, *, named=(), dials_private=False):
    """Return a finder that gives up soon."""
    guide = Guide(timeout_s=5)
    return Finder(guide, RelayChoice([], book, None, random.Random(1)), named, dials_private=dials_private)


def found(*entries, dials_private=False):
    """Return what a finder makes of one relay's answer."""

    async def scenario():
        async with Telling(*entries) as relay:
            asking = finder(named=[relay.place], dials_private=dials_private)
            return await asking.find(ALICE.public, [relay.place])

    findings = asyncio.run(scenario())
    return [str(place) for place in findings.places], findings.refused


def test_place_is_found():
    """What the peer has signed leads to the address that the relay names."""
    assert found(said()) == ([THERE], [])


def test_newest_place_comes_first():
    """The last word of the peer counts first, whatever order the relay has."""
    late, early = "tls://late.example:1", "tls://early.example:1"

    assert found(said(early, relay=OTHER, age_s=50), said(late)) == ([late, early], [])


@pytest.mark.parametrize(
    "entry",
    [
        lambda: said(key_pair=BOB),
        lambda: said(age_s=301),
        lambda: said(age_s=-300),
        lambda: said(address=""),
        lambda: WhereEntry(sign_presence(ALICE, RELAY.public, int(time.time()), 86_400), THERE),
        lambda: WhereEntry(sign_presence(BOB, RELAY.public, int(time.time()), 300), THERE),
    ],
    ids=["somebody else's", "over", "of the future", "nowhere", "for too long", "of another"],
)
def test_what_is_not_to_be_believed_leads_nowhere(entry):
    """Nothing is dialled for a presence that the peer has not signed, or that does not hold now."""
    assert found(entry()) == ([], [])


def test_forged_presence_leads_nowhere():
    """A relay that changes whom or where a presence names has no signature for it."""
    true = said().presence
    forged = type(true)(true.identity, OTHER.public, true.issued_at_s, true.ttl_s, true.signature)

    assert found(WhereEntry(forged, THERE)) == ([], [])


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:22", "tls://10.0.0.1:1", "tls://localhost:1", "tcp://[::1]:1"])
def test_private_place_is_refused_by_name(address):
    """A stranger cannot send us into our own network; who asked is told, and can allow it."""
    assert found(said(address)) == ([], [address])
    assert found(said(address), dials_private=True) == ([address], [])


def test_signed_address_beats_hearsay(tmp_path):
    """Where the relay itself has said that it is comes before what another relay says of it."""

    async def scenario():
        async with Telling(said()) as relay:
            with contextlib.closing(RelayBook(tmp_path)) as book:
                book.learn(sign_advert(RELAY, "tls://signed.example:1", int(time.time()), 600))
                return (await finder(book, named=[relay.place]).find(ALICE.public, [relay.place])).places

    assert [str(place) for place in asyncio.run(scenario())] == ["tls://signed.example:1", THERE]


@pytest.mark.parametrize(("knows", "asked"), [(True, 0), (False, BOOK_ASKS)])
def test_book_is_asked_only_when_the_others_know_nothing(tmp_path, knows, asked):
    """Three relays of the book are asked when those one has to do with know no other place."""

    async def scenario():
        async with contextlib.AsyncExitStack() as stack:
            first = await stack.enter_async_context(Telling(*([said()] if knows else [])))
            others = [await stack.enter_async_context(Telling(said("tls://b.example:1"))) for _ in range(5)]
            book = stack.enter_context(contextlib.closing(RelayBook(tmp_path)))
            for relay in (first, *others):
                book.add_seed(relay.url)
            asking = finder(book, named=[relay.place for relay in (first, *others)])
            findings = await asking.find(ALICE.public, [first.place])
            return findings.places, [relay.asked_count for relay in others]

    places, counts = asyncio.run(scenario())
    assert sum(counts) == asked
    assert [str(place) for place in places] == [THERE if knows else "tls://b.example:1"]


@pytest.mark.parametrize(("silent_s", "count"), [(3_600.0, 1), (0.0, 3)])
def test_silent_relay_is_left_in_peace(monkeypatch, silent_s, count):
    """Who could not be reached, or knows no such questions, costs time once, and is asked again later."""
    monkeypatch.setattr(bhumi_finder, "SILENT_S", silent_s)

    async def scenario():
        async with ScriptedRelay() as mute:
            place = RelayUrl.parse(mute.url)
            asking = Finder(
                Guide(timeout_s=0.2), RelayChoice([], None, None, random.Random(1)), [place], dials_private=True
            )
            for _ in range(3):
                assert (await asking.find(ALICE.public, [place, NOWHERE])).places == []
            return len(mute.of_type(FrameType.OPTIONS))

    assert asyncio.run(scenario()) == count


def test_memory_of_silent_relays_is_bounded():
    """A flood of dead addresses is not remembered for ever."""

    async def scenario():
        asking = finder(dials_private=True)
        places = [RelayUrl.parse(f"tcp://127.0.0.{number}:1") for number in range(1, 101)]
        await asking.find(ALICE.public, places)
        return len(asking._silent)

    assert asyncio.run(scenario()) == 64


@pytest.mark.parametrize(
    ("text", "dials_private", "place"),
    [
        (THERE, False, THERE),
        ("", False, None),
        ("nonsense://x", False, None),
        ("tcp://127.0.0.1:1", False, None),
        ("tcp://127.0.0.1:1", True, "tcp://127.0.0.1:1"),
    ],
)
def test_named_place_is_judged(text, dials_private, place):
    """What a peer says of itself is an address of the open internet, or nothing."""
    judged = finder(dials_private=dials_private).judge(text)

    assert (judged and str(judged)) == place


def test_real_relay_tells(tmp_path):
    """The relay's own machine answers with what a device has asserted."""

    async def scenario():
        async with OpenRelay(1) as relay:
            place = RelayUrl.parse(relay.url)
            return (await finder(named=[place]).find(ALICE.public, [place])).places, relay.of_type(FrameType.WHERE)

    places, questions = asyncio.run(scenario())
    assert places == []
    assert [payload for _, payload in questions] == [ALICE.public]
    assert wire.decode_options(b"\x00\x01\x00\x00\x00\x04").features is Feature.PRESENCE


@pytest.mark.parametrize(("source", "count"), [("seed", 1), ("advert", 0)])
def test_private_relay_of_ones_own_book_is_asked(tmp_path, source, count):
    """A seed is named by the user, and so may be anywhere; what others say may not, even if it is in the book."""

    async def scenario():
        async with Telling(said()) as relay:
            with contextlib.closing(RelayBook(tmp_path, allow_private=True)) as book:
                if source == "seed":
                    book.add_seed(relay.url)
                else:
                    book.learn(sign_advert(OTHER, relay.url, int(time.time()), 600))
                findings = await finder(book).find(ALICE.public, [])
                return len(findings.places), relay.asked_count

    assert asyncio.run(scenario()) == (count, count)


def test_relay_that_others_named_is_not_asked_at_a_private_address():
    """Asking is dialling, too: a place that nobody but a peer has named may lead to the open internet only."""

    async def scenario():
        async with Telling(said()) as relay:
            findings = await finder().find(ALICE.public, [relay.place])
            return findings.places, relay.asked_count, len(relay.frames)

    assert asyncio.run(scenario()) == ([], 0, 0)
