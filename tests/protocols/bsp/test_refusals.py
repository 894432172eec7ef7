"""Laws of protocols.bsp.refusals."""

import pytest

from waystation.core.errors import RemoteError
from waystation.protocols.bsp.refusals import MalformedError, Refusal


def test_value_is_the_name_in_lower_case():
    """Who reads a journal finds the member in the source by its word, and no two share one."""
    assert all(refusal.value == refusal.name.lower() for refusal in Refusal)
    assert len({refusal.value for refusal in Refusal}) == len(Refusal.__members__)


def test_status_bytes_are_those_of_the_digest():
    """1 unknown key, 2 busy, and nothing else is ever said (clarification 8); 0 is consent."""
    statuses = {refusal: refusal.status for refusal in Refusal if refusal.status is not None}

    assert statuses == {Refusal.UNKNOWN_PEER: 1, Refusal.BUSY: 2}


@pytest.mark.parametrize("refusal", [Refusal.BAD_SIGNATURE, Refusal.UNSHARED_GROUP, Refusal.EMPTY_LIST])
def test_most_refusals_are_silent(refusal):
    """A wrong signature learns nothing, an unshared group least of all (BSP-D8)."""
    assert refusal.status is None


def test_malformed_error_carries_its_refusal():
    """The one exception of the parsers says which rule was broken, in a field and in words."""
    error = MalformedError(Refusal.LIST_LENGTH, "33 bytes")

    assert isinstance(error, RemoteError)
    assert error.refusal is Refusal.LIST_LENGTH
    assert str(error) == "list_length: 33 bytes"
