"""Laws of protocols.bhumi.links: whom a relay dials, when, and how often."""

import random

import pytest

from tests.protocols.bhumi.build import limits_of
from tests.protocols.bhumi.build_open import RELAY_KEYS, SECOND, address_of, advert
from waystation.core.effects import Dial
from waystation.core.instant import Instant
from waystation.protocols.bhumi.extension_wire import encode_tagged
from waystation.protocols.bhumi.limits import DEFAULT_LIMITS
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.adverts import KnownAdvert
from waystation.protocols.bhumi.relay.links import (
    RETRY_MAX_MS,
    Links,
)

OWN = RELAY_KEYS[11].public
NOW = Instant(500 * SECOND)


def links(*configured, own_address="", dials_private=False, seed=1):
    """Return the links of relay 11."""
    return Links(OWN, random.Random(seed), configured, limits_of(), own_address, dials_private=dials_private)


def neighbours(*numbers):
    """Return live adverts of these relays."""
    adverts = [advert(number) for number in numbers]
    return [KnownAdvert(one, encode_tagged(one), 2**40) for one in adverts]


def dialled(made, known=(), linked=(), now=NOW):
    """Return the addresses that are dialled now."""
    return [dial.url for dial in made.dials(known, linked, now)]


def test_operator_s_addresses_are_dialled_at_once_private_or_not():
    """Each once while it is under way."""
    made = links("tcp://127.0.0.1:1", "tls://b.example:2")

    assert made.deadline() <= NOW
    assert made.dials((), (), NOW) == [Dial(name, name, False) for name in ("tcp://127.0.0.1:1", "tls://b.example:2")]
    assert dialled(made) == []
    assert made.busy_count == 2


def test_advertised_addresses_must_lead_to_the_open_internet():
    """Unless the operator allows more."""
    for allowed in (False, True):
        made = links(dials_private=allowed)
        made.stir(NOW)
        assert [dial.only_public for dial in made.dials(neighbours(1), (), NOW)] == [not allowed]


def test_eight_links_and_no_more():
    """Of many neighbours eight are drawn, the operator's first."""
    made = links("tls://a.example:1")
    first = dialled(made, neighbours(*range(10)))

    assert first[0] == "tls://a.example:1"
    assert len(set(first)) == len(first) == DEFAULT_LIMITS.links


def test_place_is_kept_for_the_operator_s():
    """However many neighbours there are, an operator's relay that is down for now finds its place free."""
    made = links("tls://a.example:1", "tls://b.example:1")
    dialled(made)
    made.failed("tls://a.example:1", NOW)
    made.failed("tls://b.example:1", NOW)

    assert len(dialled(made, neighbours(*range(10)))) == DEFAULT_LIMITS.links - 2
    assert dialled(made, neighbours(*range(10)), now=Instant(NOW + 5 * SECOND)) == [
        "tls://a.example:1",
        "tls://b.example:1",
    ]


def test_neighbours_come_before_the_local_network():
    """Both are dialled while there is room."""
    made = links()
    made.add_local("tcp://192.168.1.2:1", None, NOW)

    assert dialled(made, neighbours(1)) == [address_of(1), "tcp://192.168.1.2:1"]


def test_relays_that_are_linked_already_are_not_dialled():
    """Whoever dialled whom; once that link is gone they are."""
    made = links()
    made.stir(NOW)
    assert dialled(made, neighbours(1), [RELAY_KEYS[1].public]) == []
    made.stir(NOW)

    assert dialled(made, neighbours(1)) == [address_of(1)]


def test_rests_double_up_to_five_minutes():
    """With jitter, and from the beginning again after a link that lasted."""
    made, now, rests = links("tls://a.example:1"), NOW, []
    for _ in range(14):
        assert dialled(made, now=now) == ["tls://a.example:1"]
        made.failed("tls://a.example:1", now)
        dialled(made, now=now)
        rests.append((made.deadline() - now) // 1_000)
        now = made.deadline()
    assert all((1_000 << n) // 2 <= rest <= 1_000 << n for n, rest in enumerate(rests[:8]))
    assert all(RETRY_MAX_MS // 2 <= rest <= RETRY_MAX_MS for rest in rests[10:])
    dialled(made, now=now)
    made.stands("tls://a.example:1", now)
    later = Instant(now + 31 * SECOND)
    made.failed("tls://a.example:1", later)
    dialled(made, now=later)

    assert made.deadline() - later <= SECOND


def test_operator_s_address_that_cannot_be_reached_is_dialled_within_6_s():
    """NODE-REDIAL: the waits of five minutes are for who answers and ends the link, and for addresses of others."""
    made, now = links("tls://a.example:1"), NOW
    for _ in range(12):
        assert dialled(made, now=now) == ["tls://a.example:1"]
        made.unreachable("tls://a.example:1", now)
        dialled(made, now=now)
        assert made.deadline() - now <= 6 * SECOND
        now = made.deadline()


def test_local_address_that_cannot_be_reached_is_dialled_less_and_less():
    """Nobody vouches for it: after some failures it waits longer than an address of the operator."""
    made, now = links(), NOW
    made.add_local("tcp://192.168.1.2:1", None, now)
    for _ in range(6):
        assert dialled(made, now=now) == ["tcp://192.168.1.2:1"]
        made.unreachable("tcp://192.168.1.2:1", now)
        dialled(made, now=now)
        rest, now = made.deadline() - now, made.deadline()

    assert rest > 6 * SECOND


def test_local_relay_is_forgotten_after_eight_failures_and_named_again():
    """MDNS tells it again when it is back."""
    made, now = links(), NOW
    made.add_local("tcp://192.168.1.2:1", None, now)
    for _ in range(8):
        assert dialled(made, now=now) == ["tcp://192.168.1.2:1"]
        made.failed("tcp://192.168.1.2:1", now)
        now = Instant(now + 400 * SECOND)

    assert len(made) == 0
    made.add_local("tcp://192.168.1.2:1", None, now)
    assert dialled(made, now=now) == ["tcp://192.168.1.2:1"]


def test_local_places_are_bounded():
    """The one that failed most makes room for a new one."""
    made = links()
    for number in range(DEFAULT_LIMITS.local_relays + 10):
        made.add_local(f"tcp://192.168.1.{number}:1", None, NOW)

    assert len(made) == DEFAULT_LIMITS.local_relays


@pytest.mark.parametrize("place", ["ours", "known"])
def test_what_is_ours_or_known_is_not_noted_again(place):
    """A relay hears itself by mDNS."""
    made = links("tcp://192.168.1.2:1", own_address="tcp://192.168.1.3:1")
    made.add_local("tcp://192.168.1.3:1" if place == "ours" else "tcp://192.168.1.2:1", None, NOW)
    made.add_local("tcp://192.168.1.4:1", OWN, NOW)

    assert len(made) == 1


def test_address_that_is_ours_is_never_dialled_again():
    """Whoever answers there has our key."""
    made = links("tls://a.example:1")
    dialled(made)

    assert made.judge("tls://a.example:1", OWN, [], dialled_us=False) is Refusal.OWN_KEY
    made.failed("tls://a.example:1", NOW)
    made.add_local("tls://a.example:1", None, NOW)
    assert len(made) == 0


def test_second_address_of_a_relay_is_no_second_link():
    """The one that stands stays."""
    made = links("tls://a.example:1", "tls://b.example:1")
    dialled(made)
    key = RELAY_KEYS[1].public
    assert made.judge("tls://a.example:1", key, [], dialled_us=False) is None

    assert made.judge("tls://b.example:1", key, ["tls://a.example:1"], dialled_us=False) is Refusal.DOUBLE_LINK
    made.failed("tls://b.example:1", NOW)
    made.stands("tls://a.example:1", NOW)
    assert dialled(made, now=Instant(NOW + 99 * SECOND)) == []


def test_relay_is_who_the_advert_of_its_address_says():
    """Else it could pass another relay's challenge on to us; whoever advertises another's address locks nobody out."""
    made = links()
    made.stir(NOW)
    stranger = advert(2, address=address_of(1))
    assert len(dialled(made, [*neighbours(1), KnownAdvert(stranger, encode_tagged(stranger), 2**40)])) == 1

    verdicts = [made.judge(address_of(1), RELAY_KEYS[number].public, [], dialled_us=False) for number in (0, 1, 2)]
    assert verdicts == [Refusal.OTHER_IDENTITY, None, None]


def test_address_is_dialled_while_one_of_those_who_advertise_it_has_no_link():
    """A stranger that is linked with us and advertises another's address keeps us from nobody."""
    made = links()
    made.stir(NOW)
    stranger = advert(2, address=address_of(1))
    both = [*neighbours(1), KnownAdvert(stranger, encode_tagged(stranger), 2**40)]

    assert dialled(made, both, [RELAY_KEYS[2].public]) == [address_of(1)]


@pytest.mark.parametrize("first", ["local", "advertised", "configured"])
@pytest.mark.parametrize("second", ["local", "advertised", "configured"])
def test_claim_keeps_us_only_from_addresses_that_nobody_better_named(first, second):
    """The operator, then adverts, then the local network: whoever claims a key there has no say above."""
    order = ["configured", "advertised", "local"]
    key, places = RELAY_KEYS[1].public, {"first": first, "second": second}
    address = {name: f"tls://{name}.example:1" for name in places}
    made = links(*(address[name] for name, kind in places.items() if kind == "configured"))
    known = []
    for name, kind in places.items():
        if kind == "local":
            made.add_local(address[name], None, NOW)
        elif kind == "advertised":
            one = advert(1, address=address[name])
            known.append(KnownAdvert(one, encode_tagged(one), 2**40))
    made.stir(NOW)
    assert set(dialled(made, known)) == set(address.values())
    assert made.judge(address["first"], key, [], dialled_us=False) is None
    made.stands(address["first"], NOW)
    is_double = order.index(first) <= order.index(second)

    verdict = made.judge(address["second"], key, [address["first"]], dialled_us=False)
    assert verdict is (Refusal.DOUBLE_LINK if is_double else None)
    made.failed(address["second"], NOW)
    assert dialled(made, known, now=Instant(NOW + 99 * SECOND)) == ([] if is_double else [address["second"]])


def test_adverts_cannot_make_us_dial_without_end():
    """New addresses cost their authors nothing; however fast they fail, dials have an allowance."""
    made, now, count = links(), NOW, 0
    for step in range(6_000):
        one = advert(1, address=f"tls://victim.example:{1 + step}")
        made.stir(now)
        for address in dialled(made, [KnownAdvert(one, encode_tagged(one), 2**40)], now=now):
            count += 1
            made.failed(address, now)
        now = Instant(now + SECOND // 100)

    assert count <= DEFAULT_LIMITS.dials_burst + DEFAULT_LIMITS.dials_per_minute


def test_whoever_finds_the_allowance_spent_is_dialled_when_there_is_one():
    """It is not forgotten."""
    made = links()
    for number in range(DEFAULT_LIMITS.dials_burst):
        made.add_local(f"tcp://192.168.1.{number}:1", None, NOW)
        made.failed(*dialled(made), NOW)
    made.add_local("tcp://192.168.1.99:1", None, NOW)
    assert dialled(made) == []

    found, now = [], NOW
    while now < NOW + 600 * SECOND and "tcp://192.168.1.99:1" not in found:
        now = made.deadline()
        for address in dialled(made, now=now):
            found.append(address)
            made.failed(address, now)
    assert "tcp://192.168.1.99:1" in found
    assert now >= NOW + 60 * SECOND // DEFAULT_LIMITS.dials_per_minute


def test_of_two_directions_that_of_the_smaller_key_stays():
    """A relay that has dialled us, and proved it, keeps its link when its key is smaller than ours (BHUMI-DOUBLE)."""
    verdicts = {}
    for number in range(11):
        made = links(address_of(number))
        key = RELAY_KEYS[number].public
        verdicts[key] = made.judge(address_of(number), key, [], dialled_us=True)

    assert {key for key, verdict in verdicts.items() if verdict is Refusal.DOUBLE_LINK} == {
        key for key in verdicts if key < OWN
    }
    assert len(set(verdicts.values())) == 1 + any(key < OWN for key in verdicts)


def test_adverts_that_ended_are_forgotten():
    """Nobody dials an address that nobody names any more."""
    made = links()
    made.stir(NOW)
    dialled(made, neighbours(1, 2))
    made.failed(address_of(1), NOW)
    dialled(made, neighbours(2))

    assert len(made) == 1


def test_nothing_to_dial_rings_no_bell():
    """A relay without peers sleeps."""
    assert links().deadline() is None
