"""Laws of core.network_set: the same answers as a look through all networks, for both families."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.core.errors import LocalError
from waystation.core.network_set import NetworkMap, NetworkSet, parse_network, place_of

FAMILIES = {
    4: (ipaddress.IPv4Network, ipaddress.IPv4Address, 32),
    6: (ipaddress.IPv6Network, ipaddress.IPv6Address, 128),
}


@st.composite
def networks(draw):
    """Return a network of a small part of the address space, so that members are met."""
    network, _, bits = FAMILIES[draw(st.sampled_from([4, 6]))]
    number = draw(st.integers(0, 255)) << (bits - 16) | draw(st.integers(0, 255))
    return network((number, draw(st.integers(0, bits))), strict=False)


@st.composite
def addresses(draw):
    """Return an address of the same part."""
    _, address, bits = FAMILIES[draw(st.sampled_from([4, 6]))]
    return address(draw(st.integers(0, 255)) << (bits - 16) | draw(st.integers(0, 255)))


@given(st.lists(networks(), max_size=12), st.lists(networks(), max_size=6), addresses())
def test_answers_are_those_of_a_look_through_all(added, discarded, address):
    """However networks come and go, an address is in when one of those that stay has it."""
    found = NetworkSet(added)
    for network in discarded:
        found.discard(network)
    kept = set(added) - set(discarded)

    assert found.holds(str(address)) == any(address in each for each in kept if each.version == address.version)
    assert set(found) == kept
    assert len(found) == len(kept)


def test_values_of_every_network_of_an_address_are_found():
    """A replaced value is the new one, and one that is left out is found no more."""
    found = NetworkMap()
    for text, value in (("10.0.0.0/8", "a"), ("10.1.0.0/16", "b"), ("10.1.0.0/16", "c"), ("::/0", "d")):
        found.put(parse_network(text), value)
    before = set(found.found(place_of("10.1.2.3")))
    found.discard(parse_network("10.0.0.0/8"))

    assert before == {"a", "c"}
    assert list(found.found(place_of("10.1.2.3"))) == ["c"]
    assert list(found.found(place_of("10.2.0.1"))) == []
    assert len(found) == 2


def test_ipv4_within_ipv6_is_the_ipv4_address():
    """A dual-stack socket names IPv4 clients so; zones are left out, and other text is in no network."""
    found = NetworkSet([parse_network("203.0.113.0/24"), parse_network("fe80::/10")])

    assert found.holds("::ffff:203.0.113.7")
    assert found.holds("fe80::1%eth0")
    assert not found.holds("::ffff:203.0.112.7")
    assert not found.holds("")
    assert not found.holds("localhost")


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("203.0.113.7", "203.0.113.7/32"),
        (" 10.0.0.0/8 ", "10.0.0.0/8"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("0.0.0.0/0", "0.0.0.0/0"),
    ],
)
def test_network_is_read_as_it_is_written(text, network):
    """Addresses are networks of one."""
    assert str(parse_network(text)) == network


@pytest.mark.parametrize("text", ["", "10.0.0.1/8", "10.0.0.0/33", "example.org", "::ffff:0.0.0.0/90", "10.0.0"])
def test_anything_else_is_refused(text):
    """The sentence repeats what was given."""
    with pytest.raises(LocalError, match="network"):
        parse_network(text)


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("192.0.2.1", (4, 0xC0000201)),
        ("::ffff:192.0.2.1", (4, 0xC0000201)),
        ("2001:db8::/64", (6, 0x20010DB8 << 96)),
        ("fe80::1%eth0", (6, 0xFE80 << 112 | 1)),
        ("", None),
        ("nobody", None),
        ("192.0.2", None),
    ],
)
def test_place_is_the_address_in_numbers(host, place):
    """Whatever is behind it: a length, a zone; text that is no address has none."""
    assert place_of(host) == place
