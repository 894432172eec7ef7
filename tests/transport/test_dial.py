import asyncio
import datetime
import socket

import pytest

from waystation.core.errors import HostError, LocalError
from waystation.crypto.certificates import make_local_certificates
from waystation.transport.dial import DATAGRAM_SCHEMES, DEFAULT_PORT, DEFAULT_UDP_PORT, RelayUrl, dial, speaks_http
from waystation.transport.listen import Listener
from waystation.transport.tls import client_context, server_context


class Side:
    """One side of a connection that remembers what it was told."""

    def __init__(self):
        self.heard = b""
        self.pipe = None
        self.told = asyncio.Event()

    def connected(self, pipe):
        self.pipe = pipe

    def received(self, _pipe, data):
        self.heard += data
        self.told.set()

    def congested(self, pipe):
        pass

    def drained(self, pipe):
        pass

    def lost(self, _pipe, _error):
        self.told.set()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Certificates for localhost."""
    path = tmp_path_factory.mktemp("tls")
    made = make_local_certificates(["localhost", "127.0.0.1"], datetime.datetime.now(datetime.UTC))
    for name, pem in (("ca", made.ca_pem), ("cert", made.cert_pem), ("key", made.key_pem)):
        (path / name).write_bytes(pem)
    return path


async def conversation(context, url_of, client):
    """Listen, dial, say one thing each way, and return what both sides heard with the client's pipe."""
    server, caller = Side(), Side()
    listener = Listener(server, lambda _: True, lambda _: None, context)
    await listener.open("127.0.0.1", 0)
    try:
        pipe = await dial(url_of(listener.port), caller, client, 5)
        pipe.write([b"ping"])
        await server.told.wait()
        server.pipe.write([b"pong"])
        await caller.told.wait()
        no_delay = pipe._transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        facts = server.heard, caller.heard, pipe.tls_version, bool(no_delay), caller.pipe is pipe
        pipe.close()
    finally:
        listener.close()
    return facts


def test_tcp():
    """A tcp address is dialled without TLS, with TCP_NODELAY, and its pipe is the one the sink was told of."""
    facts = asyncio.run(conversation(None, lambda port: f"tcp://127.0.0.1:{port}", None))

    assert facts == (b"ping", b"pong", "", True, True)


def test_tls(folder):
    """A tls address is dialled with TLS and the authority given."""
    server = server_context(folder / "cert", folder / "key")

    facts = asyncio.run(conversation(server, lambda port: f"tls://127.0.0.1:{port}", client_context(folder / "ca")))

    assert facts == (b"ping", b"pong", "TLSv1.3", True, True)


def test_untrusted_certificate_names_the_flag(folder):
    """A certificate that nobody vouches for is refused, and the sentence says what to do."""
    server = server_context(folder / "cert", folder / "key")

    with pytest.raises(HostError, match=r"not trusted.*--ca"):
        asyncio.run(conversation(server, lambda port: f"tls://127.0.0.1:{port}", client_context()))


def test_wrong_name_is_not_trusted(folder, tmp_path):
    """A certificate for another host is refused although its authority is trusted."""
    made = make_local_certificates(["elsewhere.example"], datetime.datetime.now(datetime.UTC))
    for name, pem in (("ca", made.ca_pem), ("cert", made.cert_pem), ("key", made.key_pem)):
        (tmp_path / name).write_bytes(pem)
    server = server_context(tmp_path / "cert", tmp_path / "key")

    with pytest.raises(HostError, match="not trusted"):
        asyncio.run(conversation(server, lambda port: f"tls://127.0.0.1:{port}", client_context(tmp_path / "ca")))


def test_nobody_listens():
    """A closed port is named in the sentence."""
    with pytest.raises(HostError, match=r"nobody listens on tcp://127\.0\.0\.1:1;"):
        asyncio.run(dial("tcp://127.0.0.1:1", Side(), None, 5))


def test_silence_is_a_timeout():
    """A host that accepts and never completes the TLS handshake is given up in time."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(
            HostError, match=r"within 0\.05 s; does the relay stand still, or is it a plain tcp:// listener\?$"
        ):
            asyncio.run(dial(f"tls://127.0.0.1:{port}", Side(), client_context(), 0.05))


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("tls://relay.example:443", "tls://relay.example:443"),
        ("tcp://127.0.0.1:80/", "tcp://127.0.0.1:80"),
        ("relay.example:443", "tls://relay.example:443"),
        ("relay.example", f"tls://relay.example:{DEFAULT_PORT}"),
        ("tls://[::1]:9", "tls://[::1]:9"),
        ("[2001:db8::1]", f"tls://[2001:db8::1]:{DEFAULT_PORT}"),
        ("TLS://Relay.Example:443", "tls://relay.example:443"),
    ],
)
def test_address(text, full):
    """An address has one full spelling, which reads back as the same address."""
    assert str(RelayUrl.parse(text)) == full
    assert RelayUrl.parse(full) == RelayUrl.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tls://",
        "tls://:443",
        "http://x:1",
        "tls://x:70000",
        "tls://x:a",
        "tls://x/y",
        "tls://x?y",
        "tls://u@x",
        "::1:9",
        "8443",
        "tls://9443",
        "tls://127:1",
    ],
)
def test_anything_else_is_no_address(text):
    """Other schemes, missing hosts, impossible ports and extra parts are refused with a sentence."""
    with pytest.raises(LocalError, match="not a relay address"):
        RelayUrl.parse(text)


class Greeter(Side):
    """A plain relay's side: speaks first."""

    def connected(self, pipe):
        pipe.write([bytes.fromhex("000100000009010102030400010000")])


def test_plain_listener_is_recognised():
    """Dialling a plain port with TLS says what is probably wrong."""

    async def scenario():
        listener = Listener(Greeter(), lambda _: True, lambda _: None, None)
        await listener.open("127.0.0.1", 0)
        try:
            await dial(f"tls://127.0.0.1:{listener.port}", Side(), client_context(), 5)
        finally:
            listener.close()

    with pytest.raises(HostError, match=r"TLS handshake.*plain tcp://"):
        asyncio.run(scenario())


@pytest.mark.parametrize(("answer", "is_web"), [(b"HTTP/1.0 400 Bad", True), (b"SSH-2.0", False), (b"HT", False)])
def test_web_port_is_recognised_by_what_it_answers(answer, is_web):
    """It says nothing before it is asked, and HTTP of any version and status begins the same way."""

    async def talk(reader, writer):
        await reader.readline()
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async def scenario():
        async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
            return await speaks_http(RelayUrl("tcp", "127.0.0.1", server.sockets[0].getsockname()[1]), 20)

    assert asyncio.run(scenario()) is is_web


def test_address_that_is_refused_is_named_as_a_reason():
    """A node closes a banned or full address before TLS; the sentence says that it may be that."""

    async def scenario():
        listener = Listener(Greeter(), lambda _: False, lambda _: None, None)
        await listener.open("127.0.0.1", 0)
        try:
            await dial(f"tls://127.0.0.1:{listener.port}", Side(), client_context(), 5)
        finally:
            listener.close()

    with pytest.raises(HostError, match="refuse this address: not on its list, banned, or too many connections"):
        asyncio.run(scenario())


def test_impossible_host():
    """A name that can be no host is named, without asking anybody."""
    with pytest.raises(HostError, match=r"cannot find the host of tcp://a\.\.b:1"):
        asyncio.run(dial("tcp://a..b:1", Side(), None, 5))


def test_udp_address():
    """Over datagrams the scheme and the port may be left out too, and streams are refused."""
    full = f"udp://relay.example:{DEFAULT_UDP_PORT}"

    assert str(RelayUrl.parse("relay.example", DATAGRAM_SCHEMES)) == full
    assert RelayUrl.parse(full, DATAGRAM_SCHEMES) == RelayUrl("udp", "relay.example", DEFAULT_UDP_PORT)
    with pytest.raises(LocalError, match=r"expected udp://host:port$"):
        RelayUrl.parse("tls://relay.example", DATAGRAM_SCHEMES)
    with pytest.raises(LocalError, match=r"expected tls://host:port or tcp://host:port$"):
        RelayUrl.parse(full)


def test_udp_pipe_stands_at_once():
    """A dialled pipe of datagrams needs nobody on the other side, and its datagrams arrive whole."""

    async def scenario():
        side = Side()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(("127.0.0.1", 0))
            other.settimeout(5)
            pipe = await dial(RelayUrl("udp", *other.getsockname()), side, None, 5)
            pipe.write([b"one", b"two"])
            said = other.recv(100), other.recv(100)
            pipe.abort()
            return pipe.is_established, said

    assert asyncio.run(scenario()) == (True, (b"one", b"two"))


def test_udp_socket_that_takes_long_blames_nobody():
    """Opening a socket asks no other side, so a busy machine is not a host that did not answer."""
    with pytest.raises(HostError, match=r"the socket for udp://127\.0\.0\.1:9 was not open within 0 s"):
        asyncio.run(dial(RelayUrl("udp", "127.0.0.1", 9), Side(), None, 0))


def test_udp_name_of_nobody():
    """A name without an address is the sentence that streams give."""
    with pytest.raises(HostError, match=r"cannot find the host of udp://no-such-host\.invalid:9"):
        asyncio.run(dial(RelayUrl("udp", "no-such-host.invalid", 9), Side(), None, 5))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "10.0.0.1"])
def test_private_place_is_not_dialled_for_a_stranger(host):
    """With only_public a place that is not on the open internet is refused by its address, before anything is sent."""

    async def scenario():
        caller = Side()
        with pytest.raises(HostError, match="is not on the open internet; not dialled"):
            await dial(f"tcp://{host}:1", caller, None, 5, only_public=True)
        return caller.pipe

    assert asyncio.run(scenario()) is None


def test_place_that_was_judged_is_dialled(monkeypatch):
    """The address that was found public is the one that is connected to, whatever a second look-up would say."""
    looked_up = []
    monkeypatch.setattr("waystation.transport.dial.is_public", lambda address: looked_up.append(address) or True)

    async def scenario():
        server, caller = Side(), Side()
        listener = Listener(server, lambda _: True, lambda _: None, None)
        await listener.open("127.0.0.1", 0)
        try:
            pipe = await dial(f"tcp://127.0.0.1:{listener.port}", caller, None, 5, only_public=True)
            pipe.write([b"ping"])
            await server.told.wait()
            pipe.abort()
            server.told.clear()
            await server.told.wait()
        finally:
            listener.close()
        return server.heard

    assert asyncio.run(scenario()) == b"ping"
    assert looked_up == ["127.0.0.1"]
