"""Laws of the addresses that a MERK client takes."""

import pytest

from waystation.core.errors import LocalError
from waystation.protocols.merk.client.addresses import check_address, may_learn

FAR = "wss://far.example/merk"


@pytest.mark.parametrize(
    ("address", "learnt_from", "taken"),
    [
        ("wss://b.example/merk", FAR, True),
        ("ws://b.example/merk", FAR, False),
        ("ws://b.example/merk", "ws://far.example", True),
        ("wss://127.0.0.1/merk", FAR, False),
        ("wss://10.1.2.3/merk", FAR, False),
        ("wss://[::1]/merk", FAR, False),
        ("wss://[fe80::1]/merk", FAR, False),
        ("wss://localhost/merk", FAR, False),
        ("wss://printer/merk", FAR, False),
        ("wss://nas.local./merk", FAR, False),
        ("ws://192.168.1.9:8080", "ws://192.168.1.2:8080", True),
        ("ws://127.0.0.1:8081", "ws://localhost:8080", True),
        ("wss://8.8.8.8/merk", FAR, True),
        ("http://b.example", FAR, False),
        ("wss://user@b.example", FAR, False),
        ("nonsense", FAR, False),
    ],
)
def test_told_address_must_not_lead_to_worse_places(address, learnt_from, taken):
    """No plain text from an encrypted connection, and nothing of our own network from elsewhere."""
    assert may_learn(address, learnt_from) == taken


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ws://",
        "http://a",
        "ws:a",
        "ws://a:99999",
        "ws://a:0",
        "ws://u@a",
        "ws://a#x",
        "ws://a b",
        "ws://a\n",
        "ws://" + "a" * 251,
    ],
)
def test_what_is_no_address_is_refused(text):
    """Only what can be dialled, shown and told is in the list."""
    with pytest.raises(LocalError):
        check_address(text)
