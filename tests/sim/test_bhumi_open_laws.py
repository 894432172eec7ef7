"""Each law of the open world: a history that breaks it, and its nearest history that does not."""

import pytest

from tests.sim.build_bhumi_open import (
    DEVICE,
    advert,
    answered,
    began,
    broken,
    gave,
    pair,
    presence,
    sized,
)
from waystation.protocols.bhumi.messages import Feature
from waystation.sim import bhumi_open_laws as laws
from waystation.sim import bhumi_open_observations as seen
from waystation.sim import bhumi_open_records as records
from waystation.sim.bhumi_open_forgery import PRIVATE_ADDRESSES

STRANGER = pair(5)


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
