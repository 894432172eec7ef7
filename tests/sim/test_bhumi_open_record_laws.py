"""Each law about records: a history that breaks it, and its nearest history that does not."""

import pytest

from tests.sim.build_bhumi_open import (
    DEVICE,
    OTHER_RELAY,
    advert,
    answered,
    began,
    broken,
    gave,
    made,
    pair,
    presence,
    took,
)
from waystation.core.ids import PublicKey
from waystation.sim import bhumi_open_observations as seen
from waystation.sim import bhumi_open_record_laws as laws

STRANGER = pair(5)


def knowing(*slips, at=0):
    """Return the beginning of a history in which relay 0 has been told by the device itself."""
    return [began(), *map(made, slips), *(took(slip, at=at) for slip in slips)]


@pytest.mark.parametrize("at", [599, 600, 700])
def test_presence_past_its_end_is_not_given_away(at):
    """In the second in which it ends a record is worth nothing."""
    assert broken(*knowing(presence()), gave(presence(), at=at)) == (None if at < 600 else "fresh")


@pytest.mark.parametrize(("ttl_s", "law"), [(600, None), (601, "fresh"), (0, "fresh")])
def test_presence_of_impossible_length_is_not_given_away(ttl_s, law):
    """A presence lasts up to ten minutes."""
    assert broken(*knowing(presence(ttl_s=ttl_s)), gave(presence(ttl_s=ttl_s), at=-1)) == law


@pytest.mark.parametrize(("at", "law"), [(120, None), (121, "fresh")])
def test_presence_of_the_future_is_not_given_away(at, law):
    """Two clocks differ by two minutes at most."""
    assert broken(*knowing(presence(at=at)), gave(presence(at=at))) == law


def test_advert_may_last_an_hour():
    """Adverts have a longer time than presences."""
    assert broken(began(), gave(advert(ttl_s=3_600))) is None
    assert broken(began(), gave(advert(ttl_s=3_601))) == "fresh"


def test_presence_that_nobody_signed_is_not_given_away():
    """A presence of other bytes than its owner's is a forgery, even when it is signed all right."""
    slip, twin = presence(), presence(at=1)
    history = [began(), made(slip), took(slip), took(twin)]

    assert broken(*history, gave(slip)) is None
    assert broken(*history, gave(twin)) == "only-signed"


def test_advert_is_given_away_only_under_its_owners_signature():
    """An advert with a wrong signature is a forgery."""
    slip = advert()
    forged = slip._replace(owner=OTHER_RELAY, relay=OTHER_RELAY)

    assert broken(began(), gave(slip)) is None
    assert broken(began(), gave(forged)) == "only-signed"


def test_advert_of_an_honest_relay_is_said_by_itself_first():
    """Nobody else can have it before."""
    own = pair(40)
    slip = advert(by=own)
    two = [began(0), began(1, own.public)]

    assert broken(*two, gave(slip)) == "only-signed"
    assert broken(*two, gave(slip)._replace(node=1), gave(slip)) is None


def test_presence_from_anybody_but_its_owner_is_not_believed():
    """In a frame of its own a presence counts from its owner's connection only; by gossip it does."""
    slip = presence()
    start = [began(), made(slip)]

    assert broken(*start, took(slip, is_owner=False), gave(slip)) == "own-word"
    assert broken(*start, gave(slip)) == "own-word"
    assert broken(*start, took(slip, is_owner=False, is_gossip=True), gave(slip)) is None


def test_memory_of_a_relay_ends_with_its_life():
    """What it was told before it started again it does not know."""
    assert broken(*knowing(presence()), began(), gave(presence())) == "own-word"


def test_answer_has_the_newest_word_about_each_relay():
    """An old presence is not given once a newer one is certainly known."""
    old, new = presence(), presence(at=5)

    assert broken(*knowing(old, new), 2, answered(old), law=laws.Newest()) == "newest"
    assert broken(*knowing(old, new), 2, answered(new), law=laws.Newest()) is None
    assert broken(*knowing(old, new), 0, answered(old), law=laws.Newest()) is None


@pytest.mark.parametrize(("at", "law"), [(240, None), (290, None), (310, "newest")])
def test_renewal_by_gossip_is_news_when_the_old_word_is_half_over(at, law):
    """Before that a relay need not take it."""
    old, new = presence(), presence(at=at)
    renewed = took(new, at=at, is_gossip=True, is_owner=False)
    history = [*knowing(old), made(new), at, renewed, at + 2, answered(old, at=at + 2)]

    assert broken(*history, law=laws.Newest()) == law


def test_answer_says_all_that_the_relay_was_told():
    """A presence that is certainly known and not over stands in the answer."""
    here, there = presence(), presence(relay=OTHER_RELAY, at=1)

    assert broken(*knowing(here, there), 2, answered(there), law=laws.Newest()) == "newest"
    assert broken(*knowing(here, there), 2, answered(there, here), law=laws.Newest()) is None
    assert broken(*knowing(here, there), 2, answered(there, at=600), law=laws.Newest()) is None


def test_what_came_just_before_the_end_of_a_connection_may_be_lost():
    """The relay may have closed it before it looked."""
    slip = presence()
    start = [began(), made(slip), took(slip, peer=7)]

    assert broken(*start, seen.Parted(0, 7), 2, answered(), law=laws.Newest()) is None
    assert broken(*start, 2, seen.Parted(0, 7), answered(), law=laws.Newest()) == "newest"


@pytest.mark.parametrize(
    ("options", "is_honest"), [({"is_sure": False}, True), ({"at": 600}, True), ({"at": -121}, True), ({}, False)]
)
def test_what_a_relay_may_drop_need_not_be_in_its_answer(options, is_honest):
    """Records of enemies, from enemies, and of another time are no promise."""
    slip = presence()
    history = [began(), made(slip, is_honest=is_honest), took(slip, **options), 2, answered()]

    assert broken(*history, law=laws.Newest()) is None


def test_eight_hints_are_enough_when_all_are_fresher():
    """Of nine relays the one that was named longest ago may be missing, and no other."""
    slips = [presence(at=at, relay=PublicKey(bytes([at + 10]) * 32)) for at in range(9)]
    fresh_first = slips[::-1]

    assert broken(*knowing(*slips), 2, answered(*fresh_first[:8]), law=laws.Newest()) is None
    assert broken(*knowing(*slips), 2, answered(*fresh_first[1:]), law=laws.Newest()) == "newest"
    assert broken(*knowing(*slips), 2, answered(*fresh_first), law=laws.Newest()) == "newest"


@pytest.mark.parametrize(
    "answer",
    [
        answered(presence(), presence(relay=OTHER_RELAY, at=1)),
        answered(presence(at=1), presence()),
        answered(presence(by=STRANGER)),
    ],
)
def test_answer_has_its_own_order_and_one_hint_per_relay(answer):
    """Freshest first, no relay twice, and nobody else's."""
    assert broken(began(), answer, law=laws.Newest()) == "newest"


def test_empty_answer_is_for_who_asks_too_fast():
    """The twenty-first question of one instant may come back empty, the first may not."""
    asked = seen.Questioned(0, 2, DEVICE.public)
    start = [*knowing(presence()), 2]
    in_order = [each for _ in range(18) for each in (asked, answered(presence()))]

    assert broken(*start, asked, answered(), law=laws.Newest()) == "newest"
    assert broken(*start, *in_order, asked, answered(), law=laws.Newest()) == "newest"
    assert broken(*start, *in_order, asked, asked, answered(presence()), answered(), law=laws.Newest()) is None
    assert broken(*start, *in_order, 7, asked, answered(), law=laws.Newest()) == "newest"


def test_record_does_not_go_back_where_it_came_from():
    """Over the only connection that brought it, no; over another one, or to who asks for a sample, yes."""
    slip = presence()
    history = [*knowing(slip)]

    assert broken(*history, gave(slip, peer=1, is_news=True)) == "no-echo"
    assert broken(*history, gave(slip, peer=1)) is None
    assert broken(*history, gave(slip, peer=2, is_news=True)) is None
    assert broken(*history, took(slip, peer=3), gave(slip, peer=1, is_news=True)) is None


def test_own_advert_goes_anywhere():
    """A relay that is told of itself still says where it is."""
    own = advert()

    assert broken(began(), took(own, is_gossip=True), gave(own, peer=1, is_news=True)) == "no-echo"
    assert broken(began(key=own.owner), took(own, is_gossip=True), gave(own, peer=1, is_news=True)) is None
