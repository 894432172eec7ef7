"""Laws of protocols.merk.relay.addresses: what may be dialled of what others name."""

import pytest

from tests.protocols.merk.build_relay import PUBLIC
from tests.protocols.merk.net import START
from waystation.protocols.merk.relay.addresses import Address, address_fault


@pytest.mark.parametrize(
    "url",
    ["ws://8.8.8.8", "wss://example.org", "wss://example.org:8443/merk?x=1", "ws://[2606:4700:4700::1111]:80/", PUBLIC],
)
def test_places_on_the_open_internet_may_be_tried(url):
    """By number or by name, with a path."""
    assert address_fault(url, allow_private=False) == ""


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.3.4",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "[::1]",
        "[::]",
        "[fe80::1]",
        "[fc00::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::10.0.0.1]",
        "[2002:7f00:1::]",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "printer.local",
    ],
)
def test_private_places_are_refused_unless_allowed(host):
    """Loopback, private networks, link-local with its metadata service, and what carries such an address inside."""
    assert address_fault(f"ws://{host}:80/x", allow_private=False) == "private"
    assert address_fault(f"ws://{host}:80/x", allow_private=True) == ""


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://8.8.8.8",
        "ws:8.8.8.8",
        "ws://",
        "ws:///x",
        "ws://user@8.8.8.8",
        "ws://8.8.8.8#x",
        "ws://8.8.8.8:0",
        "ws://8.8.8.8:65536",
        "ws://8.8.8.8:x",
        "ws://8.8.8.8 ",
        "ws://8.8.8.8/\r\nHost: x",
        "ws://exämple.org",
        "ws://8.8.8.8/" + "x" * 243,
        "ws://[::1",
        "ws://8.8.8.8\\@10.0.0.1",
        "ftp://8.8.8.8",
    ],
)
def test_what_is_no_address_is_refused_always(url):
    """Also where private ones are allowed."""
    assert address_fault(url, allow_private=True) == address_fault(url, allow_private=False) == "no address"


def test_what_was_stored_was_proved():
    """An address of the last life has the key that was proved there; one that somebody names has none."""
    key = b"k" * 32

    assert Address(PUBLIC, key, START, stored=True).proved == key
    assert Address(PUBLIC, key, START, source=b"s" * 32).proved is None
