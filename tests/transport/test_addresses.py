"""Laws of transport.addresses: both families by one word, and IPv4 addresses that look like IPv4."""

import asyncio
import socket

import pytest

from tests.transport.datagrams.build_udp import HAS_IPV6
from waystation.transport.addresses import (
    EVERY_ADDRESS,
    has_both_families,
    plain_host,
    reached_host,
    resolve_place,
    shown_host,
)


def place(host):
    """Return where a host is bound, for TCP."""
    return asyncio.run(resolve_place(host, 7, socket.SOCK_STREAM))


def test_machine_with_ipv6_has_both_families():
    """What the tests of IPv6 rest on is what the listeners rest on."""
    assert has_both_families() == HAS_IPV6


def test_every_address_is_both_families_where_there_are_two(monkeypatch):
    """NODE-DUAL: "*" is "::" on a system with IPv6, and 0.0.0.0 on one whose kernel has none."""

    def refuse(*_):
        raise OSError("Address family not supported by protocol")

    async def without_ipv6():
        with monkeypatch.context() as kernel:
            kernel.setattr(socket, "socket", refuse)
            return has_both_families(), await resolve_place(EVERY_ADDRESS, 7, socket.SOCK_STREAM)

    assert place(EVERY_ADDRESS)[1][0] == ("::" if HAS_IPV6 else "0.0.0.0")
    assert asyncio.run(without_ipv6()) == (False, (socket.AF_INET, ("0.0.0.0", 7)))


@pytest.mark.parametrize(
    ("host", "family", "bound"),
    [("0.0.0.0", socket.AF_INET, "0.0.0.0"), ("127.0.0.2", socket.AF_INET, "127.0.0.2"), ("::", socket.AF_INET6, "::")],
)
def test_explicit_address_stays_what_it_is(host, family, bound):
    """NODE-DUAL: only "*" stands for both families."""
    found, place_found = place(host)

    assert (found, place_found[0]) == (family, bound)


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::ffff:1", "::ffff:1"),
        ("2001:db8::1", "2001:db8::1"),
        ("", ""),
    ],
)
def test_mapped_address_is_the_ipv4_address(host, plain):
    """A peer that comes over IPv4 is counted, banned and logged as one, whatever the socket."""
    assert plain_host(host) == plain


def test_every_address_is_shown_as_ipv4():
    """NODE-DUAL: scripts dial what the ready line shows."""
    assert (shown_host(EVERY_ADDRESS, "::"), shown_host("::", "::")) == ("0.0.0.0", "::")


def test_listener_on_every_address_is_reached_at_loopback():
    """A client of this machine dials what exists; any other address stays as it is."""
    assert [reached_host(host) for host in ("0.0.0.0", "::", "192.0.2.1", "localhost")] == [
        "127.0.0.1",
        "::1",
        "192.0.2.1",
        "localhost",
    ]
