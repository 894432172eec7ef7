import random
import stat

import pytest

from waystation.core.errors import HostError, LocalError
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.extension_messages import RelayAd
from waystation.protocols.bhumi.signed_records import ADVERT_TTL_MAX_S, CLOCK_TOLERANCE_S, sign_advert
from waystation.sdk.bhumi.relay_book import (
    ENTRIES_MAX,
    LAN_MAX,
    LAN_TTL_MAX_S,
    NEUTRAL_SCORE,
    PEER_PLACES_MAX,
    SEEDS_MAX,
    RelayBook,
    RelayEntry,
    Source,
)
from waystation.sdk.bhumi.state import BhumiState

NOW = 1_800_000_000
RELAY = KeyPair.from_seed(bytes([0x0E]) * 32)
OTHER = KeyPair.from_seed(bytes([0x0F]) * 32)
HOME = "tls://relay.example:8443"
ELSEWHERE = "tls://other.example:8443"
NEAR = "tcp://192.168.1.7:8444"


class Clock:
    """A clock that a test turns."""

    def __init__(self):
        self.now = float(NOW)

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def book(tmp_path, clock):
    opened = RelayBook(tmp_path / "me", clock=clock)
    yield opened
    opened.close()


def advert(address=HOME, key_pair=RELAY, issued_s=NOW, ttl_s=600):
    return sign_advert(key_pair, address, issued_s, ttl_s)


def addresses(book):
    return [entry.address for entry in book.entries()]


def relay_number(number):
    return KeyPair.from_seed(number.to_bytes(32, "big"))


def neutral(_address):
    return NEUTRAL_SCORE


def test_seed_is_kept_for_good_in_full_spelling(book, clock):
    """A seed has no end, is known, and is written as everything else writes an address."""
    book.add_seed("Relay.example")
    clock.now += 10 * 365 * 86_400

    assert book.entries() == [RelayEntry(HOME, None, Source.SEED, False, None, NOW)]
    assert book.knows(HOME)


def test_what_is_no_address_is_no_seed(book):
    """The user is told, and nothing is kept."""
    for text in ("ftp://relay.example:1", "tls://:1", "tls://[fe80::zz]:1"):
        with pytest.raises(LocalError):
            book.add_seed(text)

    assert book.entries() == []
    assert not book.knows("ftp://relay.example:1")


def test_number_of_seeds_is_bounded(book):
    """The limit is said; a seed that is there already is no further one."""
    for number in range(SEEDS_MAX):
        book.add_seed(f"tls://r{number}.example:1")
    book.add_seed("tls://r0.example:1")

    with pytest.raises(LocalError, match=str(SEEDS_MAX)):
        book.add_seed(HOME)
    assert len(book.entries()) == SEEDS_MAX


def test_advert_counts_until_its_end(book, clock):
    """It is known with its signer until issued_at + ttl, and not one second longer."""
    assert book.learn(advert())
    assert book.entries() == [RelayEntry(HOME, RELAY.public, Source.ADVERT, False, NOW + 600, NOW)]
    clock.now = NOW + 599.9
    assert book.knows(HOME)

    clock.now = NOW + 600.0
    assert not book.knows(HOME)
    assert book.entries() == []


@pytest.mark.parametrize(
    "bad",
    [
        advert(issued_s=NOW + CLOCK_TOLERANCE_S + 1),
        advert(issued_s=NOW - 600),
        advert(ttl_s=ADVERT_TTL_MAX_S + 1),
        advert(ttl_s=0),
        advert("tls://127.0.0.1:8443"),
        advert("tls://[::1]:8443"),
        advert("tls://[::ffff:10.0.0.1]:8443"),
        advert("tls://10.0.0.1:8443"),
        advert("tls://169.254.169.254:80"),
        advert("tls://localhost:8443"),
        advert("tls://box.local:8443"),
        advert("tls://box:8443"),
        advert("tls://127.1:8443"),
        advert("tls://2130706433:8443"),
        advert("tls://0x7f.1:8443"),
        advert("https://relay.example:8443"),
        advert("tls://[1:2:3:4:5:6:7:8:9]:8443"),
        RelayAd(OTHER.public, NOW, 600, HOME, advert().signature),
        RelayAd(RELAY.public, NOW, 601, HOME, advert().signature),
        RelayAd(RELAY.public, NOW, 600, ELSEWHERE, advert().signature),
    ],
    ids=lambda bad: f"{bad.address} at {bad.issued_at_s - NOW} for {bad.ttl_s}",
)
def test_advert_that_cannot_be_believed_is_refused(book, bad):
    """Times, place and signature are looked at before anything is kept."""
    assert not book.learn(bad)
    assert book.entries() == []


def test_private_advert_needs_permission_each_time(book, tmp_path, clock):
    """What one program was allowed to believe, another that is not allowed to does not see."""
    near = advert("tcp://127.0.0.1:8444")
    allowed = RelayBook(tmp_path / "me", clock=clock, allow_private=True)

    assert allowed.learn(near) and allowed.knows(near.address)
    assert allowed.note_peer_place("tcp://127.0.0.1:9")
    assert len(allowed.entries()) == 2
    assert not book.knows(near.address)
    assert book.entries() == []
    allowed.close()


def test_newest_advert_of_a_relay_counts(book):
    """A relay that moved is known at its new address alone, and an older advert does not bring the old one back."""
    assert book.learn(advert(issued_s=NOW - 50))
    assert book.learn(advert(ELSEWHERE, issued_s=NOW - 20))

    assert not book.learn(advert(issued_s=NOW - 50))
    assert addresses(book) == [ELSEWHERE]


def test_address_of_a_live_advert_cannot_be_claimed(book, clock):
    """Another relay gets the address only when the advert has ended."""
    assert book.learn(advert())
    assert not book.learn(advert(key_pair=OTHER, issued_s=NOW + 1))
    assert book.entries()[0].relay_id == RELAY.public

    clock.now += 600
    assert book.learn(advert(key_pair=OTHER, issued_s=NOW + 600))
    assert book.entries()[0].relay_id == OTHER.public


def test_clock_that_was_set_back_hides_adverts_of_the_future(book, clock):
    """What was learnt by a clock that ran ahead is not believed by the right one."""
    clock.now += 86_400
    assert book.learn(advert(issued_s=NOW + 86_400))

    clock.now = NOW
    assert not book.knows(HOME)


def test_lan_find_is_local_and_ends(book, clock):
    """What the local network shows may be private, is no reason to be sent there, and ends by its TTL."""
    assert book.found_on_lan(NEAR, RELAY.public, 2.5)
    assert book.entries() == [RelayEntry(NEAR, RELAY.public, Source.LAN, True, NOW + 3, NOW)]
    assert not book.knows(NEAR)

    clock.now += 3
    assert book.entries() == []


def test_goodbye_on_the_lan_leaves_other_sources(book):
    """An address that the local network no longer shows may still be a seed."""
    book.add_seed(NEAR)
    book.found_on_lan(NEAR, RELAY.public, 120)
    shown = book.entries()[0]
    assert (shown.source, shown.is_local, shown.relay_id, shown.expires_s) == (Source.SEED, True, RELAY.public, None)

    assert not book.found_on_lan(NEAR, RELAY.public, 0)
    shown = book.entries()[0]
    assert (shown.source, shown.is_local, shown.relay_id) == (Source.SEED, False, None)


def test_lan_find_lives_no_longer_than_mdns_recommends(book):
    """A TTL of years is cut, and one that is no number is none."""
    assert book.found_on_lan(NEAR, None, 1e12)
    assert not book.found_on_lan(ELSEWHERE, None, float("nan"))
    assert not book.found_on_lan("gopher://box:70", None, 10)

    assert [entry.expires_s for entry in book.entries()] == [NOW + LAN_TTL_MAX_S]


def test_lan_flood_displaces_nothing(book):
    """A thousand services are cut to the limit; what was known before is all there, and is renewed."""
    book.learn(advert())
    book.found_on_lan(NEAR, None, 100)
    taken = [book.found_on_lan(f"tcp://192.168.2.1:{number}", None, 4_000) for number in range(1, 1_001)]

    assert sum(taken) == LAN_MAX - 1
    assert {HOME, NEAR} <= set(addresses(book))
    assert book.found_on_lan(NEAR, None, 200)


def test_places_of_peers_are_bounded_and_end(book, clock):
    """The one named longest ago leaves, naming one again renews it, and after a week nothing is left."""
    for number in range(PEER_PLACES_MAX):
        clock.now = NOW + number
        book.note_peer_place(f"tls://p{number}.example:1")
    clock.now += 1
    assert book.note_peer_place("tls://p0.example:1")
    clock.now += 1
    assert book.note_peer_place(HOME)

    known = addresses(book)
    assert len(known) == PEER_PLACES_MAX
    assert {HOME, "tls://p0.example:1"} <= set(known) and "tls://p1.example:1" not in known
    assert not book.knows(HOME)
    clock.now += 7 * 86_400
    assert book.entries() == []


def test_private_or_senseless_place_of_a_peer_is_refused(book):
    """A peer cannot send us into our own network."""
    for place in ("tcp://127.0.0.1:1", "tls://localhost:1", "", "tls://x.example", "x" * 5_000):
        assert not book.note_peer_place(place)

    assert book.entries() == []


def test_oldest_adverts_leave_a_full_book(book):
    """Above the limit the adverts issued longest ago go; seeds stay, and an old newcomer does not come in."""
    book.add_seed(ELSEWHERE)
    for number in range(ENTRIES_MAX):
        assert book.learn(advert(f"tls://r{number}.example:1", relay_number(number + 1), NOW - 500 + number))

    known = addresses(book)
    assert len(known) == ENTRIES_MAX
    assert ELSEWHERE in known and "tls://r0.example:1" not in known and "tls://r1.example:1" in known
    assert not book.learn(advert(HOME, RELAY, NOW - 550))
    assert addresses(book) == known


def test_expired_adverts_leave_before_live_ones(book, clock):
    """Room is made by what is worth nothing any more."""
    for number in range(ENTRIES_MAX - 1):
        book.learn(advert(f"tls://r{number}.example:1", relay_number(number + 1), NOW, 100))
    book.learn(advert(ELSEWHERE, OTHER, NOW - 10))
    clock.now += 100

    assert book.learn(advert(issued_s=NOW + 100))
    assert addresses(book) == [ELSEWHERE, HOME]


def test_removed_relay_is_forgotten_whatever_it_was_known_from(book):
    """Removal says whether there was anything; nonsense is the caller's error."""
    book.add_seed(HOME)
    book.learn(advert())
    book.found_on_lan(HOME, None, 100)

    assert book.remove("relay.example")
    assert not book.remove(HOME)
    assert book.entries() == []
    with pytest.raises(LocalError):
        book.remove("gopher://x")


def test_address_known_twice_is_shown_once(book):
    """One entry with the weightiest source, the last end and the first day."""
    book.note_peer_place(HOME)
    book.learn(advert())

    assert book.entries() == [RelayEntry(HOME, RELAY.public, Source.ADVERT, False, NOW + 604_800, NOW)]


def test_spellings_of_one_ipv6_address_are_one(book):
    """The book has one entry for an address however it is written."""
    book.add_seed("tls://[2606:4700:0000::0001]:8443")

    assert addresses(book) == ["tls://[2606:4700::1]:8443"]
    assert book.knows("tls://[2606:4700:0:0::1]:8443")


def test_only_who_was_named_or_shown_may_be_private(book):
    """A seed and a relay of the local network may be dialled wherever they lead, an advert and a peer's place not."""
    book.add_seed("tls://a.example:1")
    book.found_on_lan("tls://b.example:1", None, 100)
    book.learn(advert("tls://c.example:1"))
    book.note_peer_place("tls://d.example:1")

    assert [entry.may_be_private for entry in book.entries()] == [True, True, False, False]


def test_local_relays_are_tried_first_unless_they_failed(book):
    """The local network's come first, the best before the rest; one that mostly fails stands in line."""
    scores = {HOME: 0.9, ELSEWHERE: 0.8, NEAR: 0.6, "tcp://192.168.1.8:1": 0.7, "tcp://192.168.1.9:1": 0.1}
    book.add_seed(HOME)
    book.add_seed(ELSEWHERE)
    for address in list(scores)[2:]:
        book.found_on_lan(address, None, 100)

    ordered = [entry.address for entry in book.order(scores.__getitem__, random.Random(1))]

    assert ordered == ["tcp://192.168.1.8:1", NEAR, HOME, ELSEWHERE, "tcp://192.168.1.9:1"]


def test_untried_relays_are_strewn_in(book):
    """Most of the time the best is first, sometimes one never tried is, and those that failed come last of all."""
    scores = {f"tls://good{number}.example:1": 0.9 - number / 100 for number in range(3)}
    scores |= {f"tls://new{number}.example:1": NEUTRAL_SCORE for number in range(3)}
    scores["tls://bad.example:1"] = 0.2
    for address in scores:
        book.add_seed(address)

    orders = [[entry.address for entry in book.order(scores.__getitem__, random.Random(seed))] for seed in range(100)]

    firsts = [order[0] for order in orders]
    assert all(sorted(order) == sorted(scores) and order[-1] == "tls://bad.example:1" for order in orders)
    assert 10 <= sum("new" in first for first in firsts) <= 40
    assert {first for first in firsts if "new" not in first} == {"tls://good0.example:1"}
    assert len({first for first in firsts if "new" in first}) == 3


def test_equals_are_in_random_order_and_a_seed_repeats_it(book):
    """Not everybody tries the same relay first, and one rng gives one order."""
    for number in range(6):
        book.add_seed(f"tls://r{number}.example:1")

    orders = {tuple(entry.address for entry in book.order(neutral, random.Random(seed))) for seed in range(20)}

    assert len(orders) > 10
    assert book.order(neutral, random.Random(3)) == book.order(neutral, random.Random(3))


def test_book_outlives_the_program_beside_the_state(tmp_path, clock):
    """The table stands in the database of the identity, with its mode, and is read back."""
    state = BhumiState(tmp_path, clock=clock)
    first = RelayBook(tmp_path, clock=clock)
    first.learn(advert())
    first.close()
    state.close()
    again = RelayBook(tmp_path, clock=clock)

    assert addresses(again) == [HOME]
    assert stat.S_IMODE((tmp_path / "bhumi.db").stat().st_mode) == 0o600
    again.close()


def test_folder_that_cannot_be_used_is_the_hosts_error(tmp_path):
    """A file in place of the folder is a sentence with the exit code of a store."""
    (tmp_path / "me").write_text("")

    with pytest.raises(HostError, match="me") as caught:
        RelayBook(tmp_path / "me")
    assert caught.value.exit_code == 5
