"""Laws of protocols.bhumi.binding: an identity proves itself to this very relay."""

import random

import pytest

from tests.protocols.bhumi.build import commit, i_am, send
from tests.protocols.bhumi.build_open import ALICE, BOB, RELAY_KEYS, Country
from waystation.protocols.bhumi.extension_messages import BindChallenge, BindProof, IAmOk, RevokeCommits
from waystation.protocols.bhumi.limits import BhumiLimits
from waystation.protocols.bhumi.messages import Deliver, Feature, SendResult, UpdateCommits
from waystation.protocols.bhumi.refusals import Refusal
from waystation.protocols.bhumi.relay.binding import PROOF_WITHIN_MS
from waystation.protocols.bhumi.relay.machine import BhumiRelay
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.protocols.bhumi.signed_records import sign_binding

BOUND = Feature.BINDING | Feature.I_AM_OK


def challenged(country, features=BOUND):
    """Return a guest and its challenge."""
    guest = country.guest(features=features)
    (challenge,) = guest.hear()
    assert isinstance(challenge, BindChallenge)
    return guest, challenge


def test_challenges_name_the_relay_and_differ():
    """A proof for one relay or one connection is none for another."""
    country = Country()
    (_, first), (_, second) = challenged(country), challenged(country)

    assert first.relay_id == second.relay_id == RELAY_KEYS[0].public
    assert first.nonce != second.nonce


def test_proof_is_taken_and_nothing_is_said():
    """Where binding is not demanded the I_AM counts at once, and a right proof changes nothing."""
    country = Country()
    guest, challenge = challenged(country)
    guest.identify(ALICE, (1,))
    assert guest.hear() == [IAmOk(1, 0)]
    guest.say(BindProof(sign_binding(ALICE, challenge)))

    assert (guest.hear(), guest.closed, country.refused) == ([], None, [])


@pytest.mark.parametrize("demanded", [False, True])
@pytest.mark.parametrize("kind", ["other key", "other relay", "other nonce", "no identity"])
def test_wrong_proof_closes(demanded, kind):
    """Always, demanded or not."""
    country = Country(require_binding=demanded)
    guest, challenge = challenged(country)
    if kind != "no identity":
        guest.identify(ALICE)
    wrong = {
        "other relay": BindChallenge(RELAY_KEYS[1].public, challenge.nonce),
        "other nonce": BindChallenge(challenge.relay_id, bytes(32)),
    }.get(kind, challenge)
    guest.say(BindProof(sign_binding(BOB if kind == "other key" else ALICE, wrong)))

    assert guest.closed is Refusal.BAD_BINDING


def test_identity_counts_only_once_it_is_proven():
    """Before the proof it gets no delivery, replaces nobody, and hears no I_AM_OK."""
    country = Country(require_binding=True)
    guest, challenge = challenged(country)
    sender = country.guest(features=None)
    guest.identify(ALICE, (1,))
    assert sender.say(send(ALICE, 1)).hear() == [SendResult(1)]
    assert guest.hear() == []
    guest.say(BindProof(sign_binding(ALICE, challenge)))
    assert guest.hear() == [IAmOk(1, 0)]
    sender.say(send(ALICE, 1))

    assert [type(message) for message in guest.hear()] == [Deliver]


def test_unproven_identity_replaces_nobody():
    """A relay that passes our nonce on cannot drive a device from its place (BHUMI-5)."""
    country = Country(require_binding=True)
    home, challenge = challenged(country)
    home.identify(ALICE).say(BindProof(sign_binding(ALICE, challenge)))
    thief, _ = challenged(country)
    thief.identify(ALICE)
    assert home.closed is None
    country.pass_s(PROOF_WITHIN_MS / 1_000)

    assert (thief.closed, home.closed) == (Refusal.BINDING_MISSING, None)


def test_proof_that_does_not_come_closes_after_ten_seconds():
    """Not a second earlier; a second I_AM does not begin them anew."""
    country = Country(require_binding=True)
    guest, _ = challenged(country)
    guest.identify(ALICE)
    country.pass_s(9)
    guest.identify(ALICE)
    assert guest.closed is None
    country.pass_s(1)

    assert guest.closed is Refusal.BINDING_MISSING


@pytest.mark.parametrize("features", [None, Feature.I_AM_OK])
def test_i_am_that_cannot_be_proven_closes(features):
    """Where binding is demanded a client without the feature is told at once."""
    country = Country(require_binding=True)

    assert country.guest(features=features, key=ALICE).closed is Refusal.BINDING_MISSING


def test_proven_identity_refreshes_without_another_proof():
    """One proof for a connection."""
    country = Country(require_binding=True)
    guest, challenge = challenged(country)
    guest.identify(ALICE).say(BindProof(sign_binding(ALICE, challenge))).hear()
    guest.identify(ALICE, (1, 2))

    assert guest.hear() == [IAmOk(2, 0)]


def test_commits_that_come_while_the_i_am_waits_are_not_lost():
    """They join those of the I_AM, within its limit."""
    country = Country(require_binding=True)
    guest, challenge = challenged(country)
    guest.identify(ALICE, (1,)).say(UpdateCommits((commit(2),)), BindProof(sign_binding(ALICE, challenge)))

    assert guest.hear() == [IAmOk(2, 0)]


def test_another_identity_while_one_waits_closes():
    """One connection, one role, also before the proof."""
    country = Country(require_binding=True)
    guest, _ = challenged(country)
    guest.identify(ALICE).identify(BOB)

    assert guest.closed is Refusal.OTHER_IDENTITY


def test_commits_that_are_revoked_while_the_i_am_waits_do_not_count():
    """Nor do those beyond the limit; what fits is taken."""
    country = Country(require_binding=True)
    guest, challenge = challenged(country)
    guest.identify(ALICE, (1, 2)).say(RevokeCommits((commit(1),)))
    guest.say(*(UpdateCommits(tuple(map(commit, range(first, first + 2_050)))) for first in (10, 3_000)))
    guest.say(BindProof(sign_binding(ALICE, challenge)))
    sender = country.guest(features=None)

    assert guest.hear() == [IAmOk(4_096, 0)]
    assert country.refusals() == {"commits_over_limit": 5}
    assert sender.say(send(ALICE, 1)).hear() == [SendResult(2)]


def test_identity_that_is_banned_before_its_proof_is_not_admitted():
    """Who may come is asked at the moment at which it counts."""
    banned = set()
    country = Country()
    settings = BhumiSettings(require_binding=True)
    country.relays[0] = BhumiRelay(
        settings, random.Random(1), admits=lambda identity: identity not in banned, key_pair=RELAY_KEYS[0]
    )
    guest, challenge = challenged(country)
    guest.identify(ALICE)
    banned.add(ALICE.public)
    country.relays[0].expel(ALICE.public, country.now)
    guest.say(BindProof(sign_binding(ALICE, challenge)))

    assert guest.closed is Refusal.IDENTITY_BANNED
    assert country.relays[0].sizes()["identities"] == 0


def test_what_waits_is_bounded():
    """Beyond that the next I_AM closes; the end of a connection gives its room back."""
    country = Country(require_binding=True, limits=BhumiLimits(unproven_bytes=128 * 100))
    first, _ = challenged(country)
    second, _ = challenged(country)
    first.identify(ALICE, tuple(range(60)))
    second.say(i_am(BOB, second.nonce, range(41)))
    assert (first.closed, second.closed) == (None, Refusal.BINDING_MISSING)
    first.hang_up()
    third, _ = challenged(country)

    assert third.identify(BOB, tuple(range(100))).closed is None


@pytest.mark.parametrize("kind", ["empty responses", "commits that come later"])
def test_small_pieces_that_wait_are_bounded_too(kind):
    """What counts is the memory that they take."""
    country = Country(require_binding=True, limits=BhumiLimits(unproven_bytes=20_000))
    guest, _ = challenged(country)
    if kind == "empty responses":
        guest.say(i_am(ALICE, guest.nonce, (), [(number, b"") for number in range(200)]))
    else:
        guest.identify(ALICE).say(UpdateCommits(tuple(map(commit, range(100)))))
        assert guest.closed is None
        guest.say(UpdateCommits(tuple(map(commit, range(100, 200)))))
    assert guest.closed is Refusal.BINDING_MISSING
    other, _ = challenged(country)

    assert other.identify(BOB, tuple(range(150))).closed is None
