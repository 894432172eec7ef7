"""Laws of transport.udp_pipe, over real sockets; how it is dialled stands in test_dial."""

import asyncio
import contextlib
import socket

import pytest

from tests.transport.build import Sink
from tests.transport.datagrams.build_udp import HAS_IPV6, HOSTS, address_of, drain, full_pair, port, turns
from tests.transport.resolver import free_port, resolving
from waystation.transport.datagrams.pipe import UdpPipe, connect_udp
from waystation.transport.datagrams.send_queue import WAITING_MAX


@contextlib.asynccontextmanager
async def pipe_to(opened):
    """Give a pipe to an open port, and its sink."""
    sink = Sink()
    pipe = await connect_udp(opened.host, opened.port, sink)
    try:
        yield pipe, sink
    finally:
        pipe.abort()
        await sink.until(lambda: "lost" in sink.reports)


@contextlib.asynccontextmanager
async def full_pipe():
    """Give a pipe whose kernel buffer is full, its sink, and the other end."""
    near, far, _ = full_pair()
    sink = Sink()
    pipe = UdpPipe(sink, "here", near)
    pipe.establish()
    with contextlib.closing(far):
        try:
            yield pipe, sink, far
        finally:
            pipe.abort()
            await sink.until(lambda: "lost" in sink.reports)


@pytest.mark.parametrize("host", HOSTS)
def test_each_chunk_is_one_datagram_and_each_report_too(host):
    """Nothing is joined or cut on the way, not even the empty one."""

    async def story():
        async with port(host) as (opened, heard), pipe_to(opened) as (pipe, sink):
            pipe.write([b"a", b"", b"c" * 508])
            said = await heard.until(3)
            opened.send([(b"one", heard.datagrams[0][1]), (b"two", heard.datagrams[0][1])])
            await sink.until(lambda: len(sink.heard) == 2)
            return said, sink.heard, sink.reports[0], pipe.address

    assert asyncio.run(story()) == ([b"a", b"", b"c" * 508], [b"one", b"two"], "connected", host)


def test_strangers_are_not_heard():
    """Only the address that was dialled reaches the sink; the kernel drops the others."""

    async def story():
        async with port() as (opened, heard), port() as (stranger, _), pipe_to(opened) as (pipe, sink):
            pipe.write([b"hello"])
            await heard.until(1)
            sender = heard.datagrams[0][1]
            stranger.send([(b"stranger", sender)])
            opened.send([(b"host", sender)])
            await sink.until(lambda: sink.heard)
            return sink.heard

    assert asyncio.run(story()) == [b"host"]


def test_nobody_there_is_no_end():
    """ICMP refusals are counted and nothing else happens; whoever listens later is heard."""

    async def story():
        async with port() as (opened, _):
            address = address_of(opened)
            opened.close()
            sink = Sink()
            pipe = await connect_udp(*address, sink)
            for _ in range(5):
                pipe.write([b"anybody?"])
                await turns(lambda before=pipe.complaints: pipe.complaints + pipe.dropped > before)
            complaints = pipe.complaints + pipe.dropped
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as late:
                late.bind(address)
                late.settimeout(5)
                pipe.write([b"first may meet an old complaint"])
                pipe.write([b"still here"])
                _, sender = late.recvfrom(100)
                late.sendto(b"welcome", sender)
                await sink.until(lambda: sink.heard)
            pipe.abort()
            await sink.until(lambda: "lost" in sink.reports)
            return complaints, sink.heard, sink.reports

    complaints, heard, reports = asyncio.run(story())

    assert complaints >= 5
    assert heard == [b"welcome"]
    assert reports == ["connected", "received", "lost"]


def test_full_kernel_is_told_once_and_drained_once():
    """``congested`` when the first datagram has to wait, ``drained`` when the last has left, in order."""

    async def story():
        async with full_pipe() as (pipe, sink, far):
            pipe.write([b"a", b"bc"])
            pipe.write([b"d"])
            waited = pipe.unsent_bytes, pipe.untaken_bytes, pipe.waits
            drain(far)
            await sink.until(lambda: "drained" in sink.reports)
            return waited, drain(far), list(sink.reports), pipe.waits, pipe.unsent_bytes

    assert asyncio.run(story()) == (
        (4, 4, True),
        [b"a", b"bc", b"d"],
        ["connected", "congested", "drained"],
        False,
        0,
    )


def test_queue_is_bounded():
    """What neither kernel nor queue has room for is dropped and counted."""

    async def story():
        async with full_pipe() as (pipe, _, _far):
            pipe.write([b"x"] * (WAITING_MAX + 3))
            return pipe.unsent_bytes, pipe.dropped

    assert asyncio.run(story()) == (WAITING_MAX, 3)


def test_close_lets_what_waits_leave():
    """The end comes after the last datagram, nothing more is written, and the sink hears of it once."""

    async def story():
        async with full_pipe() as (pipe, sink, far):
            pipe.write([b"last"])
            pipe.close()
            pipe.close()
            pipe.write([b"too late"])
            drain(far)
            await sink.until(lambda: "lost" in sink.reports)
            return drain(far), sink.reports

    assert asyncio.run(story()) == ([b"last"], ["connected", "congested", "lost"])


def test_abort_drops_what_waits():
    """The end is told in a later turn, once; a dead pipe swallows what is written and asked."""

    async def story():
        async with full_pipe() as (pipe, sink, far):
            pipe.write([b"never"])
            pipe.abort()
            at_once = list(sink.reports)
            await sink.until(lambda: "lost" in sink.reports)
            for ask in (pipe.abort, pipe.close, pipe.pause, pipe.resume, lambda: pipe.write([b"x"])):
                ask()
            drain(far)
            await asyncio.sleep(0)
            return at_once, sink.reports, drain(far), pipe.dropped

    assert asyncio.run(story()) == (["connected", "congested"], ["connected", "congested", "lost"], [], 1)


def test_closed_pipe_tells_nothing_more():
    """A sink that closes on the first datagram is not given those behind it."""

    class Closer(Sink):
        def received(self, pipe, data):
            super().received(pipe, data)
            pipe.close()

    async def story():
        async with port() as (opened, heard):
            sink = Closer()
            pipe = await connect_udp(opened.host, opened.port, sink)
            pipe.write([b"hello"])
            await heard.until(1)
            opened.send([(b"%d" % number, heard.datagrams[0][1]) for number in range(10)])
            await sink.until(lambda: "lost" in sink.reports)
            return sink.heard

    assert asyncio.run(story()) == [b"0"]


def test_paused_pipe_reads_nothing_until_it_resumes():
    """Meanwhile the kernel keeps what it has room for."""

    async def story():
        async with port() as (opened, heard), pipe_to(opened) as (pipe, sink):
            pipe.write([b"hello"])
            await heard.until(1)
            pipe.pause()
            opened.send([(b"kept", heard.datagrams[0][1])])
            for _ in range(5):
                await asyncio.sleep(0)
            before = list(sink.heard)
            pipe.resume()
            await sink.until(lambda: sink.heard)
            return before, sink.heard

    assert asyncio.run(story()) == ([], [b"kept"])


def test_name_of_nobody_raises():
    """A name without an address, and an address without a route, are the caller's to explain."""
    with pytest.raises(socket.gaierror):
        asyncio.run(connect_udp("no-such-host.invalid", 9, Sink()))
    with pytest.raises(PermissionError):
        asyncio.run(connect_udp("255.255.255.255", 9, Sink()))


def test_name_with_both_families_is_reached_by_ipv4():
    """The name "localhost" reaches a node that listens on IPv4 alone, as nodes do by default."""

    async def story():
        async with port("127.0.0.1") as (opened, heard):
            sink = Sink()
            pipe = await connect_udp("localhost", opened.port, sink)
            pipe.write([b"found"])
            said = await heard.until(1)
            pipe.abort()
            await sink.until(lambda: "lost" in sink.reports)
            return said

    assert asyncio.run(story()) == [b"found"]


async def ask(pipe, data):
    """Send something, and let the pipe read what the network says of it before more is sent."""
    pipe.write([data])
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.parametrize("listening", HOSTS)
def test_name_with_both_families_is_reached_on_either(listening):
    """LPRP-FAMILY: where one family refuses, later datagrams go to the other; once heard, a refusal moves nothing."""

    async def story():
        async with port(listening) as (opened, heard):
            sink = Sink()
            with resolving():
                pipe = await connect_udp("localhost", opened.port, sink)
            while not heard.datagrams:
                await ask(pipe, b"found")
            opened.send([(b"answer", heard.datagrams[0][1])])
            await sink.until(lambda: sink.heard)
            opened.close()
            before = pipe.complaints
            while pipe.complaints < before + 2:
                await ask(pipe, b"later")
            stays = pipe._carrier.getpeername()[0]
            pipe.abort()
            await sink.until(lambda: "lost" in sink.reports)
            return heard.datagrams[0][0], stays

    assert asyncio.run(story()) == (b"found", listening)


def test_refusals_of_every_address_go_in_turn():
    """LPRP-FAMILY: with nobody on either family the pipe stays open, and tries both again and again."""

    async def story():
        sink, seen = Sink(), []
        with resolving():
            pipe = await connect_udp("localhost", free_port(), sink)
        while len(seen) < 4:
            if not seen or pipe._carrier.getpeername()[0] != seen[-1]:
                seen.append(pipe._carrier.getpeername()[0])
            await ask(pipe, b"anybody?")
        pipe.abort()
        await sink.until(lambda: "lost" in sink.reports)
        return seen

    if HAS_IPV6:
        assert asyncio.run(story()) == ["127.0.0.1", "::1"] * 2
