"""Each invariant of records: a history that breaks it, and its nearest history that does not."""

import pytest

from tests.sim.bhumi.build import (
    DEVICE,
    OTHER_RELAY,
    advert,
    answered,
    began,
    broken,
    made,
    pair,
    presence,
    received,
    sent,
)
from waystation.core.ids import PublicKey
from waystation.sim.bhumi import observations as seen
from waystation.sim.bhumi.record_invariants import Newest

WORD, LATER, THERE, ADVERT = presence(), presence(at=5), presence(relay=OTHER_RELAY, at=1), advert()
BORN, SIGNED, ASKED = began(), made(WORD), seen.QueryReceived(0, 2, DEVICE.public)
TWO = [began(0), began(1, pair(40).public)]
OWN = advert(by=pair(40))
GIVEN = received(WORD, is_owner=False)


def knowing(*records, at=0):
    """Return the beginning of a history in which relay 0 has received them from the device itself."""
    return [BORN, *map(made, records), *(received(record, at=at) for record in records)]


def lasting(ttl_s):
    """Return a history in which relay 0 gives away a presence of such a length."""
    return [*knowing(presence(ttl_s=ttl_s)), sent(presence(ttl_s=ttl_s), at=-1)]


def foretold(at):
    """Return a history in which relay 0 gives away a presence of the future."""
    return [*knowing(presence(at=at)), sent(presence(at=at))]


@pytest.mark.parametrize(
    ("invariant", "history"),
    [
        # In the second in which it ends a record is worth nothing.
        (None, [*knowing(WORD), sent(WORD, at=599)]),
        ("fresh", [*knowing(WORD), sent(WORD, at=600)]),
        ("fresh", [*knowing(WORD), sent(WORD, at=700)]),
        # A presence lasts up to ten minutes, an advert up to an hour.
        (None, lasting(600)),
        ("fresh", lasting(601)),
        ("fresh", lasting(0)),
        (None, [BORN, sent(advert(ttl_s=3_600))]),
        ("fresh", [BORN, sent(advert(ttl_s=3_601))]),
        # Two clocks differ by two minutes at most.
        (None, foretold(120)),
        ("fresh", foretold(121)),
        # A presence of other bytes than its owner's is a forgery, even when it is signed all right.
        (None, [BORN, SIGNED, received(WORD), received(LATER), sent(WORD)]),
        ("only-signed", [BORN, SIGNED, received(WORD), received(LATER), sent(LATER)]),
        # So is an advert with a wrong signature.
        (None, [BORN, sent(ADVERT)]),
        ("only-signed", [BORN, sent(ADVERT._replace(owner=OTHER_RELAY, relay=OTHER_RELAY))]),
        # No relay has the advert of an honest one before that has sent it itself.
        ("only-signed", [*TWO, sent(OWN)]),
        (None, [*TWO, sent(OWN)._replace(node=1), sent(OWN)]),
        # In a frame of its own a presence counts from its owner's connection only; by gossip it does.
        ("own-word", [BORN, SIGNED, GIVEN, sent(WORD)]),
        ("own-word", [BORN, SIGNED, sent(WORD)]),
        (None, [BORN, SIGNED, GIVEN._replace(is_gossip=True), sent(WORD)]),
        # What a relay received before it started again it does not have.
        ("own-word", [*knowing(WORD), BORN, sent(WORD)]),
        # A record does not go back over the only connection that brought it, but to who asks for a sample.
        ("no-echo", [*knowing(WORD), sent(WORD, peer=1, is_news=True)]),
        (None, [*knowing(WORD), sent(WORD, peer=1)]),
        (None, [*knowing(WORD), sent(WORD, peer=2, is_news=True)]),
        (None, [*knowing(WORD), received(WORD, peer=3), sent(WORD, peer=1, is_news=True)]),
        # A relay that receives its own advert still sends it.
        ("no-echo", [BORN, received(ADVERT, is_gossip=True), sent(ADVERT, peer=1, is_news=True)]),
        (None, [began(key=ADVERT.owner), received(ADVERT, is_gossip=True), sent(ADVERT, peer=1, is_news=True)]),
    ],
)
def test_record_is_given_away_as_its_law_says(invariant, history):
    """Each history breaks the law that it stands beside, and its nearest, with None, breaks no law at all."""
    assert broken(*history) == invariant


@pytest.mark.parametrize(
    ("invariant", "history"),
    [
        # An old presence is not given once a newer one is certainly known.
        ("newest", [*knowing(WORD, LATER), 2, answered(WORD)]),
        (None, [*knowing(WORD, LATER), 2, answered(LATER)]),
        (None, [*knowing(WORD, LATER), 0, answered(WORD)]),
        # A presence that is certainly known and not over stands in the answer.
        ("newest", [*knowing(WORD, THERE), 2, answered(THERE)]),
        (None, [*knowing(WORD, THERE), 2, answered(THERE, WORD)]),
        (None, [*knowing(WORD, THERE), 2, answered(THERE, at=600)]),
        # What came just before the end of a connection may be lost: the relay may not have looked at it.
        (None, [BORN, SIGNED, received(WORD, peer=7), seen.Parted(0, 7), 2, answered()]),
        ("newest", [BORN, SIGNED, received(WORD, peer=7), 2, seen.Parted(0, 7), answered()]),
        # Records from adversaries, of another time, and of adversaries are no promise.
        (None, [BORN, SIGNED, received(WORD, is_sure=False), 2, answered()]),
        (None, [BORN, SIGNED, received(WORD, at=600), 2, answered()]),
        (None, [BORN, SIGNED, received(WORD, at=-121), 2, answered()]),
        (None, [BORN, made(WORD, is_honest=False), received(WORD), 2, answered()]),
        # Freshest first, no relay twice, and no other device's.
        ("newest", [BORN, answered(WORD, THERE)]),
        ("newest", [BORN, answered(LATER, WORD)]),
        ("newest", [BORN, answered(presence(by=pair(5)))]),
    ],
)
def test_answer_has_the_newest_word_about_each_relay(invariant, history):
    """Each history breaks the law of answers, or is the nearest that does not."""
    assert broken(*history, invariant=Newest()) == invariant


@pytest.mark.parametrize(("at", "invariant"), [(240, None), (290, None), (310, "newest")])
def test_renewal_by_gossip_is_news_when_the_old_word_is_half_over(at, invariant):
    """Before that a relay need not take it."""
    new = presence(at=at)
    renewed = received(new, at=at, is_gossip=True, is_owner=False)
    history = [*knowing(WORD), made(new), at, renewed, at + 2, answered(WORD, at=at + 2)]

    assert broken(*history, invariant=Newest()) == invariant


def test_eight_hints_are_enough_when_all_are_fresher():
    """Of nine relays the one that was named longest ago may be missing, and no other."""
    records = [presence(at=at, relay=PublicKey(bytes([at + 10]) * 32)) for at in range(9)]
    fresh_first = records[::-1]

    assert broken(*knowing(*records), 2, answered(*fresh_first[:8]), invariant=Newest()) is None
    assert broken(*knowing(*records), 2, answered(*fresh_first[1:]), invariant=Newest()) == "newest"
    assert broken(*knowing(*records), 2, answered(*fresh_first), invariant=Newest()) == "newest"


def test_empty_answer_is_for_who_asks_too_fast():
    """The twenty-first question of one instant may come back empty, the first may not."""
    start = [*knowing(WORD), 2]
    in_order = [each for _ in range(18) for each in (ASKED, answered(WORD))]

    assert broken(*start, ASKED, answered(), invariant=Newest()) == "newest"
    assert broken(*start, *in_order, ASKED, answered(), invariant=Newest()) == "newest"
    assert broken(*start, *in_order, ASKED, ASKED, answered(WORD), answered(), invariant=Newest()) is None
    assert broken(*start, *in_order, 7, ASKED, answered(), invariant=Newest()) == "newest"
