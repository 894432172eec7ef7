"""Laws of protocols.bhumi.records: which signed records are believed, in the order of what the checks cost."""

import random
from dataclasses import replace

import pytest

from tests.protocols.bhumi.build import limits_of
from tests.protocols.bhumi.build_open import ALICE, BOB, RELAY_KEYS, SECOND, WALL_S, address_of, advert, presence
from waystation.core.instant import Instant
from waystation.core.limits import TokenBucket
from waystation.protocols.bhumi.extension_wire import decode_tagged, encode_tagged
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.refusals import MalformedError, Refusal
from waystation.protocols.bhumi.relay import records as records_module
from waystation.protocols.bhumi.relay.records import Records
from waystation.protocols.bhumi.signed_records import is_signed

NOW = Instant(77 * SECOND)


def believing(*, takes_private=False, advertise="tls://relay11.example:8443"):
    """Return a relay's records with its clock set."""
    made = Records(RELAY_KEYS[11], advertise, limits_of(), takes_private=takes_private)
    made.set_wall(NOW, WALL_S * SECOND)
    return made


def take(made, record, *, now=NOW, allowance=None, by_gossip=True):
    """Offer a record."""
    return made.take(encode_tagged(record), allowance, now, by_gossip=by_gossip)


def test_signed_record_in_time_is_kept_and_returned():
    """So that it is passed on."""
    made = believing()

    assert take(made, presence(ALICE, 0)) == presence(ALICE, 0)
    assert take(made, advert(0)) == advert(0)
    assert made.sizes() == {"presences": 1, "neighbours": 1}
    assert made.holds(encode_tagged(presence(ALICE, 0)), NOW)
    assert made.holds(encode_tagged(advert(0)), NOW)


def test_record_is_news_once():
    """The second time there is nothing new in it, and it is not passed on (BHUMI-SEEN)."""
    made = believing()
    take(made, presence(ALICE, 0)), take(made, advert(0))

    assert take(made, presence(ALICE, 0)) is None
    assert take(made, advert(0)) is None
    assert take(made, presence(ALICE, 0, -1)) is None


@pytest.mark.parametrize(
    ("record", "refusal"),
    [
        (presence(ALICE, 0, 121), Refusal.RECORD_FROM_FUTURE),
        (presence(ALICE, 0, 0, 601), Refusal.RECORD_TTL),
        (presence(ALICE, 0, 0, 0), Refusal.RECORD_TTL),
        (presence(ALICE, 0, 0, 2**32 - 1), Refusal.RECORD_TTL),
        (presence(ALICE, 0, -600), Refusal.RECORD_EXPIRED),
        (replace(presence(ALICE, 0), ttl_s=599), Refusal.RECORD_SIGNATURE),
        (replace(presence(ALICE, 0), issued_at_s=WALL_S + 1), Refusal.RECORD_SIGNATURE),
        (replace(presence(ALICE, 0), identity=BOB.public), Refusal.RECORD_SIGNATURE),
        (replace(presence(ALICE, 0), relay_id=RELAY_KEYS[1].public), Refusal.RECORD_SIGNATURE),
        (advert(0, 121), Refusal.RECORD_FROM_FUTURE),
        (advert(0, 0, 3_601), Refusal.RECORD_TTL),
        (advert(0, -3_600), Refusal.RECORD_EXPIRED),
        (replace(advert(0), address="tls://elsewhere.example:1"), Refusal.RECORD_SIGNATURE),
        (advert(0, address="tls://127.0.0.1:1"), Refusal.PRIVATE_ADDRESS),
        (advert(0, address="tls://metadata.internal:80"), Refusal.PRIVATE_ADDRESS),
    ],
)
def test_unbelievable_records_are_refused(record, refusal):
    """Each for its reason, and nothing of them is kept."""
    made = believing()

    assert take(made, record) is refusal
    assert not any(made.sizes().values())


def test_edges_of_time_are_inside():
    """120 s ahead and the last second of a life are in order."""
    made = believing()

    assert take(made, presence(ALICE, 0, 120)) is not None
    assert take(made, presence(BOB, 0, -599)) == presence(BOB, 0, -599)


def test_private_adverts_are_taken_where_the_operator_says_so():
    """For relays in one private network."""
    assert take(believing(takes_private=True), advert(0, address="tcp://127.0.0.1:1")) is not None


def test_signature_is_looked_at_last(monkeypatch):
    """Nothing that can be refused or known for less costs a check."""
    made = believing()
    take(made, presence(ALICE, 0)), take(made, advert(0))
    checked = []
    monkeypatch.setattr(records_module, "is_signed", lambda record: checked.append(record) or True)
    bucket = TokenBucket(1, 1, NOW)
    for record in (
        *(presence(ALICE, 0), presence(ALICE, 0, -5), presence(BOB, 0, 500), presence(BOB, 0, 0, 601)),
        *(advert(0), advert(1, address="tls://10.0.0.1:1"), advert(1, -4_000), presence(ALICE, 0, 5)),
    ):
        take(made, record, allowance=bucket)

    assert checked == []
    assert take(made, presence(BOB, 1), allowance=bucket) is not None
    assert take(made, presence(BOB, 2), allowance=bucket) is Refusal.GOSSIP_FLOOD
    assert checked == [presence(BOB, 1)]


def test_renewal_by_gossip_is_no_news_but_its_owner_s_is():
    """Half of a life must be over before a renewal spreads; the device's own relay has the newest (BHUMI-RENEWAL)."""
    made = believing()
    take(made, presence(ALICE, 0))

    assert take(made, presence(ALICE, 0, 5)) is None
    assert take(made, presence(ALICE, 0, 5), by_gossip=False) == presence(ALICE, 0, 5)


def test_full_table_refuses():
    """What would end first is not taken, and costs no check."""
    made = believing()
    made.presences._limits.now = BhumiLimits(presences=1)
    take(made, presence(ALICE, 0))

    assert take(made, presence(BOB, 0, 0, 599)) is Refusal.TABLE_FULL
    assert take(made, presence(BOB, 0, 1, 600)) == presence(BOB, 0, 1, 600)
    assert len(made.presences) == 1


def test_address_that_is_none_is_malformed():
    """A frame with it closes the connection."""
    tagged = encode_tagged(advert(0, address="tls://relay.example:8443"))
    with pytest.raises(MalformedError):
        believing().take(tagged.replace(b"tls:", b"ftp:"), None, NOW, by_gossip=True)


def test_own_advert_is_made_anew_every_quarter_of_an_hour():
    """It lasts an hour, is signed, and stays the same in between."""
    made = believing()
    first = made.own_advert(NOW)

    assert first.address == address_of(11)
    assert is_signed(first)
    assert made.own_advert(Instant(NOW + 899 * SECOND)) is first
    later = made.own_advert(Instant(NOW + 900 * SECOND))
    assert (later.issued_at_s, later.ttl_s) == (WALL_S + 900, 3_600)
    assert made.holds(encode_tagged(later), NOW)
    assert not made.holds(encode_tagged(first), NOW)


def test_own_advert_follows_a_clock_that_was_set_back():
    """One from the future would be refused by everybody."""
    made = believing()
    made.own_advert(NOW)
    made.set_wall(NOW, (WALL_S - 5_000) * SECOND)

    assert made.own_advert(NOW).issued_at_s == WALL_S - 5_000


def test_relay_without_an_address_tells_none():
    """A relay that nobody can reach has no advert, and its devices' hints no address."""
    made = believing(advertise="")
    take(made, presence(ALICE, 11))

    assert made.own_advert(NOW) is None
    assert made.adverts(random.Random(1), 64, NOW) == []
    assert made.address_of(presence(ALICE, 11), NOW) == ""


def test_address_of_a_presence_is_that_of_its_relay():
    """Our own, or what its advert says while that lasts."""
    made = believing()
    take(made, advert(0, 0, 60))

    assert made.address_of(presence(ALICE, 11), NOW) == address_of(11)
    assert made.address_of(presence(ALICE, 0), NOW) == address_of(0)
    assert made.address_of(presence(ALICE, 1), NOW) == ""
    assert made.address_of(presence(ALICE, 0), Instant(NOW + 60 * SECOND)) == ""


def test_adverts_begin_with_our_own():
    """The others are drawn, at most so many in all."""
    made = believing()
    for number in range(8):
        take(made, advert(number))
    listed = made.adverts(random.Random(1), 5, NOW)

    assert listed[0].relay_id == RELAY_KEYS[11].public
    assert len({one.relay_id for one in listed}) == len(listed) == 5


def test_sample_holds_adverts_and_presences():
    """As GOSSIP lists them, at most so many."""
    made = believing()
    take(made, advert(0)), take(made, presence(ALICE, 0)), take(made, presence(BOB, 0))
    sample = made.sample(random.Random(1), 400, NOW)

    assert {type(decode_tagged(tagged)).__name__ for tagged in sample} == {"RelayAd", "Presence"}
    assert len(sample) == 4
    assert len(made.sample(random.Random(1), 3, NOW)) == 3


def test_sweep_is_planned_for_the_next_end():
    """At most one in five seconds, and none for empty tables."""
    made = believing()
    assert made.next_sweep() is None
    take(made, presence(ALICE, 0, 0, 61)), take(made, advert(0, 0, 61))
    at = made.next_sweep()

    assert NOW + 61 * SECOND <= at <= NOW + 66 * SECOND
    made.sweep(at)
    assert made.sizes() == {"presences": 0, "neighbours": 0}
