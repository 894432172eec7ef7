"""Laws of transport.websocket about time: pings, silence, and ends that never come."""

import asyncio
import contextlib

import pytest
from websockets.exceptions import ConnectionClosed

from tests.transport.build import PATIENCE_S, certificates, connect, frame, run
from waystation.transport.tls import client_context, server_context
from waystation.transport.websocket_pipe import WebSocketPipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Certificates for localhost."""
    return certificates(tmp_path_factory.mktemp("tls"))


def test_silent_client_is_pinged_and_cut():
    """Who says nothing is asked once, and gone when nothing comes; the sink is told."""

    async def story(site):
        reader, writer, _ = await site.upgrade()
        async with asyncio.timeout(PATIENCE_S):
            try:
                said = await reader.read(100)
                rest = await reader.read()
            except ConnectionError:
                rest = b""
        writer.close()
        await site.quiet.until(lambda: "lost" in site.quiet.reports)
        return said, rest

    assert run(story, ping_after_s=0.05, pong_within_s=0.05) == (b"\x89\x00", b"")


def test_client_that_answers_pings_stays(monkeypatch):
    """Who answers is asked again and again, and never cut; the foreign client answers by itself."""
    pings = []
    ping = WebSocketPipe.ping

    async def story(site):
        def noted(pipe):
            pings.append(1)
            ping(pipe)
            site.quiet.note("pinged")

        monkeypatch.setattr(WebSocketPipe, "ping", noted)
        async with connect(site, "/quiet") as client:
            await site.quiet.until(lambda: len(pings) == 4)
            await client.send("still here")
            await site.quiet.until(lambda: site.quiet.heard)
            return "lost" in site.quiet.reports

    assert not run(story, ping_after_s=0.02, pong_within_s=0.2)


def test_client_that_only_reads_slowly_stays():
    """Who takes what waits for it is alive, although its pong stands behind all of it; who stops taking is not."""

    async def story(site):
        reader, writer, _ = await site.upgrade()
        pipe, dead, later = site.quiet.pipe, [], asyncio.get_running_loop().time()
        pipe.write([bytes(4_000_000)])
        site.site._is_dead(pipe, later)
        for _ in range(5):
            async with asyncio.timeout(PATIENCE_S):
                await reader.readexactly(400_000)
            later += 25
            dead.append(site.site._is_dead(pipe, later))
        writer.transport.pause_reading()
        dead += [site.site._is_dead(pipe, later + silence) for silence in (10, 31, 62)]
        writer.close()
        return dead

    dead = run(story, send_buffer_bytes=4_096)

    assert dead[:6] == [False] * 6
    assert dead[-1]


def test_held_pipe_is_not_taken_for_dead():
    """While we do not read, silence proves nothing."""

    async def story(site):
        _, writer, _ = await site.upgrade()
        site.quiet.pipe.pause()
        now = asyncio.get_running_loop().time()
        dead = [site.site._is_dead(site.quiet.pipe, now + later) for later in (0, 100, 200, 300)]
        site.quiet.pipe.resume()
        dead += [site.site._is_dead(site.quiet.pipe, now + later) for later in (400, 431)]
        writer.close()
        return dead

    assert run(story) == [False, False, False, False, False, True]


def test_timer_runs_only_while_somebody_is_there():
    """An empty site has no timer; one serves all of its pipes."""

    async def story(site):
        before = site.site._timer
        async with connect(site), connect(site, "/quiet"):
            await site.quiet.until(lambda: site.quiet.pipes)
            handles = [each for each in asyncio.get_running_loop()._scheduled if each._callback == site.site._look]
        await site.sink.until(lambda: "lost" in site.sink.reports)
        await site.quiet.until(lambda: "lost" in site.quiet.reports)
        return before, len(handles), site.site._timer

    assert run(story, asyncio.SelectorEventLoop) == (None, 1, None)


def test_who_never_answers_a_close_is_cut():
    """A client that ignores our Close frame is gone when its time is over, although it goes on talking."""

    async def story(site):
        reader, writer, _ = await site.upgrade()
        site.quiet.pipe.close()
        async with asyncio.timeout(PATIENCE_S):
            await reader.readexactly(4)
            with contextlib.suppress(ConnectionError):
                while not reader.at_eof() and "lost" not in site.quiet.reports:
                    writer.write(frame(0x81, b"and another thing"))
                    await asyncio.sleep(0)
        writer.close()
        await site.quiet.until(lambda: "lost" in site.quiet.reports)
        return site.quiet.reports

    assert run(story, close_within_s=0.05) == ["connected", "lost"]


def test_pings_of_who_does_not_read_are_not_answered():
    """Pongs do not pile up in memory: while bytes wait, pings are let go."""

    async def story(site):
        _, writer, _ = await site.upgrade()
        writer.transport.pause_reading()
        pipe = site.quiet.pipe
        while not pipe.waits:
            pipe.write([bytes(100_000)])
        before = pipe.unsent_bytes
        writer.write(frame(0x89, b"p" * 125) * 1_000 + frame(0x81, b"done"))
        await site.quiet.until(lambda: site.quiet.heard)
        after = pipe.unsent_bytes
        writer.close()
        return after <= before

    assert run(story, send_buffer_bytes=4_096)


def test_ping_is_answered():
    """A ping comes back as a pong with its payload."""

    async def story(site):
        async with connect(site) as client:
            async with asyncio.timeout(PATIENCE_S):
                await (await client.ping(b"there?"))
            return site.sink.heard

    assert run(story) == []


@pytest.mark.parametrize("over_tls", [False, True])
def test_large_message_leaves_no_large_buffer(folder, over_tls):
    """Behind a large message the read buffer is small again; what follows is heard, answered and closed."""
    options = {"context": server_context(folder / "cert", folder / "key")} if over_tls else {}

    async def story(site):
        async with connect(site, ssl=client_context(folder / "ca") if over_tls else None) as client:
            rooms = []
            for _ in range(3):
                await client.send("x" * 1_000_000)
                await client.send("small")
                assert [len(await client.recv()), await client.recv()] == [1_000_000, "small"]
                await (await client.ping())
                protocol = site.sink.pipe._transport.get_protocol()
                rooms.append(len(protocol.get_buffer(-1)))
            await client.send(["frag", "ments"])
            last = await client.recv()
            site.sink.pipe.close(4_000)
            with contextlib.suppress(ConnectionClosed):
                await client.recv()
            await site.sink.until(lambda: "lost" in site.sink.reports)
            return max(rooms), last, client.close_code, site.sink.reports.count("connected"), site.site._pipes

    room, *rest = run(story, **options)

    assert room < 65_536
    assert rest == ["fragments", 4_000, 1, {}]
