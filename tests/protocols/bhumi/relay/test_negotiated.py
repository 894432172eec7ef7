"""Laws of protocols.bhumi.negotiated."""

from tests.protocols.bhumi.build import World
from tests.protocols.bhumi.build_open import Country
from waystation.protocols.bhumi.messages import Feature
from waystation.protocols.bhumi.relay.negotiated import Negotiated


def test_connection_without_options_has_none():
    """It sees the seed's protocol and costs what it cost before (BHUMI-X)."""
    world = World()

    assert world.device().session().negotiated is None


def test_new_agreement_begins_empty():
    """Nothing is owed, allowed or proven yet."""
    fresh = Negotiated(Feature.PRESENCE)

    assert (fresh.waiting, fresh.proof_by, fresh.contact, fresh.questions) == (None, None, None, None)
    assert not fresh.is_proven
    assert fresh.record_strikes == 0


def test_allowances_are_made_with_the_first_question():
    """Most connections never ask."""
    country = Country()
    guest = country.guest()
    negotiated = country.relays[0]._sessions[guest.peer].negotiated
    assert negotiated.lists is None
    guest.adverts()

    assert negotiated.lists is not None
    assert negotiated.questions is None
