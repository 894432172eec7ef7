"""Laws of what became of a Strata packet."""

import pytest

from waystation.sdk.errors import OutcomeUnknownError, RelayUnreachableError, RequestRefusedError
from waystation.sdk.strata.outcome import Outcome, sent_of

REFUSED = RequestRefusedError("wss://a", "rate_limited", "")
UNKNOWN = OutcomeUnknownError("no answer")
AWAY = RelayUnreachableError("nobody there")


@pytest.mark.parametrize(
    ("failures", "outcome"),
    [((REFUSED,), Outcome.REFUSED), ((REFUSED, AWAY), Outcome.REFUSED), ((REFUSED, UNKNOWN), Outcome.UNKNOWN)],
)
def test_packet_that_no_relay_took(failures, outcome):
    """The first failure is the sentence; one relay that did not answer leaves it open."""
    sent = sent_of(None, (), {str(number): each for number, each in enumerate(failures)}, ())

    assert sent.outcome is outcome and sent.retry_safe
    assert sent.sentence == str(REFUSED)
    with pytest.raises(RequestRefusedError):
        sent.check()


def test_one_relay_is_enough():
    """What failed elsewhere is there to be read."""
    sent = sent_of(None, ("receipt",), {"wss://b": AWAY}, ())

    assert sent.outcome is Outcome.STORED and sent.check() is sent
    assert sent.failures == {"wss://b": AWAY}


def test_packet_that_left_for_no_relay_is_an_error():
    """Nothing was attempted, so that there is no outcome."""
    with pytest.raises(RelayUnreachableError, match="nobody there"):
        sent_of(None, (), {"wss://a": AWAY, "wss://b": AWAY}, ())
