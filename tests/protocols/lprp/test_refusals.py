"""Laws of protocols.lprp.refusals."""

import pytest

from tests.protocols.lprp.build import TO_HOST
from waystation.core.errors import RemoteError
from waystation.protocols.lprp.refusals import MalformedError, Refusal


def test_value_is_the_name_in_lower_case():
    """Who reads a journal finds the member in the source by its word, and no two share one."""
    assert all(refusal.value == refusal.name.lower() for refusal in Refusal)
    assert len({refusal.value for refusal in Refusal}) == len(Refusal.__members__)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (0x401, {"TOO_FEW_BITS", "CHALLENGE_EXPIRED"}),
        (0x402, {"NO_LEASE", "QUEUE_FULL", "STRANGERS_FULL", "STORE_FULL"}),
        (0x404, {"TENANTS_FULL", "LEASES_CLOSED", "LEASE_BANNED"}),
        (0x408, {"WHITELIST_HASH", "WHITELIST_FULL", "ZERO_KEY", "OVERTAKEN"}),
    ],
)
def test_command_that_refuses_is_that_of_the_digest(command, names):
    """Each refusing command of specs/lprp.md 3 stands for just its own reasons."""
    assert {refusal.name for refusal in Refusal if refusal.command == command} == names


def test_only_refusing_commands_refuse():
    """What tells a sender no is 401, 402, 404 or 408, and nothing that a client could send back."""
    commands = {refusal.command for refusal in Refusal} - {None}

    assert commands == {0x401, 0x402, 0x404, 0x408}
    assert not commands & TO_HOST


@pytest.mark.parametrize(
    "refusal",
    [
        *(Refusal.LENGTH, Refusal.UNKNOWN_COMMAND, Refusal.WRONG_DIRECTION, Refusal.COMMAND_LENGTH, Refusal.CLOCK),
        *(Refusal.WRONG_HOST, Refusal.SMALL_ORDER_KEY, Refusal.NOT_A_TENANT, Refusal.BAD_SIGNATURE),
        *(Refusal.UNKNOWN_CHALLENGE, Refusal.UNKNOWN_RELAY, Refusal.NO_CREDIT, Refusal.NOT_NEWER),
    ],
)
def test_what_proves_nothing_is_dropped_in_silence(refusal):
    """Before a signature holds and a request makes sense no byte goes out, so that nobody is reflected upon."""
    assert refusal.command is None


def test_malformed_error_carries_its_refusal():
    """The one exception of the parsers says which rule was broken, in a field and in words."""
    error = MalformedError(Refusal.UNKNOWN_COMMAND, "0x103")

    assert isinstance(error, RemoteError)
    assert error.refusal is Refusal.UNKNOWN_COMMAND
    assert str(error) == "unknown_command: 0x103"
