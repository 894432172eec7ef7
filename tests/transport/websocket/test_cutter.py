"""Laws of transport.websocket_cutter: a large message costs its size only while it is there."""

import asyncio
import contextlib

import pytest
from websockets.exceptions import ConnectionClosed

from tests.transport.build import PATIENCE_S, certificates, connect, frame, run
from waystation.transport.tls import client_context, server_context


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Certificates for localhost."""
    return certificates(tmp_path_factory.mktemp("tls"))


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
            return max(rooms), last, client.close_code, site.sink.reports.count("connected"), len(site.site.sweep)

    room, *rest = run(story, **options)

    assert room < 65_536
    assert rest == ["fragments", 4_000, 1, 0]


def test_large_frame_with_the_next_behind_it_loses_nothing():
    """What already stands behind a large frame is heard before a fresh buffer takes over, in any order of sizes."""
    sizes = [100_000, 5, 70_000, 200_000, 0, 66_000, 3]

    async def story(site):
        _, writer, _ = await site.upgrade("/binary")
        writer.write(b"".join(frame(0x82, bytes([number]) * size) for number, size in enumerate(sizes)))
        await site.binary.until(lambda: len(site.binary.heard) == len(sizes))
        writer.close()
        return site.binary.heard

    assert run(story) == [bytes([number]) * size for number, size in enumerate(sizes)]


def test_pings_behind_a_large_message_keep_no_large_buffer():
    """A control frame in the read of a large message does not hold the buffer until the next message comes."""

    async def story(site):
        reader, writer, _ = await site.upgrade("/quiet")
        writer.write(frame(0x81, b"x" * 1_000_000) + frame(0x89, b"p"))
        async with asyncio.timeout(PATIENCE_S):
            said = await reader.readexactly(3)
        await site.quiet.until(lambda: site.quiet.heard)
        writer.write(frame(0x89, b"q"))
        async with asyncio.timeout(PATIENCE_S):
            said += await reader.readexactly(3)
        await asyncio.sleep(0)
        room = len(site.quiet.pipe._transport.get_protocol().get_buffer(-1))
        writer.close()
        return room, said

    room, said = run(story)

    assert said == b"\x8a\x01p\x8a\x01q"
    assert room < 65_536


def test_fault_behind_a_large_message_still_closes():
    """The fresh cutter knows the rules: a frame without a mask ends the connection with 1002."""

    async def story(site):
        reader, writer, _ = await site.upgrade("/quiet")
        writer.write(frame(0x81, b"x" * 100_000))
        await site.quiet.until(lambda: site.quiet.heard)
        writer.write(frame(0x81, b"x", masked=False))
        async with asyncio.timeout(PATIENCE_S):
            said = await reader.read(4)
        writer.close()
        return said, len(site.quiet.heard)

    said, heard = run(story)

    assert (said[:1], said[2:], heard) == (b"\x88", b"\x03\xea", 1)
