"""Laws of transport.listen: admission before everything, one sentence for a port that cannot be had."""

import asyncio
import datetime
import errno
import resource
import socket
import ssl

import pytest
import uvloop

from tests.transport.datagrams.build_udp import HAS_IPV6
from waystation.core.errors import HostError
from waystation.crypto.certificates import make_local_certificates
from waystation.transport import listen
from waystation.transport.listen import Listener
from waystation.transport.tls import client_context, server_context


class Door:
    """Sink and admission of one listener, remembering what it was asked and told."""

    def __init__(self, *, admits=True):
        self.admits = admits
        self.asked = []
        self.released = []
        self.pipes = []
        self.lost_count = 0
        self.heard = b""
        self._changed = asyncio.Event()

    def admit(self, host):
        self.asked.append(host)
        self._changed.set()
        return self.admits

    def release(self, host):
        self.released.append(host)
        self._changed.set()

    def connected(self, pipe):
        self.pipes.append(pipe)
        self._changed.set()

    def received(self, pipe, data):
        self.heard += data
        pipe.write([data])
        self._changed.set()

    def congested(self, pipe):
        pass

    def drained(self, pipe):
        pass

    def lost(self, pipe, error):
        self.lost_count += 1
        self._changed.set()

    async def until(self, holds):
        """Wait until something makes ``holds`` true."""
        async with asyncio.timeout(20):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def open(self, context=None):
        """Return a listener on a free port."""
        listener = Listener(self, self.admit, self.release, context)
        await listener.open("127.0.0.1", 0)
        return listener


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Certificates for localhost."""
    path = tmp_path_factory.mktemp("tls")
    made = make_local_certificates(["localhost", "127.0.0.1"], datetime.datetime.now(datetime.UTC))
    for name, pem in (("ca", made.ca_pem), ("cert", made.cert_pem), ("key", made.key_pem)):
        (path / name).write_bytes(pem)
    return path


async def end_of(port, first=b""):
    """Connect, say ``first`` and return everything the other side says until it ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(20):
            writer.write(first)
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def client_hello(folder):
    """Return the first flight of a TLS client."""
    outgoing = ssl.MemoryBIO()
    client = client_context(folder / "ca").wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("host", ["*", "0.0.0.0", "::"])
def test_listener_takes_the_families_that_were_asked(host):
    """NODE-DUAL: "*" is both families, an address its own; a peer over IPv4 has its IPv4 address everywhere."""

    async def story():
        door = Door()
        listener = Listener(door, door.admit, door.release, None)
        await listener.open(host, 0)
        reached = {}
        for asked in ("127.0.0.1", "::1"):
            try:
                _, writer = await asyncio.open_connection(asked, listener.port)
            except OSError:
                reached[asked] = False
            else:
                reached[asked] = True
                await door.until(lambda: len(door.pipes) == sum(reached.values()))
                writer.close()
        listener.close()
        assert door.asked == [pipe.address for pipe in door.pipes] == [asked for asked in reached if reached[asked]]
        return listener.host, reached

    if not HAS_IPV6:
        return
    shown = "::" if host == "::" else "0.0.0.0"
    assert asyncio.run(story()) == (shown, {"127.0.0.1": host != "::", "::1": host != "0.0.0.0"})


def test_port_of_every_address_is_nobody_elses():
    """NODE-DUAL: a second listener on one family of a port that has both is refused with a sentence."""

    async def story():
        listener = Listener(Door(), lambda _host: True, lambda _host: None, None)
        await listener.open("*", 0)
        try:
            await Listener(Door(), lambda _host: True, lambda _host: None, None).open("0.0.0.0", listener.port)
        finally:
            listener.close()

    with pytest.raises(HostError, match="the port is taken"):
        asyncio.run(story())


def test_refused_address_never_gets_a_server_hello(folder):
    """Who is not admitted is closed without one byte, although it began a handshake; nothing is released for it."""

    async def story():
        door = Door(admits=False)
        listener = await door.open(server_context(folder / "cert", folder / "key"))
        said = await end_of(listener.port, client_hello(folder))
        listener.close()
        return said, door.asked, door.released, door.pipes

    assert asyncio.run(story()) == (b"", ["127.0.0.1"], [], [])


def test_admitted_address_gets_one(folder):
    """The same first flight is answered with a handshake record when the address is admitted."""

    async def story():
        door = Door()
        listener = await door.open(server_context(folder / "cert", folder / "key"))
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(client_hello(folder))
        async with asyncio.timeout(20):
            first = await reader.readexactly(3)
        writer.close()
        await door.until(lambda: door.released)
        listener.close()
        return first[:2], door.released

    assert asyncio.run(story()) == (b"\x16\x03", ["127.0.0.1"])


def test_garbage_instead_of_a_handshake_is_released(folder):
    """Bytes that are no TLS end the connection, and what admission counted is given back once."""

    async def story():
        door = Door()
        listener = await door.open(server_context(folder / "cert", folder / "key"))
        await end_of(listener.port, b"GET / HTTP/1.1\r\n\r\n")
        await door.until(lambda: door.released)
        listener.close()
        return door.released, door.pipes, door.lost_count

    assert asyncio.run(story()) == (["127.0.0.1"], [], 0)


def test_silent_handshake_is_given_up(folder, monkeypatch):
    """Who connects and says nothing is closed when the time for the handshake is over, and released."""
    monkeypatch.setattr(listen, "HANDSHAKE_TIMEOUT_S", 0.1)

    async def story():
        door = Door()
        listener = await door.open(server_context(folder / "cert", folder / "key"))
        said = await end_of(listener.port)
        await door.until(lambda: door.released)
        listener.close()
        return said, door.released, door.pipes

    assert asyncio.run(story()) == (b"", ["127.0.0.1"], [])


def test_plain_peer_stands_and_is_heard():
    """A plain connection is admitted, connected and heard, and its end is told once."""

    async def story():
        door = Door()
        listener = await door.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"ping")
        async with asyncio.timeout(20):
            echoed = await reader.readexactly(4)
        no_delay = door.pipes[0]._transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        await door.until(lambda: door.lost_count)
        listener.close()
        return echoed, bool(no_delay), door.asked, door.released, door.lost_count

    assert asyncio.run(story()) == (b"ping", True, ["127.0.0.1"], [], 1)


def test_closed_listener_leaves_standing_pipes_alone():
    """``close`` stops newcomers; who stands goes on talking."""

    async def story():
        door = Door()
        listener = await door.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        await door.until(lambda: door.pipes)
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"still")
        async with asyncio.timeout(20):
            echoed = await reader.readexactly(5)
        writer.close()
        await door.until(lambda: door.lost_count)
        return echoed

    assert asyncio.run(story()) == b"still"


def test_oldest_handshakes_of_a_key_are_closed_one_after_the_other(folder):
    """Two that give way in one turn are two connections, and those of another key stay (NODE-HANDSHAKES)."""

    async def story():
        door = Door()
        context = server_context(folder / "cert", folder / "key")
        listener = Listener(door, door.admit, door.release, context, key_of=lambda host: host.rpartition(".")[0])
        await listener.open("127.0.0.1", 0)
        silent = [
            await asyncio.open_connection("127.0.0.1", listener.port, local_addr=(source, 0))
            for source in ("127.0.1.1", "127.0.2.1", "127.0.1.2", "127.0.1.3")
        ]
        await door.until(lambda: len(door.asked) == 4)
        closed = [listener.close_oldest(key) for key in ("127.0.1", "127.0.1", "127.0.3")]
        async with asyncio.timeout(20):
            ends = [await silent[number][0].read() for number in (0, 2)]
        released = list(door.released)
        listener.close()
        for _, writer in silent:
            writer.close()
        await door.until(lambda: len(door.released) == 4)
        return closed, ends, released, listener._under_way

    assert asyncio.run(story()) == ([True, True, False], [b"", b""], ["127.0.1.1", "127.0.1.2"], {})


def test_handshakes_beyond_what_is_served_at_once_wait_in_the_queue(folder, monkeypatch):
    """NODE-HERD: a further one is admitted when another is over or has taken its time, and not asked for before."""
    monkeypatch.setattr(listen, "_YOUNG_MAX", 3)

    async def story(young_s, frees):
        monkeypatch.setattr(listen, "_YOUNG_S", young_s)
        door = Door()
        listener = await door.open(server_context(folder / "cert", folder / "key"))
        silent = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(4)]
        await door.until(lambda: len(door.asked) == 3)
        if frees:
            silent[0][1].close()
        await door.until(lambda: len(door.asked) == 4)
        listener.close()
        for _, writer in silent:
            writer.close()
        await door.until(lambda: len(door.released) == 4)
        return len(door.asked)

    assert asyncio.run(story(60.0, frees=True)) == 4
    assert asyncio.run(story(0.05, frees=False)) == 4


def test_close_drops_handshakes_under_way(folder):
    """A handshake that is not finished when the listener closes ends, and is released."""

    async def story():
        door = Door()
        listener = await door.open(server_context(folder / "cert", folder / "key"))
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        await door.until(lambda: door.asked)
        listener.close()
        await door.until(lambda: door.released)
        async with asyncio.timeout(20):
            said = await reader.read()
        writer.close()
        return said, door.released

    assert asyncio.run(story()) == (b"", ["127.0.0.1"])


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("turns", range(3))
def test_close_in_the_turn_of_arrival_counts_once(turns, loop_factory):
    """However early ``close`` comes, an admitted connection is either released or connected and lost, never both."""

    async def story():
        door = Door()
        listener = await door.open()
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        while not door.asked:  # noqa: ASYNC110 - an event would come a turn too late
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        listener.close()
        writer.close()
        await door.until(lambda: door.released or door.lost_count)
        await writer.wait_closed()
        return len(door.released) + door.lost_count, len(door.pipes) - door.lost_count

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(story()) == (1, 0)


def test_taken_port_is_one_sentence_and_exit_code_4():
    """A port that somebody has is a HostError that names it."""

    async def story():
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            listener = Listener(Door(), lambda _: True, lambda _: None, None)
            with pytest.raises(HostError) as caught:
                await listener.open("127.0.0.1", port)
            return str(caught.value), caught.value.exit_code, port

    sentence, code, port = asyncio.run(story())

    assert sentence == f"cannot listen on 127.0.0.1:{port}: the port is taken; is another program listening there?"
    assert code == 4


def test_foreign_address_is_refused_with_exit_code_4():
    """An address that is not this machine's cannot be bound."""
    with pytest.raises(HostError, match=r"cannot listen on 192\.0\.2\.1:0: ") as caught:
        asyncio.run(Listener(None, lambda _: True, lambda _: None, None).open("192.0.2.1", 0))

    assert caught.value.exit_code == 4


def test_no_descriptors_left_is_survived(monkeypatch):
    """When the process may open no more files the listener rests, and takes the waiting peer when it may again."""
    monkeypatch.setattr(listen, "_RETRY_ACCEPT_S", 0.05)

    async def story():
        door = Door()
        listener = await door.open()
        loop = asyncio.get_running_loop()
        resting = asyncio.Event()
        rest = listener._rest
        monkeypatch.setattr(listener, "_rest", lambda *about: (rest(*about), resting.set()))
        reported = []
        loop.set_exception_handler(lambda _, context: reported.append(context))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket() as peer:
            peer.setblocking(False)
            resource.setrlimit(resource.RLIMIT_NOFILE, (peer.fileno() + 1, hard))
            try:
                await loop.sock_connect(peer, ("127.0.0.1", listener.port))
                async with asyncio.timeout(20):
                    await resting.wait()
                before = len(door.pipes)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            await door.until(lambda: door.pipes)
            door.pipes[0].abort()
        listener.close()
        return before, [(context["message"], context["exception"].errno) for context in reported]

    assert asyncio.run(story()) == (0, [("new connections wait", errno.EMFILE)])


def test_handshake_without_memory_costs_its_connection(monkeypatch):
    """It is closed and released, and reported to the loop once, not as a task that nobody awaited."""

    async def fail(*_, **__):
        raise MemoryError

    async def story():
        monkeypatch.setattr(listen.aiofastnet, "connect_accepted_socket", fail)
        door, reported = Door(), []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        listener = await door.open()
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        await door.until(lambda: door.released)
        writer.close()
        listener.close()
        return [type(context["exception"]) for context in reported], door.released

    assert asyncio.run(story()) == ([MemoryError], ["127.0.0.1"])
