"""Laws of protocols.bhumi.refusals."""

from waystation.core.errors import RemoteError
from waystation.protocols.bhumi.refusals import MalformedError, Refusal


def test_reasons_are_distinct_words():
    """Every reason can be told from every other one in a journal."""
    values = [refusal.value for refusal in Refusal]

    assert len(set(values)) == len(Refusal.__members__) == len(values)
    assert all(value == value.lower() and " " not in value for value in values)


def test_value_is_the_name_in_lower_case():
    """Who reads a journal finds the member in the source by its word."""
    assert all(refusal.value == refusal.name.lower() for refusal in Refusal)


def test_malformed_error_carries_its_refusal():
    """The one exception of the parsers says which rule was broken, in a field and in words."""
    error = MalformedError(Refusal.INNER_LENGTH, "SEND: says 3 bytes, frame has 4")

    assert isinstance(error, RemoteError)
    assert error.refusal is Refusal.INNER_LENGTH
    assert str(error) == "inner_length: SEND: says 3 bytes, frame has 4"
