"""Laws of protocols.bhumi.peering: relays link, gossip, and part."""

import pytest

from tests.protocols.bhumi.build_open import ALICE, BOB, RELAY_KEYS, Country, address_of, advert, presence
from waystation.protocols.bhumi.extension_messages import Gossip
from waystation.protocols.bhumi.extension_wire import decode_tagged
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.messages import Feature
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.signed_records import is_signed

LINE = {number: [number - 1] for number in range(1, 12)}
"""Each relay is told of the one before."""


def test_two_relays_link_and_share_a_presence():
    """A device at one is found at the other in the same turn, with the address of its relay."""
    country = Country(relays=2, peers={1: [0]})
    country.guest(0, key=ALICE).say(presence(ALICE, 0))
    (entry,) = country.guest(1).where(ALICE)

    assert country.contacts() == [1, 1]
    assert (entry.presence, entry.address) == (presence(ALICE, 0), address_of(0))
    assert country.refused == []


def test_gossip_goes_both_ways():
    """Whoever dialled, both tell."""
    country = Country(relays=2, peers={1: [0]})
    country.guest(1, key=ALICE).say(presence(ALICE, 1))

    assert country.guest(0).where(ALICE)[0].presence == presence(ALICE, 1)


def test_relays_find_each_other_by_adverts():
    """A line of relays, each told of one other only, becomes a mesh."""
    country = Country(relays=6, peers=LINE)
    country.pass_s(120)

    assert country.contacts() == [5] * 6
    known = [sorted(one["address"] for one in relay.view(country.now)["neighbours"]) for relay in country.relays]
    assert known == [sorted(address_of(other) for other in range(6) if other != number) for number in range(6)]


def test_one_link_stands_between_two_relays():
    """Both dial each other: the smaller key's link stays, and nothing is counted as refused (BHUMI-DOUBLE)."""
    country = Country(relays=2, peers={0: [1], 1: [0]})
    country.pass_s(600)
    smaller = min((0, 1), key=lambda number: RELAY_KEYS[number].public)

    assert country.contacts() == [1, 1]
    assert [relay.sizes()["links"] for relay in country.relays] == [number == smaller for number in range(2)]
    assert {close.reason for _, close in country.closes} <= {Refusal.DOUBLE_LINK}
    assert country.refused == []


def test_relay_that_dials_itself_forgets_the_address():
    """The key tells, under whatever name; the address is not tried again."""
    country = Country(relays=1, peers={0: [0]}, advertise="tls://other.example:1")
    country.pass_s(600)

    assert [close.reason for _, close in country.closes] == [Refusal.OWN_KEY]
    assert len(country.dials) == 1
    assert country.refused == []


def test_relay_that_died_is_dropped_by_the_end_of_its_advert():
    """Its contacts end at once; what it said lasts an hour from its last advert, and is told to nobody after that."""
    country = Country(relays=3, peers=LINE)
    country.pass_s(100)
    country.cut(2)
    country.pass_s(1)
    assert country.contacts()[:2] == [1, 1]
    country.pass_s(4_600)

    assert [one["address"] for one in country.relays[0].view(country.now)["neighbours"]] == [address_of(1)]
    assert country.guest(0).adverts()[0].address == address_of(0)
    assert len(country.guest(0).adverts()) == 2


def test_link_that_was_lost_comes_back():
    """NODE-REDIAL: the operator's peers are dialled for ever, and linked within 6 s of their return."""
    country = Country(relays=2, peers={1: [0]})
    country.cut(0)
    country.pass_s(600)
    tries = sum(relay == 1 for relay, _ in country.dials)
    country.down.clear()
    country.pass_s(7)

    assert 100 <= tries <= 210
    assert country.contacts() == [1, 1]


def test_late_relay_gets_a_sample():
    """Who joins later learns what is known."""
    country = Country(relays=3, peers={1: [0], 2: [1]}, qa=False)
    country.cut(2)
    country.guest(0, key=ALICE).say(presence(ALICE, 0))
    country.down.clear()
    country.pass_s(5)

    assert country.guest(2).where(ALICE)[0].presence == presence(ALICE, 0)


def test_expired_presence_is_served_by_nobody():
    """Up to the last second, then never, at any relay; and nobody passed it on after that."""
    country = Country(relays=4, peers=LINE)
    country.pass_s(60)
    country.guest(0, key=ALICE).say(presence(ALICE, 0, 60, 100))
    country.pass_s(99)
    assert all(country.guest(relay).where(ALICE) for relay in range(4))
    country.records.clear()
    country.pass_s(1)

    assert not any(country.guest(relay).where(ALICE) for relay in range(4))
    country.pass_s(300)
    assert presence(ALICE, 0, 60, 100) not in [decode_tagged(tagged) for _, tagged in country.records]
    assert [relay.sizes()["presences"] for relay in country.relays] == [0] * 4


def test_every_record_is_as_its_owner_signed_it():
    """Whatever went over any link, no byte has changed, and relays signed adverts only."""
    country = Country(relays=5, peers=LINE)
    country.pass_s(60)
    for relay, device in ((0, ALICE), (3, BOB)):
        country.guest(relay, key=device).say(presence(device, relay, 60))
    country.pass_s(600)
    sent = {tagged for _, tagged in country.records}

    assert len(sent) == 5 + 2
    assert all(is_signed(decode_tagged(tagged)) for tagged in sent)


def test_record_does_not_go_round():
    """Each relay tells three others at once and three with the next round; with contacts enough nobody asks again."""
    country = Country(relays=10, peers=LINE)
    country.pass_s(120)
    country.records.clear()
    country.guest(0, key=ALICE).say(presence(ALICE, 0, 120, 300))
    country.pass_s(290)

    said = [relay for relay, tagged in country.records if decode_tagged(tagged) == presence(ALICE, 0, 120, 300)]
    assert country.contacts() == [9] * 10
    assert 9 <= len(said) <= 10 * (3 + 3)


def test_contact_needs_an_identity():
    """Gossip of an anonymous connection is ignored and counted."""
    country = Country()
    country.guest().say(Gossip((presence(ALICE, 0),)))

    assert country.refusals() == {"gossip_without_identity": 1}
    assert country.contacts() == [0]


def test_contacts_that_dialled_are_bounded():
    """The next one is closed; when one leaves there is room again."""
    country = Country(limits=BhumiLimits(contacts=2))
    first, _, third = (country.contact(number=number) for number in (9, 10, 11))

    assert third.closed is Refusal.CONTACTS_FULL
    first.hang_up()
    assert country.contact(number=8).closed is None
    assert country.contacts() == [2]


def test_one_host_does_not_take_every_place():
    """The fifth relay of one address is closed, those of other addresses are not (BHUMI-FLOOD)."""
    country = Country()
    lines = [country.contact(number=number, host="192.0.2.1") for number in range(6, 11)]

    assert [line.closed for line in lines] == [None] * 4 + [Refusal.CONTACTS_FULL]
    assert country.contact(number=11, host="192.0.2.2").closed is None
    lines[0].hang_up()
    assert country.contact(number=10, host="192.0.2.1").closed is None
    assert country.contacts() == [5]


def test_relay_that_demands_binding_is_linked_too():
    """A link answers the challenge like any client."""
    country = Country(relays=2, peers={1: [0]}, require_binding=True)

    assert country.contacts() == [1, 1]


def test_relay_that_does_not_gossip_is_left_alone():
    """It is dialled again and again, more and more seldom, and no link stands."""
    country = Country(relays=2, peers={1: [0]})
    country.cut(0)
    country.relays[0] = Country(gossip=False).relays[0]
    country.down.clear()
    country.pass_s(1_000)

    assert {close.reason for _, close in country.closes} == {Refusal.NO_GOSSIP}
    assert country.relays[1].sizes()["contacts"] == 0


def test_ban_ends_a_link_that_we_dialled():
    """Whoever the other side says it is."""
    country = Country(relays=2, peers={1: [0]})
    country.relays[1].expel(RELAY_KEYS[0].public, country.now)
    country.settle()

    assert country.contacts() == [0, 0]
    assert [close.reason for _, close in country.closes] == [Refusal.IDENTITY_BANNED]


def test_relay_that_is_refused_is_not_linked_again():
    """A review ends the link, and each later dial ends when the other side says who it is (NODE-ACCESS)."""
    country = Country(relays=2, peers={1: [0]})
    country.kept_out.add((1, RELAY_KEYS[0].public))
    country.relays[1].review(country.now)
    country.settle()
    country.pass_s(1_000)

    assert country.contacts() == [0, 0]
    assert len(country.closes) > 1
    assert {close.reason for _, close in country.closes} <= {Refusal.IDENTITY_BANNED}


def test_shutting_ends_links_and_dials_nobody():
    """Nothing stands afterwards on either side."""
    country = Country(relays=2, peers={1: [0]})
    country.down.add(1)
    country.relays[1].retire()
    country.relays[1].shut(country.now)
    country.settle()
    dialled = sum(relay == 1 for relay, _ in country.dials)
    country.pass_s(600)

    assert country.contacts() == [0, 0]
    assert sum(relay == 1 for relay, _ in country.dials) == dialled
    assert country.refused == []


def test_local_relay_is_dialled_though_it_is_private():
    """What the local network names need not be public; a stranger's advert must lead there."""
    country = Country(relays=2)
    country.relays[1].discovered(address_of(0), country.now, RELAY_KEYS[0].public)
    country.relays[1].discovered("no address", country.now)
    country.pass_s(1)

    assert country.contacts() == [1, 1]
    assert [dial.only_public for _, dial in country.dials] == [False]


def test_advertised_address_must_be_public():
    """The dialler judges where a name leads."""
    country = Country(relays=3, peers={1: [0]})
    country.contact(1).say(Gossip((advert(2),)))
    country.pass_s(1)

    assert {dial.only_public for relay, dial in country.dials if dial.url == address_of(2)} == {True}


def test_view_shows_contacts_and_neighbours():
    """As the operator sees them: plain values."""
    country = Country(relays=2, peers={1: [0]})
    country.guest(0, key=ALICE).say(presence(ALICE, 0))
    country.pass_s(60)
    view = country.relays[1].view(country.now)

    assert view["contacts"][0] | {"records_in": 0, "records_out": 0} == {
        "key": RELAY_KEYS[0].public.hex(),
        "address": address_of(0),
        "dialled": True,
        "up_s": 60,
        "records_in": 0,
        "records_out": 0,
    }
    assert view["neighbours"][0]["address"] == address_of(0)
    assert (view["presences"], view["devices"]) == (1, 1)
    assert view["probes"] == {"asked": 0, "refused": 0, "ok": 0, "wrong": 0, "unreachable": 0, "slow": 0}


@pytest.mark.parametrize("features", [Feature(0), Feature.QA, Feature.I_AM_OK])
def test_gossip_without_the_feature_is_unknown(features):
    """Only who has agreed on presence is heard."""
    country = Country()
    country.guest(features=features, key=RELAY_KEYS[11]).say(Gossip((presence(ALICE, 0),)))

    assert country.refusals() == {"unknown_extension": 1}
