"""Laws of what became of a Bhumi request."""

import pytest

from waystation.sdk.bhumi.outcome import ENDS, Outcome, Reply, failed
from waystation.sdk.errors import OfflineError


@pytest.mark.parametrize("error", ENDS)
def test_every_end_of_an_attempt_is_an_outcome(error):
    """The reply keeps the error, says its sentence, and raises it again for programs that want that."""
    reply = failed(error("alice is away"))

    assert not reply.ok and reply.sentence == "alice is away"
    assert reply.content == b"" and reply.text == ""
    with pytest.raises(error, match="alice is away"):
        reply.check()


def test_only_what_was_not_delivered_may_be_sent_again():
    """What may have been handled is asked about with ``recover``, not sent anew."""
    assert {each for each in Outcome if not each.retry_safe} == {
        Outcome.ANSWERED, Outcome.FAILED, Outcome.UNCERTAIN, Outcome.UNREADABLE,
    }  # fmt: skip
    assert failed(OfflineError("x")).retry_safe


def test_reply_reads_its_content():
    """Bytes that are no UTF-8 are replaced, not refused."""
    assert Reply(Outcome.ANSWERED, 0, b"hi \xff").text == "hi \N{REPLACEMENT CHARACTER}"
