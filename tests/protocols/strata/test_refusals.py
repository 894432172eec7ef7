"""Laws of protocols.strata.refusals."""

import pytest

from waystation.core.errors import RemoteError
from waystation.protocols.strata.refusals import Code, End, Refusal, RefusedError

RFC_CODES = {
    "invalid_signature",
    "invalid_schema",
    "packet_too_large",
    "rate_limited",
    "blocked_author",
    "unauthenticated",
    "internal_error",
    "invalid_provenance",
    "missing_proof",
    "invalid_issuer_chain",
    "invalid_attestation",
}


def test_the_codes_of_the_rfc_are_all_there():
    """RFC-0004 3.5 lists eleven common codes; ours come on top."""
    assert {code.value for code in Code} > RFC_CODES


def test_codes_are_the_words_on_the_wire():
    """A code is its name in lower case, so that journal and metrics need no table."""
    assert all(code.value == code.name.lower() for code in Code)
    assert all(end.value == end.name.lower() for end in End)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (End.SHUTDOWN, 1001),
        (End.INVALID_TEXT, 1007),
        (End.MALFORMED, 1008),
        (End.AUTH_FAILURES, 1008),
        (End.LIMIT_IGNORED, 1008),
        (End.NOT_READING, 1013),
    ],
)
def test_ends_have_their_close_status(end, status):
    """RFC 6455 7.4 and specs/strata.md 10 to 14 say with which number a connection ends."""
    assert end.status == status


def test_every_end_has_a_status_that_may_be_sent():
    """Whatever the reason, the status is one that a close frame may carry."""
    assert all(end.status in {1000, 1001, 1007, 1008, 1013} for end in End)


def test_an_error_carries_its_refusal():
    """Parsers raise; whoever catches finds the value to answer with."""
    refusal = Refusal(Code.INVALID_SCHEMA, "version")
    error = RefusedError(refusal)

    assert isinstance(error, RemoteError)
    assert (error.refusal, str(error)) == (refusal, "invalid_schema: version")
