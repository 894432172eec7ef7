"""Laws of what can go wrong with LPRP."""

import pytest

from waystation.core.errors import RemoteError
from waystation.protocols.lprp.client_events import RequestOutcome
from waystation.sdk import lprp_errors
from waystation.sdk.lprp_errors import LeaseRefusedError, WhitelistFailedError


def test_tree_of_the_docstring():
    """The tree names every error with its branch."""
    tree = lprp_errors.__doc__

    assert all(name in tree for name in lprp_errors.__all__)
    assert all(issubclass(getattr(lprp_errors, name), RemoteError) for name in lprp_errors.__all__)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (RequestOutcome.REFUSED, "closed to newcomers"),
        (RequestOutcome.WORK_FAILED, "more work"),
        (RequestOutcome.UNANSWERED, "no answer"),
    ],
)
def test_lease_refused_says_why(outcome, said):
    """The sentence names the host and the reason; the outcome is an attribute."""
    error = LeaseRefusedError("lprp://x", outcome)

    assert said in str(error) and "lprp://x" in str(error)
    assert error.outcome is outcome


def test_whitelist_failed_says_that_the_wish_is_kept():
    """Nothing that was wished is lost."""
    error = WhitelistFailedError("lprp://x", RequestOutcome.UNANSWERED)

    assert "unanswered" in str(error) and "kept" in str(error)
    assert error.outcome is RequestOutcome.UNANSWERED
