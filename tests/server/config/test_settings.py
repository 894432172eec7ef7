"""Laws of server.settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.core.errors import LocalError
from waystation.server.config.settings import (
    Address,
    parse_address,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("localhost:65535", Address("localhost", 65_535)),
        ("[::]:8443", Address("::", 8443)),
        ("*:8443", Address("*", 8443)),
        ("[::1]:1", Address("::1", 1)),
    ],
)
def test_address_is_read_once_into_host_and_port(text, expected):
    """IPv6 loses its brackets, port 0 is a port, and the empty text is off."""
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "8443",
        ":8443",
        "host",
        "host:",
        "host:-1",
        "host:65536",
        "::1:80",
        "[::1]",
        "[host]:1",
        "[1.2.3.4]:1",
        "a b:1",
        "a:1 ",
    ],
)
def test_other_text_is_no_address(text):
    """Missing hosts, ports out of range, IPv6 without brackets and spaces are refused."""
    with pytest.raises(LocalError):
        parse_address(text)


@given(st.sampled_from(["::1", "fe80::1", "10.0.0.1", "node.example"]), st.integers(0, 65_535))
def test_address_round_trip(host, port):
    """The text of an address reads back to it."""
    assert parse_address(str(Address(host, port))) == Address(host, port)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("*", False),
        ("::", False),
        ("host", False),
    ],
)
def test_loopback_is_what_others_cannot_reach(host, expected):
    """All interfaces and unknown names are not loopback."""
    assert Address(host, 1).is_loopback is expected
