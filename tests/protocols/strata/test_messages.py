"""Laws of protocols.strata.messages."""

from dataclasses import FrozenInstanceError

import pytest

from waystation.protocols.strata.messages import Filters, Unsubscribe

FIELDS = ("did:a:1", "POST", 50)


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        (Filters(), True),
        (Filters(authors=("did:a:1",)), True),
        (Filters(authors=("did:a:0", "did:a:1")), True),
        (Filters(authors=("did:a:2",)), False),
        (Filters(types=("POST",)), True),
        (Filters(types=("PROFILE",)), False),
        (Filters(authors=("did:a:1",), types=("PROFILE",)), False),
        (Filters(authors=("did:a:2",), types=("POST",)), False),
        (Filters(since=50), True),
        (Filters(since=51), False),
        (Filters(until=50), True),
        (Filters(until=49), False),
        (Filters(since=50, until=50), True),
        (Filters(since=0), True),
        (Filters(until=0), False),
        (Filters(descending=True), True),
    ],
)
def test_filters_match(filters, wanted):
    """AND across fields, OR within a list, both bounds inclusive, and no restriction by what is absent."""
    assert filters.match(*FIELDS) is wanted


def test_messages_do_not_change():
    """A message is a value: what has been read stays as it was read."""
    with pytest.raises(FrozenInstanceError):
        Unsubscribe("s").subscription_id = "t"
