"""Each law of the open world: a history that breaks it, and its nearest history that does not."""

import pytest

from tests.sim.build_bhumi_open import (
    DEVICE,
    OTHER_RELAY,
    advert,
    answered,
    began,
    gave,
    made,
    pair,
    presence,
    sized,
    took,
)
from waystation.core.ids import PublicKey
from waystation.core.instant import Instant
from waystation.protocols.bhumi.messages import Feature
from waystation.sim import bhumi_open_laws as laws
from waystation.sim import bhumi_open_observations as seen
from waystation.sim import bhumi_open_records as records
from waystation.sim.bhumi_open_forgery import PRIVATE_ADDRESSES
from waystation.sim.invariants import ViolationError, Watch

SECOND = 1_000_000
STRANGER = pair(5)


def broken(*history, law=None):
    """Return which law a history breaks, or None; a number in it is the second that what follows happens at."""
    watch, now = Watch([law] if law is not None else laws.open_invariants()), Instant(0)
    try:
        for each in history:
            if isinstance(each, int):
                now = Instant(each * SECOND)
            else:
                watch.observe(each, now)
    except ViolationError as violation:
        return violation.invariant
    return None


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


@pytest.mark.parametrize(
    ("kind", "features", "law"),
    [
        (records.OPTIONS, 0, None),
        (records.OPTIONS, None, "negotiated"),
        (records.WHERE_RESULT, None, "negotiated"),
        (records.WHERE_RESULT, Feature.QA, "negotiated"),
        (records.WHERE_RESULT, Feature.PRESENCE, None),
        (records.GOSSIP, Feature.PRESENCE | Feature.QA, None),
        (0x43, Feature.PRESENCE, "negotiated"),
        (0x43, Feature.I_AM_OK, None),
        (0x55, Feature.PRESENCE, "negotiated"),
    ],
)
def test_extension_frames_go_where_they_were_agreed_on(kind, features, law):
    """A connection that never sent OPTIONS sees the seed's protocol and nothing else."""
    assert broken(seen.Said(0, 1, kind, features, is_readable=True)) == law


def test_extension_frames_can_be_read():
    """A frame that is not laid out as the specification says is a mistake."""
    assert broken(seen.Said(0, 1, records.GOSSIP, Feature.PRESENCE, is_readable=False)) == "negotiated"


def test_every_question_gets_one_answer_in_order():
    """An answer to nothing, a second one, and one about somebody else are mistakes."""
    asked, other = seen.Questioned(0, 2, DEVICE.public), seen.Questioned(0, 2, STRANGER.public)
    about_other = answered(identity=STRANGER.public)

    assert broken(began(), asked, other, answered(), about_other) is None
    assert broken(began(), answered(), law=laws.Prompt()) == "prompt"
    assert broken(began(), asked, answered(), answered(), law=laws.Prompt()) == "prompt"
    assert broken(began(), asked, other, about_other, law=laws.Prompt()) == "prompt"
    assert broken(began(), asked, seen.Parted(0, 2), answered(), law=laws.Prompt()) == "prompt"


@pytest.mark.parametrize(("at", "law"), [(2, None), (3, "prompt")])
def test_answer_comes_soon(at, law):
    """A question that has waited for two seconds is forgotten, unless its connection is over."""
    asked = seen.Questioned(0, 2, DEVICE.public)

    assert broken(began(), asked, at, sized(), law=laws.Prompt()) == law
    assert broken(began(), asked, seen.Parted(0, 2), at, sized(), law=laws.Prompt()) is None


@pytest.mark.parametrize(("count", "law"), [(26, None), (27, "prompt")])
def test_who_asks_too_much_gets_a_bucket_full(count, law):
    """Twenty at once, five a second behind them."""
    history = [began()] + [seen.Questioned(0, 2, DEVICE.public)] * count + [answered(presence())] * count

    assert broken(*history, law=laws.Prompt()) == law


@pytest.mark.parametrize("private", PRIVATE_ADDRESSES)
def test_adverts_lead_nobody_inside(private):
    """A private address that was learnt is neither dialled nor passed on; the operator's own may be anything."""
    dialled = seen.Dialled(0, private, True, False)

    assert broken(began(), dialled) == "guarded-dials"
    assert broken(began(), dialled._replace(is_configured=True)) is None
    assert broken(began(dials_private=True), dialled) is None
    assert broken(began(), gave(advert(private))) == "guarded-dials"
    assert broken(began(dials_private=True), gave(advert(private))) is None


def test_learnt_names_are_dialled_with_a_guard():
    """A name may lead inside; whoever dials it looks."""
    dialled = seen.Dialled(0, "tcp://relay-1.sim:4819", True, False)

    assert broken(began(), dialled) is None
    assert broken(began(), dialled._replace(only_public=False)) == "guarded-dials"


def test_application_is_asked_once():
    """The same preimage twice is once too often, for one device."""
    handled = seen.Handled(DEVICE.public, bytes(32))

    assert broken(handled, handled._replace(identity=STRANGER.public)) is None
    assert broken(handled, handled) == "asks-once"


def test_sizes_keep_their_limits_and_end_at_nothing():
    """A table above its limit, and anything left when everybody has gone, is a mistake."""
    assert broken(sized(presences=100_000)) is None
    assert broken(sized(presences=100_001)) == "bounded"
    assert broken(sized(identities=3)) == "bounded"
    assert broken(sized(contacts=75)) == "bounded"
    assert broken(sized(settled=True)) == "bounded"
    assert broken(sized(settled=True, connections=0)) is None
    assert broken(sized(settled=True, connections=0, addresses=2)) is None
    assert broken(sized(settled=True, connections=0, addresses=3)) == "bounded"


@pytest.mark.parametrize(
    ("due", "right", "is_quiet", "law"),
    [(100, 95, True, None), (100, 94, True, "liveness"), (100, 50, False, None), (39, 0, True, None)],
)
def test_share_of_right_look_ups_counts_where_nothing_goes_wrong(due, right, is_quiet, law):
    """At least 95 of 100, in a world that has that many."""
    assert broken(seen.Tallied(due, right, is_quiet)) == law


def test_who_is_left_hanging_breaks_liveness():
    """A request without answer after the faults is a complaint."""
    assert broken(seen.LeftHanging("nobody answers")) == "liveness"


def test_every_law_has_a_name_of_its_own():
    """Violations can be told apart."""
    names = [law.name for law in laws.open_invariants()]

    assert len(set(names)) == len(names) == 15
