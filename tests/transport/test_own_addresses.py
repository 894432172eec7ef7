"""Laws of transport.own_addresses."""

import ipaddress

import pytest

from waystation.core.errors import HostError
from waystation.transport.own_addresses import own_addresses, resolved


def test_own_addresses_are_those_that_others_may_use():
    """Neither loopback nor link-local ones."""
    assert not [text for text in own_addresses() if ipaddress.ip_address(text).is_loopback]
    assert not [text for text in own_addresses() if ipaddress.ip_address(text).is_link_local]


def test_address_is_its_own_name():
    """Nobody is asked for it."""
    assert resolved("127.0.0.1") == ["127.0.0.1"]


@pytest.mark.parametrize("host", ["no-such-name.invalid", "a..b", "x" * 300])
def test_name_that_nobody_has_is_an_error(host):
    """The sentence repeats the name."""
    with pytest.raises(HostError, match="is not found"):
        resolved(host)
