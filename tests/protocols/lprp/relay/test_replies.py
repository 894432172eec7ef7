"""What a command leads to: refusals that have a command become answers."""

import pytest

from tests.protocols.lprp.build import HOST, TENANT, sealed
from waystation.protocols.lprp.messages import Command, Kind
from waystation.protocols.lprp.refusals import Refusal
from waystation.protocols.lprp.relay.replies import Demand, Reply, refuse

ASKED = sealed(TENANT, HOST, Command.ASK_LEASE, bytes(64))


@pytest.mark.parametrize("refusal", [each for each in Refusal if each.command is not None])
def test_refusal_with_a_command_is_an_answer(refusal):
    """The answer has the refusal's command, names the packet it refuses, and keeps the reason for the journal."""
    assert refuse(refusal, ASKED) == Reply(refusal.command, ASKED, refusal)


@pytest.mark.parametrize("refusal", [each for each in Refusal if each.command is None])
def test_silent_refusal_is_no_answer(refusal):
    """What the wire does not show cannot be made into an answer: that would be a bug of ours."""
    with pytest.raises(AssertionError):
        refuse(refusal, ASKED)


def test_answer_without_a_refusal():
    """An answer that accepts has no reason, and a demand names whose table it is about."""
    assert Reply(Command.LEASE_GRANTED, ASKED).refusal is None
    assert Demand(Kind.LEASE, ASKED, TENANT.public, 0.5).recipient == TENANT.public
