"""Laws of server.sinks; tests/server/test_hub.py tries what the hub makes of each report."""

import pytest

from waystation.server.sinks import DialledSink, ListenerSink

REPORTS = ("received", "received_many", "half_closed", "congested", "drained", "lost")


class Notes:
    """A hub that notes how pipes are registered."""

    def __init__(self):
        self.registered = []
        self.hosts = []
        for name in REPORTS:
            setattr(self, name, object())

    def connected(self, *details, has_handshake):
        self.registered.append((*details, has_handshake))

    def admit(self, _protocol, host, *, has_handshake):
        self.hosts.append(host)

    def release(self, host, *, has_handshake):
        self.hosts.append(host)

    def connected_out(self, *details):
        self.registered.append(details)


class Shown:
    """A pipe whose other side has shown a certificate."""

    certificate_sha256 = b"c" * 32


@pytest.mark.parametrize("make", [ListenerSink, DialledSink])
def test_reports_go_to_the_hub_without_a_detour(make):
    """Every byte of every peer passes here: nothing stands between pipe and hub."""
    hub = Notes()
    sink = make(hub, "bhumi", "name")

    assert all(getattr(sink, name) is getattr(hub, name) for name in REPORTS)


def test_accepted_pipe_is_registered_with_its_endpoint():
    """The relay learns which of its endpoints was reached, and admission whether there was a handshake."""
    hub, pipe = Notes(), Shown()
    ListenerSink(hub, "bhumi", "upstream").connected(pipe)
    ListenerSink(hub, "bhumi", has_handshake=False).connected(pipe)

    assert hub.registered == [("bhumi", pipe, "upstream", True), ("bhumi", pipe, "", False)]


def test_connection_through_a_forwarder_counts_under_no_address():
    """What it is admitted, registered and released under is nobody's address."""
    hub, pipe = Notes(), Shown()
    pipe.address = "127.0.0.1"
    sink = ListenerSink(hub, "bhumi", "upstream", is_forwarded=True)
    sink.admit("127.0.0.1")
    sink.release("127.0.0.1")
    sink.connected(pipe)

    assert (hub.hosts, pipe.address) == (["", ""], "")


@pytest.mark.parametrize(("has_certificate", "certificate"), [(False, None), (True, b"c" * 32)])
def test_dialled_pipe_is_registered_under_its_name(has_certificate, certificate):
    """The relay learns the certificate only where its protocol asks for it."""
    hub, pipe = Notes(), Shown()
    DialledSink(hub, "bsp", "them", has_certificate=has_certificate).connected(pipe)

    assert hub.registered == [("bsp", pipe, "them", certificate)]
