"""Laws of protocols.bhumi.settings."""

import dataclasses

import pytest

from waystation.core.errors import LocalError
from waystation.core.settings import check
from waystation.protocols.bhumi.settings import BhumiSettings, check_address


def test_defaults_are_those_of_the_digest():
    """BHUMI-L: 30 s for an ACK, 300 s in the cache, 64 KiB a payload, the seed's layout, a bound cache."""
    assert dataclasses.asdict(BhumiSettings()) == {
        "deliver_layout": "seed",
        "ack_timeout_ms": 30_000,
        "response_ttl_ms": 300_000,
        "max_payload_bytes": 65_536,
        "cache_bind_recipient": True,
        "require_binding": False,
        "gossip": True,
        "peers": [],
        "peers_ca": "",
        "advertise": "",
        "dials_private": False,
        "qa": True,
    }


@pytest.mark.parametrize("text", ["tls://relay.example:8443", "tcp://[2001:db8::1]:1", "tls://192.0.2.1:65535"])
def test_addresses_as_adverts_write_them_are_taken(text):
    """A scheme, a host and a port (BHUMI-ADDRESS)."""
    check_address(text)


@pytest.mark.parametrize(
    "text", ["", "relay.example:8443", "wss://relay.example:1", "tls://relay.example", "tls://r:0"]
)
def test_other_addresses_are_refused(text):
    """Whoever writes one is told what is allowed."""
    with pytest.raises(LocalError, match="allowed: tls://host:port"):
        check_address(text)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(BhumiSettings)])
def test_defaults_pass_their_own_check(field):
    """What we ship is allowed."""
    check(BhumiSettings, field, getattr(BhumiSettings(), field))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("deliver_layout", "upstream"),
        ("ack_timeout_ms", 9),
        ("ack_timeout_ms", True),
        ("response_ttl_ms", 86_400_001),
        ("max_payload_bytes", 1_048_577),
        ("max_payload_bytes", 63),
        ("cache_bind_recipient", 1),
    ],
)
def test_values_outside_are_refused(field, value):
    """A bound that is declared holds."""
    with pytest.raises(LocalError, match="allowed"):
        check(BhumiSettings, field, value)
