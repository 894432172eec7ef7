"""Laws of engine.references: what stands in an event where its fact has an identity."""

import random

import pytest

from tests.engine.build import KEY
from waystation.core import facts
from waystation.crypto.hashing import keyed_reference
from waystation.engine.references import CONNECTION_REFERENCE_BYTES, References
from waystation.journal import events

ALICE, BOB = b"a" * 32, b"b" * 32


def make():
    """Return references under a key."""
    references = References(random.Random(1))
    references.use_key(KEY)
    return references


def written(references, fact):
    """Return the event of a fact at time 9."""
    found = []
    references.writer(type(fact), found.append)(fact, 9)
    return found[0]


def test_event_is_the_fact_after_a_time_with_references() -> None:
    """What is no identity stays as it is, in its place."""
    event = written(make(), facts.LeaseChanged("lprp", ALICE, "granted", 7))

    assert event == events.LeaseChanged(9, "lprp", keyed_reference(KEY, ALICE), "granted", 7)


def test_nobody_has_no_reference() -> None:
    """An identity that is None stays None, and so does the network of a peer that has none."""
    event = written(make(), facts.Refused("bhumi", None, "oversize"))

    assert (event.peer_ref, event.source_ref) == (None, None)


def test_identified_connection_has_a_drawn_reference_until_it_is_forgotten() -> None:
    """The reference says nothing about the identity; an anonymous connection has none."""
    references = make()
    references.identify(4)
    seen = [written(references, facts.SubscriptionOpened("strata", peer, 0)).conn_ref for peer in (4, 5)]
    known = references.is_identified(4)
    references.forget(4)

    assert [len(seen[0]), seen[1]] == [CONNECTION_REFERENCE_BYTES, None]
    assert (known, references.is_identified(4)) == (True, False)


def test_several_identities_are_joined() -> None:
    """Each has the reference that it has alone."""
    references = make()
    fact = facts.MessageStored("bsp", None, "waiting", 1, ALICE, BOB, (ALICE, BOB), 2, 0)

    assert written(references, fact).dependency_refs == keyed_reference(KEY, ALICE) + keyed_reference(KEY, BOB)


@pytest.mark.parametrize(("word", "seen"), [("POST", "POST"), ("alices.secret", "other"), (None, None)])
def test_type_is_written_if_a_specification_knows_it(word, seen) -> None:
    """No author can write a phrase into the journal."""
    fact = facts.PacketJudged("strata", "accepted", None, ALICE, None, "client", 1, content_type=word)

    assert written(make(), fact).content_type == seen


def test_other_key_makes_other_references() -> None:
    """References of two keys cannot be joined; the same key again changes nothing."""
    references = make()
    seen = []
    for key in (KEY, KEY, b"other" * 6):
        references.use_key(key)
        seen.append(written(references, facts.LeaseChanged("lprp", ALICE, "granted", 7)).peer_ref)

    assert seen[0] == seen[1] != seen[2]
