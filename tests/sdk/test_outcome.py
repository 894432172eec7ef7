"""Laws of sdk.outcome: the fate of a message is told alike by all five."""

import asyncio

import pytest

import waystation
from waystation.errors import NotTakenError, OfflineError
from waystation.sdk.outcome import Outcome, Sent

FIVE = [waystation.bhumi, waystation.bsp, waystation.lprp, waystation.merk, waystation.strata]
MEMBERS = [member for module in FIVE for member in module.Outcome]


@pytest.mark.parametrize("module", FIVE, ids=lambda module: module.__name__.rpartition(".")[2])
def test_each_protocol_has_outcomes_of_the_one_base(module):
    """A program that handles ``waystation.Outcome`` handles all of them."""
    assert issubclass(module.Outcome, waystation.Outcome)
    assert any(member.ok for member in module.Outcome)


@pytest.mark.parametrize("member", MEMBERS, ids=str)
def test_outcome_says_what_happened_and_what_to_do(member):
    """Each has a name for JSON and a sentence, and advice unless all is well."""
    assert member.value == member.name.lower()
    assert member.sentence
    assert bool(member.advice) != member.ok
    assert isinstance(member.retry_safe, bool)


def test_check_returns_what_is_well():
    """``check`` is for programs that prefer exceptions."""
    sent = Sent(waystation.merk.Outcome.DELIVERED)

    assert sent.check() is sent
    assert sent.ok and asyncio.run(sent.settled()) is sent.outcome


def test_check_raises_the_failure_that_is_known():
    """The error is the one with names and numbers, and its text is the sentence."""
    sent = Sent(waystation.bhumi.Outcome.OFFLINE, failure=OfflineError("alice is not connected"))

    assert (sent.sentence, sent.retry_safe) == ("alice is not connected", True)
    with pytest.raises(OfflineError, match="alice is not connected"):
        sent.check()


def test_check_raises_the_outcome_in_words():
    """Where nothing more is known the error says the outcome's own sentence and advice."""
    sent = Sent(waystation.merk.Outcome.RATE)

    with pytest.raises(NotTakenError, match=r"not accepted: .*; send again after a second"):
        sent.check()


def test_base_has_no_outcome_of_its_own():
    """Protocols name theirs."""
    assert list(Outcome) == []
