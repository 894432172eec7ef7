"""Laws of transport.first_bytes: the first read of a connection is looked at, and its protocol gets every one."""

import asyncio

from waystation.transport.first_bytes import FirstBytes


class Remembers(asyncio.Protocol):
    """A protocol that notes what the event loop calls."""

    def __init__(self):
        self.called = []

    def connection_made(self, transport):
        self.called.append("made")

    def data_received(self, data):
        self.called.append(data)

    def eof_received(self):
        self.called.append("end")
        return True

    def pause_writing(self):
        self.called.append("pause")

    def resume_writing(self):
        self.called.append("resume")

    def connection_lost(self, exc):
        self.called.append("lost")


class Wire(asyncio.Transport):
    """A transport that knows its protocol alone."""

    def __init__(self, protocol):
        super().__init__()
        self.protocol = protocol
        protocol.connection_made(self)

    def set_protocol(self, protocol):
        self.protocol = protocol


def test_first_read_is_looked_at_and_passed_on():
    """Later ones go to the protocol without a detour."""
    inner, looked = Remembers(), []
    wire = Wire(FirstBytes(inner, looked.append))

    for data in (b"one", b"two"):
        wire.protocol.data_received(data)

    assert looked == [b"one"]
    assert inner.called == ["made", b"one", b"two"]
    assert wire.protocol is inner


def test_protocol_misses_nothing_before_the_first_read():
    """A relay that speaks first, or a peer that says nothing, is served as ever."""
    inner, looked = Remembers(), []
    wire = Wire(FirstBytes(inner, looked.append))

    wire.protocol.pause_writing()
    wire.protocol.resume_writing()
    stays = wire.protocol.eof_received()
    wire.protocol.connection_lost(None)

    assert inner.called == ["made", "pause", "resume", "end", "lost"]
    assert (looked, stays) == ([], True)
