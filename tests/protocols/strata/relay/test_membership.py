"""Laws of strata.relay.membership."""

from types import SimpleNamespace

import pytest

from tests.protocols.strata.build import ALICE, BOB, did, in_force
from waystation.core.dids import identity_of
from waystation.core.effects import Peer
from waystation.core.identity_access import EVERYBODY
from waystation.protocols.strata.relay.membership import Membership
from waystation.protocols.strata.session import PUBLISH, SUBSCRIBE, Session

NAMED = "did:web:example.org"
BOTH = frozenset({PUBLISH, SUBSCRIBE})


def lists(*, demands=False, dids=(), unlimited=()):
    """Return lists of an operator."""
    exempt = {identity_of(name) for name in unlimited}
    return SimpleNamespace(
        demands_identity=demands, admits_did=lambda name: name in dids, is_unlimited=lambda identity: identity in exempt
    )


def session_of(number, identity=None):
    """Return a session with the capabilities of anybody, authenticated as ``identity``."""
    session = Session(Peer(number), "192.0.2.1", BOTH, in_force())
    if identity is not None:
        session.authenticate(identity, BOTH)
    return session


def test_without_lists_anybody_may():
    """Anonymous clients have what the policy gives them."""
    members = Membership(BOTH, lambda _key: True, EVERYBODY)

    assert members.for_anybody
    assert members.anonymous() == BOTH
    assert members.admits(did(ALICE))
    assert members.admits(NAMED)
    assert members.refused([session_of(1), session_of(2, did(BOB))]) == []


def test_list_of_identities_leaves_nothing_to_anonymous_clients():
    """NODE-ACCESS: who is here unproven goes, and so does who is not on the list, by key or by name."""
    members = Membership(BOTH, lambda key: key == ALICE.public, lists(demands=True, dids=[NAMED]))
    sessions = [session_of(1), session_of(2, did(ALICE)), session_of(3, did(BOB)), session_of(4, NAMED)]
    other = session_of(5, "did:web:example.net")

    assert not members.for_anybody
    assert members.anonymous() == frozenset()
    assert members.refused([*sessions, other]) == [sessions[0], sessions[2], other]


def test_capabilities_come_back_with_the_list():
    """Who waits to prove itself is no reader yet, and an anonymous one again when the list is empty."""
    operator = lists(demands=True)
    members = Membership(BOTH, lambda _key: True, operator)
    waiting = Session(Peer(1), "192.0.2.1", members.anonymous(), in_force())
    stays = members.refused([waiting]) == []
    operator.demands_identity = False

    assert stays
    assert members.refused([waiting]) == []
    assert waiting.capabilities == BOTH


@pytest.mark.parametrize("name", [did(ALICE), NAMED])
def test_exempt_identity_pays_nothing(name):
    """Neither for itself nor with its address."""
    members = Membership(BOTH, lambda _key: True, lists(dids=[NAMED], unlimited=[name]))
    exempt, other = session_of(1, name), session_of(2, did(BOB))
    members.joined(exempt, name)
    members.joined(other, did(BOB))

    assert (exempt.limited, exempt.payers) == (False, ())
    assert other.limited
    assert other.payers
