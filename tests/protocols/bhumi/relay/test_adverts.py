"""Laws of protocols.bhumi.neighbours: one advert of each relay, the newest, and never one past its end."""

import hashlib
import random
import sys
from dataclasses import replace

import pytest

from tests.protocols.bhumi.build import limits_of
from tests.protocols.bhumi.build_open import RELAY_KEYS, WALL_S, address_of, advert
from waystation.core.ids import PublicKey
from waystation.protocols.bhumi.extension_messages import RelayAd
from waystation.protocols.bhumi.extension_wire import encode_tagged
from waystation.protocols.bhumi.relay.adverts import AdvertTable
from waystation.protocols.bhumi.relay.presences import Standing

OWN = RELAY_KEYS[11].public


def unsigned(number, ttl_s=600):
    """Return an advert of any relay; the table does not look at signatures."""
    return RelayAd(PublicKey(hashlib.sha256(b"%d" % number).digest()), WALL_S, ttl_s, address_of(number), bytes(64))


def kept(*adverts, now_s=WALL_S, entries_max=1_024):
    """Return a table that was offered these adverts."""
    table = AdvertTable(OWN, limits_of(neighbours=entries_max))
    for one in adverts:
        if table.standing(one, now_s) is Standing.NEW:
            table.keep(one, encode_tagged(one))
    return table


def test_newest_advert_of_a_relay_stands():
    """An older or equal one is known already, and an address changes with the newest."""
    table = kept(advert(0, 5), advert(0, 3, address="tls://old.example:1"), advert(0, 9, address="tls://new.example:1"))

    assert table.address_of(RELAY_KEYS[0].public, WALL_S) == "tls://new.example:1"
    assert table.standing(advert(0, 9), WALL_S) is Standing.KNOWN
    assert len(table) == 1


def test_own_advert_is_no_news():
    """What we said about ourselves comes back by gossip, even from an earlier life."""
    assert kept().standing(advert(11, 99), WALL_S) is Standing.KNOWN


def test_advert_past_its_end_is_nowhere():
    """In the second of its end it is not listed, not drawn, and gives no address; then an older one may be news."""
    table = kept(advert(0, 10, 60))
    ends = WALL_S + 70

    assert [one.advert for one in table.live(ends - 1)] == [advert(0, 10, 60)]
    assert table.live(ends) == table.sample(random.Random(1), 5, ends) == []
    assert table.address_of(RELAY_KEYS[0].public, ends) == ""
    assert not table.holds(advert(0, 10, 60), encode_tagged(advert(0, 10, 60)), ends)
    assert table.standing(advert(0, 5, 600), ends) is Standing.NEW


def test_sweep_forgets_what_has_ended():
    """And says when there is something to forget again."""
    table = kept(advert(0, 0, 60), advert(1, 0, 90))
    assert table.next_end_s() == WALL_S + 60
    table.sweep(WALL_S + 60)

    assert (len(table), table.next_end_s()) == (1, WALL_S + 90)
    table.sweep(WALL_S + 90)
    assert (len(table), table.next_end_s()) == (0, None)


def test_full_table_drops_the_soonest_to_end_for_one_that_lasts_longer():
    """Who would end first anyway is not taken; who is there already renews without room."""
    table = kept(unsigned(1, 60), unsigned(2, 30), unsigned(3, 90), entries_max=3)

    assert table.standing(unsigned(4, 30), WALL_S) is Standing.FULL
    assert table.standing(unsigned(4, 31), WALL_S) is Standing.NEW
    table.keep(unsigned(4, 31), b"")
    assert [one.advert.address for one in table.live(WALL_S)] == [address_of(number) for number in (1, 3, 4)]


@pytest.mark.parametrize("renewed", [1, 9])
def test_next_end_is_that_of_those_who_stay(renewed):
    """Two entries that leave for one, after the limit was lowered, take their ends with them."""
    limits = limits_of(neighbours=4)
    table = AdvertTable(OWN, limits)
    for number in range(1, 5):
        table.keep(unsigned(number, 30 * number), b"")
    assert table.next_end_s() == WALL_S + 30
    limits.now = replace(limits.now, neighbours=2 if renewed == 1 else 3)
    table.keep(unsigned(renewed, 600), b"")

    assert table.next_end_s() == min(each.ends_at_s for each in table.live(WALL_S))


def test_nobody_is_where_nobody_said():
    """An unknown relay has no address."""
    assert kept(advert(0)).address_of(RELAY_KEYS[1].public, WALL_S) == ""


def test_sample_draws_each_at_most_once():
    """All of them when there are few."""
    table = kept(*(unsigned(number) for number in range(20)))

    drawn = table.sample(random.Random(1), 5, WALL_S)
    assert len({one.advert.relay_id for one in drawn}) == 5
    assert table.sample(random.Random(1), 20, WALL_S) == table.live(WALL_S)


def calls_of(work):
    """Return how many calls a piece of work makes, each step of a generator included."""
    count = 0

    def note(*_event):
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_judging_an_advert_costs_the_same_whatever_is_known():
    """It is judged before anybody has paid for it, and the next end is asked for all the time."""
    tables = [kept(*map(unsigned, range(size)), entries_max=size) for size in (4, 400)]
    stranger = unsigned(1_000, 500)
    for table in tables:
        assert table.standing(stranger, WALL_S) is Standing.FULL
        assert table.next_end_s() == WALL_S + 600

    small, large = (calls_of(lambda: (table.standing(stranger, WALL_S), table.next_end_s())) for table in tables)  # noqa: B023
    assert small == large


def test_next_end_is_right_whatever_comes_and_goes():
    """New adverts, newer ones of the same relay, those that make room, and what is swept."""
    rng, table, now_s = random.Random(7), AdvertTable(OWN, limits_of(neighbours=8)), WALL_S
    for step in range(2_000):
        number = rng.randrange(16)
        one = RelayAd(unsigned(number).relay_id, WALL_S + step, rng.randrange(1, 600), address_of(number), bytes(64))
        if table.standing(one, now_s) is Standing.NEW:
            table.keep(one, encode_tagged(one))
        if rng.random() < 0.1:
            now_s += rng.randrange(60)
            table.sweep(now_s)
        assert table.next_end_s() == min((each.ends_at_s for each in table.live(0)), default=None)
