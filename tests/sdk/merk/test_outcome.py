"""Laws of sdk.merk_outcome."""

import pytest

from waystation.protocols.merk.messages import DeliveryCode
from waystation.sdk.merk.outcome import Outcome, outcome_of


@pytest.mark.parametrize("code", DeliveryCode)
def test_every_code_is_the_outcome_of_its_name(code):
    """What a relay tells has one outcome."""
    assert outcome_of(code) is Outcome[code.name]


def test_delivered_is_the_old_name_of_accepted():
    """For one version more; nothing in JSON is called so."""
    assert Outcome.DELIVERED is Outcome.ACCEPTED
    assert [each.value for each in Outcome][:3] == ["accepted", "stored", "read"]


def test_no_notice_is_unknown():
    """What nobody told may have been delivered or not, so sending again is not safe."""
    assert outcome_of(None) is Outcome.UNKNOWN
    assert not Outcome.UNKNOWN.retry_safe


@pytest.mark.parametrize("outcome", Outcome)
def test_each_outcome_has_a_sentence_and_advice_unless_delivered(outcome):
    """Only a delivered message needs nothing more."""
    assert outcome.sentence
    assert bool(outcome.advice) == (not outcome.ok)
    assert outcome.ok == (outcome in {Outcome.ACCEPTED, Outcome.STORED, Outcome.READ})


def test_told_failures_can_be_sent_again():
    """A relay that says no has not delivered; one that waited in vain for another cannot say (specs/merk.md 6)."""
    safe = {outcome for outcome in Outcome if outcome.retry_safe}

    assert safe == {each for each in Outcome if not each.ok} - {Outcome.LOOKUP_TIMEOUT, Outcome.UNKNOWN}


def test_only_what_was_not_delivered_for_sure_says_so():
    """A sentence never claims that a message has not arrived when it may have."""
    denied = {outcome for outcome in Outcome if outcome.sentence.startswith("not accepted")}

    assert denied == {outcome for outcome in Outcome if outcome.retry_safe}
