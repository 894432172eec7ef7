"""Laws of server.bhumi.host: where the Bhumi relay of a node listens, and what the node reports of it."""

import pytest
import structlog

from tests.server.build_hosts import hosts
from waystation.protocols.bhumi.settings import BhumiSettings
from waystation.server.bhumi.host import UPSTREAM_ENDPOINT, warn_of_private_advert


@pytest.mark.parametrize(("upstream", "has_tls"), [("127.0.0.1:0", False), ("0.0.0.0:0", True)])
def test_listeners_are_those_of_the_settings(upstream, has_tls):
    """The port for nodes of the original leads to an endpoint of its own, and is bare only on loopback."""
    host = hosts(bhumi__plain="127.0.0.1:0", bhumi__upstream_listen=upstream)["bhumi"]
    ports = [(port.name, port.tls is not None, port.endpoint) for port in host.pipe_ports()]

    assert ports == [
        ("bhumi", True, ""),
        ("bhumi_plain", False, ""),
        ("bhumi_upstream", has_tls, UPSTREAM_ENDPOINT),
    ]


def test_description_names_what_the_relay_agrees_on():
    """The features of OPTIONS that this relay accepts, as it is set."""
    core = hosts(bhumi__gossip="false", bhumi__qa="false")["bhumi"].describe({})["features"]

    assert hosts()["bhumi"].describe({})["features"] == [
        "preimage",
        "binding",
        "i_am_ok",
        "watch",
        "authority",
        "presence",
        "qa",
    ]
    assert core == ["preimage", "binding", "i_am_ok", "watch", "authority"]


def test_view_tells_of_other_relays():
    """A relay that has just been built knows none."""
    assert hosts()["bhumi"].view()["contacts"] == []


@pytest.mark.parametrize(
    ("advertise", "options", "count"),
    [
        ("tls://127.0.0.1:8443", {}, 1),
        ("tls://relay.lan:8443", {}, 1),
        ("tls://127.0.0.1:8443", {"dials_private": True}, 0),
        ("tls://127.0.0.1:8443", {"gossip": False}, 0),
        ("tls://relay.example:8443", {}, 0),
        ("", {}, 0),
    ],
)
def test_private_advert_is_warned_of(advertise, options, count):
    """Others leave such an address out; the log says so at the start, and names the setting."""
    with structlog.testing.capture_logs() as lines:
        warn_of_private_advert(BhumiSettings(advertise=advertise, **options))

    assert [(line["event"], line["log_level"]) for line in lines] == [("bhumi.advertise_private", "warning")] * count
    assert all("dials_private = true" in line["error"] for line in lines)
