"""Case 20 of specs/bhumi.md 7, in its parts: presence, gossip, adverts and questions used against us (BHUMI-A20).

As in test_abuse: what each case must lead to, and, where a limit does it, that it would not without.
"""

from dataclasses import replace

import pytest

from tests.protocols.bhumi.build import KEYS
from tests.protocols.bhumi.build_open import ALICE, BOB, RELAY_KEYS, WALL_S, Country, address_of, advert, presence
from waystation.core.effects import Peer
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import relay_addresses, signed_records
from waystation.protocols.bhumi.extension_messages import Gossip, Relays, RelaysRequest, Where, WhereResult
from waystation.protocols.bhumi.extension_wire import encode_extension
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay import records
from waystation.protocols.bhumi.signed_records import sign_presence

FORGED = {
    "from the future": (presence(ALICE, 0, 121), "record_from_future"),
    "with a long TTL": (presence(ALICE, 0, 0, 601), "record_ttl"),
    "re-signed": (replace(presence(ALICE, 0), signature=presence(BOB, 0).signature), "record_signature"),
    "prolonged on the way": (replace(presence(ALICE, 0, 0, 60), ttl_s=600), "record_signature"),
    "replayed after its end": (presence(ALICE, 0, -600), "record_expired"),
}


@pytest.mark.parametrize("kind", FORGED)
def test_forged_presence_by_gossip_is_not_believed(kind):
    """It is counted, told to nobody who asks, and passed on to nobody."""
    record, reason = FORGED[kind]
    country = Country()
    contact, other = country.contact(number=11), country.contact(number=10)
    contact.say(Gossip((record,)))
    country.pass_s(40)

    assert country.refusals() == {reason: 1}
    assert country.guest().where(ALICE) == ()
    assert record not in [told for message in other.hear() if isinstance(message, Gossip) for told in message.records]


@pytest.mark.parametrize("kind", FORGED)
def test_forged_presence_of_a_device_itself_is_not_believed(kind):
    """Its own connection makes it no better."""
    record, reason = FORGED[kind]
    country = Country()
    country.guest(key=ALICE).say(record)

    assert country.refusals() == {reason: 1}
    assert country.guest().where(ALICE) == ()


@pytest.mark.parametrize(
    ("kind", "defence"),
    [
        ("from the future", {"CLOCK_TOLERANCE_S": 1_000}),
        ("with a long TTL", {"PRESENCE_TTL_MAX_S": 1_000}),
        ("re-signed", {"is_signed": lambda _record: True}),
        ("prolonged on the way", {"is_signed": lambda _record: True}),
    ],
)
def test_forged_presence_without_the_defence(monkeypatch, kind, defence):
    """Proof: each is believed where its own check is missing."""
    for name, value in defence.items():
        for module in (signed_records, records):
            monkeypatch.setattr(module, name, value, raising=False)
    country = Country()
    country.guest(key=ALICE).say(FORGED[kind][0])

    assert country.guest().where(ALICE)


def test_presence_for_another_identity():
    """A device speaks for itself only; where that is not checked it could bring anybody's old word back."""
    country = Country()
    country.guest(key=BOB).say(presence(ALICE, 0))
    country.guest(key=ALICE).say(replace(presence(ALICE, 0), identity=BOB.public))

    assert country.refusals() == {"foreign_presence": 2}
    assert country.guest().where(ALICE) == country.guest().where(BOB) == ()


def test_replay_after_the_end_brings_nobody_back():
    """What stood once is refused from the second of its end on, from every side."""
    country = Country()
    country.guest(key=ALICE).say(presence(ALICE, 0, 0, 60))
    assert country.guest().where(ALICE)
    country.pass_s(60)
    country.contact().say(Gossip((presence(ALICE, 0, 0, 60),)))
    country.guest(key=ALICE).say(presence(ALICE, 0, 0, 60))

    assert country.refusals()["record_expired"] == 2
    assert country.guest().where(ALICE) == ()


def test_replay_of_an_older_word_changes_nothing():
    """A device that moved cannot be moved back by what it said before."""
    country = Country()
    country.guest(key=ALICE).say(presence(ALICE, 0, 10))
    country.contact().say(Gossip((presence(ALICE, 0, 5), presence(ALICE, 0, 9))))

    assert [entry.presence for entry in country.guest().where(ALICE)] == [presence(ALICE, 0, 10)]


def flood(count):
    """Return signed presences of as many devices."""
    keys = [KeyPair.from_seed(number.to_bytes(32, "big")) for number in range(count)]
    return [sign_presence(key, RELAY_KEYS[0].public, WALL_S, 600) for key in keys]


def test_gossip_flood_of_new_records_is_cut():
    """Each costs a check, so a contact has an allowance; the rest is dropped, and others are heard as before."""
    country = Country(limits=BhumiLimits(records_burst=50, records_per_second=5))
    country.contact(number=11).say(Gossip(tuple(flood(200))))
    assert country.relays[0].sizes()["presences"] == 50
    assert country.refusals() == {"gossip_flood": 150}
    country.contact(number=10).say(Gossip((presence(ALICE, 0),)))

    assert country.guest().where(ALICE)


def test_gossip_flood_checks_no_more_signatures_than_allowed(monkeypatch):
    """Records with wrong signatures pay too: garbage is no cheaper way to keep us busy."""
    checks = []
    monkeypatch.setattr(records, "is_signed", lambda record: bool(checks.append(record)))
    country = Country(limits=BhumiLimits(records_burst=10, record_strikes=1_000))
    country.contact().say(Gossip(tuple(flood(200))))

    assert len(checks) == 10


def test_flood_of_gossip_frames_is_dropped_unread():
    """Beyond 64 frames a second a frame is not even unpacked."""
    country = Country(limits=BhumiLimits(gossip_frames_burst=5, gossip_frames_per_second=1))
    contact = country.contact()
    for device in KEYS:
        contact.say(Gossip((presence(device, 0),)))

    assert country.relays[0].sizes()["presences"] == 4
    assert country.refusals() == {"gossip_flood": 8}


def test_gossip_of_garbage_closes_at_the_sixteenth():
    """No honest relay passes on what nobody has signed; wrong times may be a clock's fault (BHUMI-STRIKE)."""
    country = Country()
    contact = country.contact()
    bad = [replace(presence(device, 0), signature=bytes(64)) for device in KEYS] * 2
    contact.say(Gossip(tuple(bad[:15])), Gossip((presence(ALICE, 0, 500),) * 40))
    assert contact.closed is None
    contact.say(Gossip((bad[15],)))

    assert contact.closed is Refusal.RECORD_STRIKES
    assert country.contacts() == [0]


def test_malformed_gossip_closes():
    """A record of a wrong length is no record."""
    country = Country()
    contact = country.contact()
    frame = bytearray(encode_extension(Gossip((presence(ALICE, 0),))))
    frame[9] -= 1
    contact.say_bytes(bytes(frame))

    assert isinstance(contact.closed, Refusal)


def test_asking_for_samples_again_and_again_is_not_answered():
    """One sample a round: a frame of two bytes never buys 56 KiB twice."""
    country = Country()
    country.contact(number=10).say(Gossip(tuple(flood(100))))
    contact = country.guest(0, key=RELAY_KEYS[11])
    for _ in range(20):
        contact.say(Gossip(()))
    answers = [message for message in contact.hear() if isinstance(message, Gossip) and message.records]

    assert len(answers) == 1


PRIVATE = ["tls://127.0.0.1:22", "tls://10.0.0.1:80", "tls://[::1]:1", "tls://localhost:1", "tcp://169.254.169.254:80"]


@pytest.mark.parametrize("address", PRIVATE)
def test_advert_at_a_private_address_leads_nobody_there(address):
    """It is neither dialled nor told: not in RELAYS, not in WHERE_RESULT, not by gossip (BHUMI-PRIVATE)."""
    country = Country()
    contact = country.contact(number=10)
    contact.say(Gossip((advert(9, address=address),)))
    country.guest(key=RELAY_KEYS[8]).say(advert(8, address=address))
    country.guest(key=ALICE).say(presence(ALICE, 9))
    country.pass_s(60)

    assert country.refusals() == {"private_address": 2}
    assert [one.address for one in country.guest().adverts()] == [address_of(0)]
    assert [entry.address for entry in country.guest().where(ALICE)] == [""]
    assert country.dials == []


def test_advert_at_a_private_address_without_the_guard(monkeypatch):
    """Proof: it would be dialled and told."""
    monkeypatch.setattr(records, "is_open_place", lambda _address: True)
    country = Country()
    country.contact(number=10).say(Gossip((advert(9, address=PRIVATE[0]),)))
    country.pass_s(1)

    assert not relay_addresses.is_open_place(PRIVATE[0])
    assert {dial.url for _, dial in country.dials} == {PRIVATE[0]}


def test_where_flood_gets_empty_answers():
    """Twenty at once, five a second; beyond that nothing is looked up, and the connection stays."""
    country = Country()
    country.guest(key=ALICE).say(presence(ALICE, 0))
    guest = country.guest()
    guest.say_bytes(encode_extension(Where(ALICE.public)) * 100)
    answers = [len(message.entries) for message in guest.hear() if isinstance(message, WhereResult)]

    assert answers == [1] * 20 + [0] * 80
    assert country.refusals() == {"where_flood": 80}
    country.pass_s(1)
    assert guest.closed is None
    assert guest.where(ALICE)


def test_where_flood_without_the_allowance():
    """Proof: all would be looked up."""
    country = Country(limits=BhumiLimits(questions_burst=1_000))
    country.guest(key=ALICE).say(presence(ALICE, 0))
    guest = country.guest()
    guest.say_bytes(encode_extension(Where(ALICE.public)) * 100)

    assert all(message.entries for message in guest.hear())


def test_flood_of_requests_for_relays_gets_empty_answers():
    """The same allowance; the frame costs nothing and the answer 23 KiB."""
    country = Country()
    guest = country.guest()
    guest.say_bytes(encode_extension(RelaysRequest()) * 100)

    assert [len(message.adverts) for message in guest.hear() if isinstance(message, Relays)] == [1] * 20 + [0] * 80


def test_presence_flood_of_one_device_is_cut(monkeypatch):
    """A device that signs a new word every second would have the whole country check signatures."""
    country = Country()
    contact = country.contact()
    guest = country.guest(key=ALICE)
    for second in range(100):
        guest.say(presence(ALICE, second % 8, second))
        country.pass_s(1)
    passed_on = [one for message in contact.hear() if isinstance(message, Gossip) for one in message.records]

    assert len({record.signature for record in passed_on if record.owner == ALICE.public}) <= 16 + 10
    assert country.refusals()["presence_flood"] >= 100 - 26
    assert guest.closed is None


def test_contact_that_stalls_gets_no_more_and_is_cut():
    """Nothing is heaped up for it; the others hear everything; after 10 s without progress it is closed."""
    country = Country()
    stalled, other = country.contact(number=10), country.contact(number=11)
    country.relays[0].congested(stalled.peer, country.now)
    for batch in range(0, 100, 10):
        country.guest(key=RELAY_KEYS[9]).say(Gossip(tuple(flood(100)[batch : batch + 10]))).hang_up()
    heard = [record for message in other.hear() if isinstance(message, Gossip) for record in message.records]

    assert stalled.hear() == []
    assert len(heard) == 100
    country.pass_s(10)
    assert stalled.closed is Refusal.WRITE_TIMEOUT


def test_link_that_stalls_is_cut_and_dialled_again():
    """As a contact of any kind: our end of a dialled connection has the same patience."""
    country = Country(relays=2, peers={1: [0]})
    country.pass_s(1)
    (link,) = country.relays[1]._peering._by_peer
    country.relays[1].congested(Peer(link), country.now)
    country.pass_s(10)
    assert [(close.reason, close.abort) for _, close in country.closes] == [(Refusal.WRITE_TIMEOUT, True)]
    country.pass_s(2)

    assert country.contacts() == [1, 1]


def test_tables_are_bounded_under_a_flood_of_adverts():
    """A stranger with many keys fills the table and no more."""
    country = Country(limits=BhumiLimits(neighbours=20))
    contact = country.contact()
    for number in range(60):
        key = KeyPair.from_seed(number.to_bytes(32, "big"))
        contact.say(Gossip((signed_records.sign_advert(key, f"tls://far{number}.example:1", WALL_S, 600),)))
    country.pass_s(400)

    assert country.relays[0].sizes()["neighbours"] == 20
    assert country.refusals()["table_full"] == 40
    assert country.relays[0].sizes()["addresses"] <= 20
