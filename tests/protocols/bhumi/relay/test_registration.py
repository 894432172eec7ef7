"""Laws of protocols.bhumi.registration: OPTIONS, I_AM_OK and REVOKE_COMMITS; I_AM itself is tried in test_relay."""

import pytest

from tests.protocols.bhumi.build import World, commit, i_am, send
from tests.protocols.bhumi.build_open import ALICE, BOB, Country
from waystation.protocols.bhumi.extension_messages import BindChallenge, IAmOk, RevokeCommits
from waystation.protocols.bhumi.messages import Deliver, Feature, Keepalive, Options, SendResult, UpdateCommits

EVERYTHING = Feature(0xFFFFFFFF)
OFFERED = (
    Feature.DELIVER_WITH_PREIMAGE
    | Feature.PRESENCE
    | Feature.QA
    | Feature.BINDING
    | Feature.I_AM_OK
    | Feature.WATCH
    | Feature.AUTHORITY
)  # RESULT_WITH_TAG is reserved


@pytest.mark.parametrize(
    ("settings", "missing"),
    [({}, Feature(0)), ({"gossip": False}, Feature.PRESENCE), ({"qa": False}, Feature.QA)],
)
def test_relay_with_a_key_offers_what_it_is_set_to(settings, missing):
    """Bit 1 is reserved; each of the others goes with its setting."""
    guest = Country(**settings).guest(features=None)
    answer = guest.say(Options(EVERYTHING)).hear()[0]

    assert answer == Options(OFFERED & ~missing)


def test_challenge_stands_right_behind_the_answer():
    """Once for a connection, however often it sends OPTIONS."""
    guest = Country().guest(features=None)
    answer, challenge = guest.say(Options(Feature.BINDING)).hear()

    assert isinstance(challenge, BindChallenge)
    assert guest.say(Options(Feature.BINDING)).hear() == [answer]


def test_options_may_be_changed():
    """The last word counts."""
    guest = Country().guest(features=Feature.I_AM_OK)
    guest.say(Options(Feature(0))).hear()

    assert guest.identify(ALICE).hear() == []


def test_i_am_ok_counts_what_is_kept():
    """Commits of the set, less those of carried answers; answers of this I_AM that the relay keeps (BHUMI-IAMOK)."""
    country = Country()
    guest = country.guest(features=Feature.I_AM_OK)
    guest.say(i_am(ALICE, guest.nonce, [1, 2, 3], [(1, b"done"), (9, b"old"), (9, b"again")]))
    assert guest.hear() == [IAmOk(2, 2)]
    guest.say(i_am(ALICE, guest.nonce, [4]))

    assert guest.hear() == [IAmOk(1, 0)]


def test_i_am_without_the_feature_is_answered_by_silence():
    """As the letter has it."""
    assert Country().guest(features=Feature(0), key=ALICE).hear() == []


def test_revoked_commits_are_spent():
    """The sender gets 2; a commit that was not there is no news, and the others stay."""
    country = Country()
    device = country.guest(features=Feature(0), key=ALICE).identify(ALICE, (1, 2))
    device.say(RevokeCommits((commit(1), commit(7))))
    sender = country.guest(features=None).say(send(ALICE, 1), send(ALICE, 2))

    assert sender.hear() == [SendResult(2)]
    assert [type(message) for message in device.hear()] == [Deliver]
    assert country.refused == []


def test_revoking_needs_options_and_an_identity():
    """Without OPTIONS the frame is unknown, without I_AM there is nothing to take from."""
    country = Country()
    country.guest(features=None, key=ALICE).say(RevokeCommits((commit(1),)))
    country.guest(features=Feature(0)).say(RevokeCommits((commit(1),)))

    assert country.refusals() == {"unknown_extension": 1, "commits_without_identity": 1}


def test_keyless_relay_offers_the_core_only():
    """It proves nothing and knows nobody."""
    line = World().connect()
    line.say(Options(EVERYTHING))

    assert line.hear() == [Options(Feature.DELIVER_WITH_PREIMAGE | Feature.I_AM_OK | Feature.WATCH | Feature.AUTHORITY)]


def test_update_adds_and_i_am_replaces():
    """UPDATE_COMMITS keeps what is there, the next I_AM does not."""
    country = Country()
    device = country.guest(features=Feature.I_AM_OK).identify(ALICE, (1,))
    device.say(UpdateCommits((commit(2),)), i_am(ALICE, device.nonce, [3]))

    assert device.hear() == [IAmOk(1, 0), IAmOk(1, 0)]
    assert country.relays[0].sizes()["commits"] == 1


def test_negotiation_changes_no_other_connection():
    """What one client agrees on is nobody else's."""
    country = Country()
    country.guest(features=Feature.I_AM_OK, key=ALICE)
    other = country.guest(features=None, key=BOB)

    assert other.say(Keepalive()).hear() == [Keepalive()]
