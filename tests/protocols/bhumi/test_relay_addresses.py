"""Laws of protocols.bhumi.places: which addresses may be places on the open internet."""

import pytest

from waystation.protocols.bhumi.relay_addresses import host_of, is_open_place


@pytest.mark.parametrize(
    "host",
    [
        "relay.example",
        "8.8.8.8",
        "[2606:4700:4700::1111]",
        "Relay.Example",
        "8.8.8.8.",
        "relay.example.",
        "a.b-c.d_e.example",
    ],
)
def test_open_places_are_taken(host):
    """Names with a dot, and addresses that are public."""
    assert is_open_place(f"tls://{host}:8443")


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST", "localhost.", "a.localhost", "router", "printer.local", "db.internal", "nas.lan"),
        *("localhost.", "printer.LOCAL", "tv.home", "x.home.arpa", "x.onion", "0"),
        *("127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1"),
        *("127.1", "2130706433", "0x7f000001", "0x7f.1", "1.2.3.0x4", "10.0.0.1."),
        *("[::1]", "[fe80::1]", "[fc00::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[::]"),
    ],
)
def test_private_places_are_not(host):
    """Nobody is sent into a network behind us, under whatever spelling."""
    assert not is_open_place(f"tcp://{host}:1")


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("tls://Relay.example:1", "relay.example"),
        ("tcp://[2001:db8::1]:8443", "2001:db8::1"),
        ("tls://1.2.3.4:5", "1.2.3.4"),
    ],
)
def test_host_stands_between_scheme_and_port(address, host):
    """In lower case and without brackets."""
    assert host_of(address) == host
