"""Laws of core.networks: addresses of one network share a name, and what is no address has none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.core.networks import network_of
from waystation.engine.admission import address_key


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.7", "net:203.0.113.0/24"),
        ("203.0.113.255", "net:203.0.113.0/24"),
        ("203.0.114.7", "net:203.0.114.0/24"),
        ("::ffff:203.0.113.7", "net:203.0.113.0/24"),
        ("2001:db8:7:1::1", "net:2001:db8:7::/48"),
        ("2001:db8:7:1::/64", "net:2001:db8:7::/48"),
        ("2001:db8:8::1", "net:2001:db8:8::/48"),
        ("fe80::1%eth0", "net:fe80::/48"),
        ("", ""),
        ("somewhere", ""),
        ("203.0.113", ""),
    ],
)
def test_network_of_an_address(address, network):
    """IPv4 counts by /24 and IPv6 by /48, however the address is written."""
    assert network_of(address) == network


@given(st.ip_addresses())
def test_what_connections_are_counted_under_has_the_network_of_the_host(address):
    """Whoever knows only the key of an address finds the same network as whoever knows the address."""
    assert network_of(address_key(str(address))) == network_of(str(address)) != ""
