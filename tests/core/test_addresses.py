"""Laws of core.addresses: what is on the open internet and what only looks so."""

import pytest

from waystation.core.addresses import is_dns_name, is_ip, is_public

PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "93.184.216.34",
    "2606:4700:4700::1111",
    "2a00:1450:4001:81b::200e",
    "::ffff:8.8.8.8",
    "2002:808:808::1",
    "64:ff9b::808:808",
    "2001:0:808:808:0:0:f7f7:f7f7",
]

PRIVATE = {
    "this host": "0.0.0.0",
    "this network": "0.1.2.3",
    "loopback": "127.0.0.1",
    "all of loopback": "127.255.255.254",
    "ten": "10.1.2.3",
    "one seven two": "172.31.255.255",
    "one nine two": "192.168.0.1",
    "link local and cloud metadata": "169.254.169.254",
    "carrier's NAT": "100.64.0.1",
    "documentation": "192.0.2.1",
    "benchmarks": "198.18.0.1",
    "relays of 6to4": "192.88.99.1",
    "multicast": "224.0.0.1",
    "global multicast": "239.255.255.250",
    "reserved": "240.0.0.1",
    "broadcast": "255.255.255.255",
    "IPv6 unspecified": "::",
    "IPv6 loopback": "::1",
    "IPv6 link local": "fe80::1",
    "IPv6 link local with its zone": "fe80::1%eth0",
    "public address with a zone": "2606:4700:4700::1111%eth0",
    "IPv6 unique local": "fd00::1",
    "IPv6 site local": "fec0::1",
    "IPv6 multicast": "ff02::1",
    "IPv6 global multicast": "ff0e::1",
    "IPv6 documentation": "2001:db8::1",
    "mapped loopback": "::ffff:127.0.0.1",
    "mapped private": "::ffff:a00:1",
    "compatible loopback": "::127.0.0.1",
    "6to4 of a private address": "2002:a00:1::1",
    "6to4 of loopback": "2002:7f00:1::",
    "Teredo to a private client": "2001:0:808:808:0:0:f5ff:fffe",
    "Teredo over a private server": "2001:0:a00:1:0:0:f7f7:f7f7",
    "NAT64 of a private address": "64:ff9b::a00:1",
    "NAT64 of the metadata service": "64:ff9b::169.254.169.254",
    "local NAT64": "64:ff9b:1::808:808",
}

NO_ADDRESS = ["", "localhost", "example.org", "8.8.8", "8.8.8.8 ", "[2606:4700:4700::1111]", "0x08080808", "134744072"]


@pytest.mark.parametrize("address", PUBLIC)
def test_open_internet_is_public(address):
    """Unicast addresses that anybody can reach, and those that carry one."""
    assert is_public(address)


@pytest.mark.parametrize("case", PRIVATE)
def test_everything_else_is_not(case):
    """Whatever leads to this machine, its network or nowhere, also when another notation hides it."""
    assert not is_public(PRIVATE[case])


@pytest.mark.parametrize("text", NO_ADDRESS)
def test_text_that_is_no_address_is_not_public(text):
    """Names and sloppy notations are never guessed at."""
    assert not is_public(text)


@pytest.mark.parametrize(
    ("text", "name", "address"),
    [
        ("relay.example.org", True, False),
        ("a_b.C-1", True, False),
        ("192.0.2.1", True, True),
        ("2001:db8::1", False, True),
        ("fe80::1%lo", False, True),
        (".".join(["a" * 63] * 3 + ["a" * 61]), True, False),
        (".".join(["a" * 63] * 3 + ["a" * 62]), False, False),
        ("a" * 64, False, False),
        *((text, False, False) for text in ("", "a.", ".a", "-a", "a b", "*.a", "[::1]", "192.0.2.0/24", "\u00e9")),
    ],
)
def test_names_and_addresses_are_told_apart(text, name, address):
    """By RFC 1035 2.3.4 a label has 63 characters and a name 253; an IPv4 address has the form of a name, too."""
    assert (is_dns_name(text), is_ip(text)) == (name, address)
