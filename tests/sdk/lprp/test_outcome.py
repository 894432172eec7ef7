"""Laws of what became of a message."""

import pytest

from waystation.protocols.lprp.client.events import RequestOutcome
from waystation.sdk.lprp.outcome import Outcome, Sent


@pytest.mark.parametrize("outcome", list(RequestOutcome))
def test_every_end_of_a_packet_is_an_outcome_with_words(outcome):
    """Each has a sentence, and all but the good one an advice."""
    told = Outcome[outcome.name]

    assert told.value == outcome.value
    assert told.sentence
    assert bool(told.advice) != told.ok


def test_no_answer_may_be_a_full_disk():
    """A host that cannot store is silent too, and the sender's address and clock are right."""
    assert "or it cannot store now" in Outcome.UNANSWERED.advice


def test_only_accepted_is_accepted():
    """A promise of the host is nothing else."""
    assert [each for each in Outcome if each.ok] == [Outcome.ACCEPTED]
    assert Sent(Outcome.ACCEPTED, bytes(16), 1, 1, 0).ok
    assert not Sent(Outcome.UNANSWERED, bytes(16), 2, 1, 0).ok
