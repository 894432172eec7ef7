"""Laws of transport.listen behind proxies: a connection counts as its client's, and nobody else names a client."""

import asyncio
import socket
import struct

import pytest

from tests.server.build import eventually
from tests.transport.test_listen import Door, client_hello, folder
from waystation.core.network_set import parse_network
from waystation.transport import listen
from waystation.transport.listen import BehindProxies, Listener
from waystation.transport.proxies import Proxies, ProxyFault
from waystation.transport.tls import client_context, server_context

__all__ = ["folder"]  # a fixture

TEXT = b"PROXY TCP4 203.0.113.7 192.0.2.1 4711 443\r\n"
V4_PAIR = bytes([203, 0, 113, 8, 192, 0, 2, 1])
BINARY = b"\r\n\r\n\x00\r\nQUIT\n" + struct.pack(">BBH", 0x21, 0x11, 12) + V4_PAIR + bytes(4)
LOCAL = b"\r\n\r\n\x00\r\nQUIT\n" + struct.pack(">BBH", 0x20, 0, 0)
DIRECT = "127.0.0.2"  # also this machine, and no trusted proxy


class ProxiedDoor(Door):
    """A listener where connections from 127.0.0.1 begin with a PROXY header."""

    def __init__(self):
        super().__init__()
        self.refused = []

    def report(self, host, fault):
        self.refused.append((host, fault))
        self._changed.set()

    async def open(self, context=None, *, has_header=True):
        trusted = Proxies([parse_network("127.0.0.1")])
        proxies = BehindProxies(lambda: trusted, lambda: has_header, report=self.report)
        listener = Listener(self, self.admit, self.release, context, proxies=proxies)
        await listener.open("0.0.0.0", 0)
        return listener


async def connected(port, source="127.0.0.1"):
    """Return the streams of a connection from an address of this machine."""
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))


async def read_all(reader):
    """Return what comes until the other side ends the connection, be it by a reset."""
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""


@pytest.mark.parametrize(("header", "client"), [(TEXT, "203.0.113.7"), (BINARY, "203.0.113.8"), (LOCAL, "127.0.0.1")])
@pytest.mark.parametrize("cut", [0, 1, 12, 15])
def test_connection_counts_as_the_client_that_its_proxy_names(header, client, cut):
    """In any chunks; what follows the header is the client's, to the byte."""

    async def story():
        door = ProxiedDoor()
        listener = await door.open()
        reader, writer = await connected(listener.port)
        writer.write(header[:cut])
        await asyncio.sleep(0)
        writer.write(header[cut:] + b"ping")
        async with asyncio.timeout(20):
            echoed = await reader.readexactly(4)
        addresses = [pipe.address for pipe in door.pipes]
        writer.close()
        await door.until(lambda: door.lost_count)
        listener.close()
        return echoed, door.asked, addresses, door.refused

    assert asyncio.run(story()) == (b"ping", [client], [client], [])


def test_tls_begins_behind_the_header(folder):
    """A proxy that passes TLS on names the client before the handshake, which is the client's own."""

    async def story():
        door = ProxiedDoor()
        listener = await door.open(server_context(folder / "cert", folder / "key"))
        with socket.create_connection(("127.0.0.1", listener.port)) as raw:
            raw.sendall(BINARY)
            context = client_context(folder / "ca")
            line = await asyncio.to_thread(context.wrap_socket, raw, server_hostname="localhost")
            await door.until(lambda: door.pipes)
            line.close()
        await door.until(lambda: door.lost_count)
        listener.close()
        return door.asked, door.pipes[0].address

    assert asyncio.run(story()) == (["203.0.113.8"], "203.0.113.8")


@pytest.mark.parametrize("first", [b"ping over plain TCP", b"PROXY TCP4 1.2.3.4\r\n", b""])
def test_proxy_without_a_header_is_refused(first):
    """A client behind a proxy that passes bare TCP on cannot name itself: its proxy has to."""

    async def story():
        door = ProxiedDoor()
        listener = await door.open()
        reader, writer = await connected(listener.port)
        writer.write(first)
        if not first:
            writer.write_eof()
        rest = await read_all(reader)
        writer.close()
        await door.until(lambda: door.refused)
        listener.close()
        return rest, door.asked, door.pipes, door.refused

    assert asyncio.run(story()) == (b"", [], [], [("127.0.0.1", ProxyFault.NO_HEADER)])


def test_client_that_is_no_proxy_cannot_name_an_address():
    """Its header is bytes like any other, and it counts as the address that it has."""

    async def story():
        door = ProxiedDoor()
        listener = await door.open()
        reader, writer = await connected(listener.port, DIRECT)
        writer.write(TEXT)
        async with asyncio.timeout(20):
            echoed = await reader.readexactly(len(TEXT))
        writer.close()
        await door.until(lambda: door.lost_count)
        listener.close()
        return echoed, door.asked

    assert asyncio.run(story()) == (TEXT, [DIRECT])


def test_header_that_does_not_come_is_given_up(monkeypatch, folder):
    """It has as long as a handshake, and the one after it has its own time."""
    monkeypatch.setattr(listen, "HANDSHAKE_TIMEOUT_S", 0.2)

    async def story():
        door = ProxiedDoor()
        listener = await door.open(server_context(folder / "cert", folder / "key"))
        reader, writer = await connected(listener.port)
        writer.write(TEXT[:20])
        rest = await read_all(reader)
        writer.close()
        named_reader, named = await connected(listener.port)
        named.write(TEXT + client_hello(folder)[:20])
        silence = await read_all(named_reader)
        named.close()
        await door.until(lambda: door.released)
        listener.close()
        return rest, silence, door.refused, door.asked, door.released

    assert asyncio.run(story()) == (b"", b"", [("127.0.0.1", ProxyFault.NO_HEADER)], ["203.0.113.7"], ["203.0.113.7"])


def test_connections_without_a_client_are_bounded(monkeypatch):
    """Beyond the bound a connection is closed at once; those that are named make room."""
    monkeypatch.setattr(listen, "UNNAMED_MAX", 2)

    async def story():
        door = ProxiedDoor()
        listener = await door.open()
        waiting = [await connected(listener.port) for _ in range(2)]
        reader, writer = await connected(listener.port)
        async with asyncio.timeout(20):
            refused = await reader.read()
        writer.close()
        waiting[0][1].write(TEXT)
        await door.until(lambda: door.pipes)
        later_reader, later = await connected(listener.port)
        later.write(TEXT + b"x")
        async with asyncio.timeout(20):
            echoed = await later_reader.readexactly(1)
        for _, each in (*waiting, (later_reader, later)):
            each.close()
        await door.until(lambda: door.lost_count == 2)
        listener.close()
        return refused, echoed, len(door.asked)

    assert asyncio.run(story()) == (b"", b"x", 2)


def test_closed_listener_drops_headers_under_way():
    """``close`` ends connections whose header has not come."""

    async def story():
        door = ProxiedDoor()
        listener = await door.open()
        reader, writer = await connected(listener.port)
        await eventually(lambda: listener._unnamed)
        listener.close()
        async with asyncio.timeout(20):
            rest = await reader.read()
        writer.close()
        return rest, door.asked

    assert asyncio.run(story()) == (b"", [])


@pytest.mark.parametrize("header", [TEXT, BINARY])
def test_header_that_is_not_read_is_reported_on_a_bare_port(header):
    """The bytes go on to the protocol, which refuses them; later bytes are looked at by nobody."""

    async def story():
        door = ProxiedDoor()
        listener = await door.open(has_header=False)
        reader, writer = await connected(listener.port)
        for sent in (header, header):
            writer.write(sent)
            async with asyncio.timeout(20):
                assert await reader.readexactly(len(sent)) == sent
        writer.close()
        await door.until(lambda: door.lost_count)
        listener.close()
        return door.refused

    assert asyncio.run(story()) == [("127.0.0.1", ProxyFault.HEADER_NOT_READ)]


@pytest.mark.parametrize("header", [TEXT, BINARY])
def test_header_that_is_not_read_is_reported_on_a_tls_port(folder, header):
    """From the second connection on: only after a failed handshake are the first bytes of a host looked at."""

    async def story():
        door = ProxiedDoor()
        listener = await door.open(server_context(folder / "cert", folder / "key"), has_header=False)
        for _ in range(3):
            reader, writer = await connected(listener.port)
            writer.write(header + client_hello(folder))
            await read_all(reader)
            writer.close()
            await door.until(lambda: len(door.released) == len(door.asked))
        listener.close()
        return door.refused

    assert asyncio.run(story()) == [("127.0.0.1", ProxyFault.HEADER_NOT_READ)] * 2


def test_host_whose_handshake_failed_is_served_as_before(folder):
    """The look at its first bytes leaves them there, and ends with a connection that has no header."""

    async def story():
        door = ProxiedDoor()
        listener = await door.open(server_context(folder / "cert", folder / "key"), has_header=False)
        reader, writer = await connected(listener.port)
        writer.write(b"no TLS at all, and long enough to be a record of it")
        await read_all(reader)
        writer.close()
        await door.until(lambda: door.released)
        suspects = [*listener._suspects]
        context = client_context(folder / "ca")
        line = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context, server_hostname="localhost")
        line[1].close()
        await door.until(lambda: door.lost_count)
        listener.close()
        return suspects, [*listener._suspects], door.refused

    assert asyncio.run(story()) == (["127.0.0.1"], [], [])
