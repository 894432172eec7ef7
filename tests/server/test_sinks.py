"""Laws of server.sinks; tests/server/test_hub.py tries what the hub makes of each report."""

import pytest

from waystation.server.sinks import DialledSink, ListenerSink

REPORTS = ("received", "received_many", "half_closed", "congested", "drained", "lost")


class Notes:
    """A hub that notes how pipes are registered."""

    def __init__(self):
        self.registered = []
        for name in REPORTS:
            setattr(self, name, object())

    def connected(self, *details, has_handshake):
        self.registered.append((*details, has_handshake))

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


@pytest.mark.parametrize(("has_certificate", "certificate"), [(False, None), (True, b"c" * 32)])
def test_dialled_pipe_is_registered_under_its_name(has_certificate, certificate):
    """The relay learns the certificate only where its protocol asks for it."""
    hub, pipe = Notes(), Shown()
    DialledSink(hub, "bsp", "them", has_certificate=has_certificate).connected(pipe)

    assert hub.registered == [("bsp", pipe, "them", certificate)]
