"""Laws of protocols.merk.refusals."""

import pytest

from waystation.core.errors import RemoteError
from waystation.protocols.merk.refusals import MalformedError, Refusal


def test_value_is_the_name_in_lower_case():
    """Who reads a journal finds the member in the source by its word, and no two share one."""
    assert all(refusal.value == refusal.name.lower() for refusal in Refusal)
    assert len({refusal.value for refusal in Refusal}) == len(Refusal.__members__)


@pytest.mark.parametrize(
    ("status", "names"),
    [
        (1001, {"SHUTDOWN"}),
        (1002, {"SHORT", "BAD_MAGIC", "BAD_VERSION", "BAD_LENGTH"}),
        (1009, {"TOO_BIG"}),
        (1013, {"CONNECT_RATE", "PEERS_FULL", "PEERS_NOT_ACCEPTED", "NOT_READING"}),
        (4408, {"AUTH_TIMEOUT"}),
        (4409, {"REPLACED", "DOUBLE_LINK"}),
    ],
)
def test_status_is_that_of_the_digest(status, names):
    """Each close status of specs/merk.md 10.4 shows just its own reasons."""
    assert {refusal.name for refusal in Refusal if refusal.status == status} == names


def test_failed_handshakes_close_with_4401():
    """Any failed, second or misplaced handshake frame, and any frame before it, is 4401."""
    failed = (Refusal.FRAME_BEFORE_AUTH, Refusal.BAD_ANSWER, Refusal.MISPLACED_HANDSHAKE, Refusal.HOSTILE_CHALLENGE)

    assert {refusal.status for refusal in failed} == {4401}


def test_reason_without_a_status_of_its_own_closes_with_1008():
    """What the specification names no status for is a broken policy."""
    assert Refusal.STRIKES.status == 1008


def test_malformed_error_carries_its_refusal():
    """The one exception of the parsers says which rule was broken, in a field and in words."""
    error = MalformedError(Refusal.BAD_MAGIC, "0x59")

    assert isinstance(error, RemoteError)
    assert error.refusal is Refusal.BAD_MAGIC
    assert str(error) == "bad_magic: 0x59"
