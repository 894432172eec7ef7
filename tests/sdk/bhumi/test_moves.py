"""Laws of sdk.bhumi_moves: which relay is next, and what is signed about where we are."""

import random
from types import SimpleNamespace

import pytest

from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.signed_records import is_signed, sign_advert, untimely
from waystation.sdk.bhumi.moves import PRESENCE_TTL_S, Presences, RelayChoice
from waystation.sdk.bhumi.relay_book import RelayBook
from waystation.transport.dial import RelayUrl

ONE, TWO, THREE = (RelayUrl.parse(f"tcp://127.0.0.{number}:1") for number in (1, 2, 3))
ALICE = KeyPair.from_seed(bytes([0xA1]) * 32)
RELAY = KeyPair.from_seed(bytes([0xC3]) * 32)


@pytest.fixture
def book(tmp_path):
    """An empty book."""
    made = RelayBook(tmp_path, clock=lambda: 1_000_000.0, allow_private=True)
    yield made
    made.close()


def choice(named=(), book=None, scores=None):
    """Return a choice among relays with these scores by address."""
    quality = SimpleNamespace(
        score=lambda address: (scores or {}).get(address, 0.5), connected=lambda _address, _seconds: None
    )
    return RelayChoice(map(str, named), book, quality, random.Random(1))


def test_named_relays_in_their_order(book):
    """The first named one is preferred, and all of them to the book."""
    book.add_seed(str(THREE))
    chosen = choice([TWO, ONE], book, {str(THREE): 0.9})
    order = []
    for _ in range(4):
        order.append(chosen.next())
        chosen.passed(order[-1])

    assert order == [TWO, ONE, THREE, TWO]


def test_book_gives_the_best_one(book):
    """Without a named one the order is the book's: here the better score."""
    for relay in (ONE, TWO, THREE):
        book.add_seed(str(relay))

    assert choice([], book, {str(ONE): 0.4, str(TWO): 0.8, str(THREE): 0.6}).next() == TWO


def test_relay_of_the_local_network_comes_first(book):
    """LAN relays are preferred."""
    book.add_seed(str(ONE))
    book.found_on_lan(str(TWO), None, 100)

    assert choice([], book).next() == TWO


def test_success_forgives(book):
    """Once a relay has worked, those that failed before are worth a try again."""
    chosen = choice([ONE, TWO])
    chosen.passed(ONE)
    second = chosen.next()
    chosen.reached(TWO, 0.1)

    assert (second, chosen.next()) == (TWO, ONE)


@pytest.mark.parametrize(("named", "others"), [([ONE], False), ([ONE, TWO], True)])
def test_others_are_those_that_have_not_failed(named, others):
    """After a failure it matters whether there is somebody else to try."""
    chosen = choice(named)
    before = chosen.has_others
    chosen.passed(ONE)

    assert (before, chosen.has_others) == (False, others)


def test_empty_book_knows_nothing(book):
    """Nowhere to go is an answer, too; what is learnt later counts."""
    chosen = choice([], book)
    before = chosen.next()
    book.add_seed(str(ONE))

    assert (before, chosen.next()) == (None, ONE)


def test_key_is_demanded_of_advertised_relays_only(book):
    """Who advertises the address of a relay that the user named cannot lock us out of it."""
    for relay in (ONE, TWO, THREE):
        book.learn(sign_advert(KeyPair.from_seed(str(relay).encode().ljust(32)[:32]), str(relay), 1_000_000, 600))
    book.add_seed(str(TWO))
    chosen = choice([THREE], book)
    key = KeyPair.from_seed(str(ONE).encode().ljust(32)[:32]).public

    assert [chosen.advertised_id(relay) for relay in (ONE, TWO, THREE)] == [key, None, None]
    assert chosen.entry(str(ONE)).relay_id == key
    assert chosen.entry(str(TWO)).relay_id is not None
    assert choice([ONE]).advertised_id(ONE) is choice([ONE]).entry(str(ONE)) is None


def test_hearsay_is_what_only_others_name(tmp_path):
    """Adverts may lead to public places only; what the user named leads where it leads."""
    book = RelayBook(tmp_path, clock=lambda: 1_000_000.0)
    far = RelayUrl.parse("tls://relay.example:1")
    book.learn(sign_advert(RELAY, str(far), 1_000_000, 600))
    book.add_seed(str(ONE))
    book.found_on_lan(str(TWO), None, 100)
    heard = [choice([THREE], book).by_gossip(relay) for relay in (far, ONE, TWO, THREE)]
    named = choice([far], book).by_gossip(far)
    book.close()

    assert (heard, named) == ([True, False, False, False], False)


def test_later_presence_is_newer():
    """Two moves within a second are in their order, and both can be believed."""
    presences = Presences(ALICE, lambda: 5_000.7)
    first, second = presences.sign(RELAY.public), presences.sign(ALICE.public)

    assert (first.issued_at_s, second.issued_at_s) == (5_000, 5_001)
    assert (first.relay_id, second.relay_id, first.identity) == (RELAY.public, ALICE.public, ALICE.public)
    assert all(is_signed(each) and untimely(each, 5_000) is None for each in (first, second))
    assert first.ttl_s == PRESENCE_TTL_S == 600
