"""Each invariant of what relays send and dial: a history that breaks it, and its nearest that does not."""

import pytest

from tests.sim.bhumi.build import (
    DEVICE,
    advert,
    answered,
    began,
    broken,
    pair,
    presence,
    sent,
    sized,
)
from waystation.protocols.bhumi.messages import Feature
from waystation.sim.bhumi import codec
from waystation.sim.bhumi import observations as seen
from waystation.sim.bhumi.forgery import PRIVATE_ADDRESSES
from waystation.sim.bhumi.relay_invariants import Prompt


@pytest.mark.parametrize(
    ("kind", "features", "invariant"),
    [
        (codec.OPTIONS, 0, None),
        (codec.OPTIONS, None, "negotiated"),
        (codec.WHERE_RESULT, None, "negotiated"),
        (codec.WHERE_RESULT, Feature.QA, "negotiated"),
        (codec.WHERE_RESULT, Feature.PRESENCE, None),
        (codec.GOSSIP, Feature.PRESENCE | Feature.QA, None),
        (0x43, Feature.PRESENCE, "negotiated"),
        (0x43, Feature.I_AM_OK, None),
        (0x55, Feature.PRESENCE, "negotiated"),
    ],
)
def test_extension_frames_go_where_they_were_agreed_on(kind, features, invariant):
    """A connection that never sent OPTIONS sees the seed's protocol and nothing else; no frame is unreadable."""
    frame = seen.FrameSent(0, 1, kind, features, is_readable=True)

    assert broken(frame) == invariant
    assert broken(frame._replace(is_readable=False)) == "negotiated"


ASKED, ASKED_OTHER = seen.QueryReceived(0, 2, DEVICE.public), seen.QueryReceived(0, 2, pair(5).public)
ANSWERED, ANSWERED_OTHER = answered(), answered(identity=pair(5).public)
PARTED = seen.Parted(0, 2)


@pytest.mark.parametrize(
    ("invariant", "history"),
    [
        # One answer to each question, in order.
        (None, [ASKED, ASKED_OTHER, ANSWERED, ANSWERED_OTHER]),
        ("prompt", [ANSWERED]),
        ("prompt", [ASKED, ANSWERED, ANSWERED]),
        ("prompt", [ASKED, ASKED_OTHER, ANSWERED_OTHER]),
        ("prompt", [ASKED, PARTED, ANSWERED]),
        # A question that has waited for two seconds is forgotten, unless its connection is over.
        (None, [ASKED, 2, sized()]),
        ("prompt", [ASKED, 3, sized()]),
        (None, [ASKED, PARTED, 3, sized()]),
        # Who asks too much gets a bucket full: twenty at once, five a second behind them.
        (None, [ASKED] * 26 + [answered(presence())] * 26),
        ("prompt", [ASKED] * 27 + [answered(presence())] * 27),
    ],
)
def test_questions_are_answered_soon_and_in_order(invariant, history):
    """Each history breaks the law of questions, or is the nearest that does not."""
    assert broken(began(), *history, invariant=Prompt()) == invariant


@pytest.mark.parametrize("private", PRIVATE_ADDRESSES)
def test_adverts_lead_nobody_inside(private):
    """A private address that was learnt is neither dialled nor passed on; the operator's own may be anything."""
    dialled = seen.Dialled(0, private, True, False)

    assert broken(began(), dialled) == "guarded-dials"
    assert broken(began(), dialled._replace(is_configured=True)) is None
    assert broken(began(dials_private=True), dialled) is None
    assert broken(began(), sent(advert(private))) == "guarded-dials"
    assert broken(began(dials_private=True), sent(advert(private))) is None


def test_learnt_names_are_dialled_with_a_guard():
    """A name may lead inside; the relay that dials it looks."""
    dialled = seen.Dialled(0, "tcp://relay-1.sim:4819", True, False)

    assert broken(began(), dialled) is None
    assert broken(began(), dialled._replace(only_public=False)) == "guarded-dials"
