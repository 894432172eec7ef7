"""Laws of protocols.bhumi.relay_guide: presences of their owners, and answers to anybody who agreed on them."""

import pytest

from tests.protocols.bhumi.build_open import ALICE, BOB, RELAY_KEYS, WALL_S, Country, address_of, advert, presence
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi.extension_messages import Gossip
from waystation.protocols.bhumi.messages import Feature
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.signed_records import sign_advert


def test_presence_is_told_to_anybody_who_asks():
    """Anonymous or not, with the address of this very relay."""
    country = Country()
    country.guest(key=ALICE).say(presence(ALICE, 0))

    for asker in (country.guest(), country.guest(key=BOB)):
        (entry,) = asker.where(ALICE)
        assert (entry.presence, entry.address) == (presence(ALICE, 0), address_of(0))


def test_presence_may_name_another_relay():
    """A device that leaves tells the old relay where it went."""
    country = Country()
    country.guest(key=ALICE).say(presence(ALICE, 0), presence(ALICE, 1, 5))
    country.contact(number=1).say(Gossip((advert(1),)))

    assert [entry.address for entry in country.guest().where(ALICE)] == [address_of(1), address_of(0)]


def test_owner_s_renewal_is_taken_at_once():
    """The device's own relay always has its newest word."""
    country = Country()
    country.guest(key=ALICE).say(presence(ALICE, 0), presence(ALICE, 0, 1))

    assert [entry.presence for entry in country.guest().where(ALICE)] == [presence(ALICE, 0, 1)]


def test_presence_outlives_its_connection_and_not_its_end():
    """TTL is authoritative (7.1): a device that leaves is told of until then."""
    country = Country()
    country.guest(key=ALICE).say(presence(ALICE, 0, 0, 60)).hang_up()
    country.pass_s(59)
    assert country.guest().where(ALICE)
    country.pass_s(1)

    assert country.guest().where(ALICE) == ()


def test_presence_of_somebody_else_is_refused():
    """Only the owner's own connection may assert, however well it is signed (BHUMI-OWNER)."""
    country = Country()
    country.guest(key=BOB).say(presence(ALICE, 0))
    country.guest().say(presence(ALICE, 0))

    assert country.refusals() == {"foreign_presence": 2}
    assert country.guest().where(ALICE) == ()


def test_relay_may_advertise_itself_without_gossiping():
    """Under its own key, on its own connection."""
    country = Country()
    country.guest(key=RELAY_KEYS[1]).say(advert(1), advert(2))

    assert country.refusals() == {"foreign_presence": 1}
    assert [one.relay_id for one in country.guest().adverts()] == [RELAY_KEYS[0].public, RELAY_KEYS[1].public]


def test_hints_are_at_most_eight():
    """The freshest ones."""
    country = Country()
    guest = country.guest(key=ALICE)
    for number in range(10):
        guest.say(presence(ALICE, number, number))

    assert [entry.presence.issued_at_s % 100 for entry in country.guest().where(ALICE)] == [9, 8, 7, 6, 5, 4, 3, 2]


def test_adverts_are_at_most_sixty_four():
    """Our own first, and no relay twice."""
    country = Country()
    contact = country.contact()
    for number in range(80):
        key = KeyPair.from_seed(bytes([number]) * 32)
        contact.say(Gossip((sign_advert(key, f"tls://far{number}.example:1", WALL_S, 600),)))
    adverts = country.guest().adverts()

    assert adverts[0].address == address_of(0)
    assert len({one.relay_id for one in adverts}) == len(adverts) == 64


@pytest.mark.parametrize("features", [Feature(0), Feature.BINDING, Feature.QA | Feature.I_AM_OK])
def test_extension_needs_its_feature(features):
    """Whoever has not agreed on presence is not answered, and what they say is counted (BHUMI-X)."""
    country = Country()
    guest = country.guest(features=features, key=ALICE)
    guest.hear()
    guest.say(presence(ALICE, 0))

    assert guest.hear() == []
    assert country.refusals() == {"unknown_extension": 1}


def test_sixteenth_bad_record_closes():
    """An owner whose records are wrong again and again is no client of ours; fifteen are forgiven."""
    country = Country()
    guest = country.guest(key=ALICE)
    for _ in range(15):
        guest.say(presence(ALICE, 0, 500))
    assert guest.closed is None
    guest.say(presence(BOB, 0))

    assert guest.closed is Refusal.RECORD_STRIKES
    assert country.refusals() == {"record_from_future": 15, "foreign_presence": 1, "record_strikes": 1}


def test_malformed_question_closes():
    """A frame of a feature that was agreed on must be well formed."""
    country = Country()
    guest = country.guest()
    guest.say_bytes(b"\x00\x45\x00\x00\x00\x1f" + bytes(31))

    assert guest.closed is Refusal.TRUNCATED
