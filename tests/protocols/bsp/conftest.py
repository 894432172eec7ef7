"""What several tests of the mailbox begin with."""

import pytest

from tests.protocols.bsp.build_mailbox import A, Clock, MailboxParty


@pytest.fixture
def clock():
    """Return the time."""
    return Clock()


@pytest.fixture
def mailbox(clock):
    """Return a mailbox whose owner is A."""
    return MailboxParty(clock, 1, [A])
