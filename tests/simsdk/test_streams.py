"""Streams in memory, through the dialler and the pipes that the SDK uses."""

import asyncio
import ssl

import pytest

from tests.simsdk.build import DELAY_S, Noting, run
from waystation.core.errors import HostError
from waystation.transport.connect import connect_tcp
from waystation.transport.dial import RelayUrl, dial, speaks_http, speaks_tls

PORT = 8443
URL = RelayUrl("tcp", "127.0.0.1", PORT)


async def connected():
    """Return both sides of a new stream."""
    theirs = Noting()
    asyncio.get_running_loop().streams.listen(PORT, lambda: theirs)
    _, ours = await connect_tcp(Noting, "127.0.0.1", PORT)
    return ours, theirs


def test_bytes_arrive_later_and_in_order():
    """What was written comes a delay later, in its order, in both directions."""

    async def story():
        ours, theirs = await connected()
        began_s = asyncio.get_running_loop().time()
        for number in range(50):
            ours.transport.write(bytes([number]))
        theirs.transport.write(b"back")
        await asyncio.sleep(2 * DELAY_S)
        return ours.got, theirs.got, theirs.at_s[0] - began_s

    ours, theirs, took_s = run(story)

    assert (ours, theirs) == (b"back", bytes(range(50)))
    assert took_s == pytest.approx(DELAY_S, abs=1e-4)


def test_closing_ends_behind_what_was_written():
    """Both sides learn the end, and nothing before it is lost."""

    async def story():
        ours, theirs = await connected()
        ours.transport.write(b"last words")
        ours.transport.close()
        ours.transport.write(b"too late")
        return await ours.ended, await theirs.ended, theirs.got

    assert run(story) == (None, None, b"last words")


def test_aborting_loses_what_is_under_way():
    """The other side gets an error in place of the bytes."""

    async def story():
        ours, theirs = await connected()
        ours.transport.write(b"lost")
        ours.transport.abort()
        return await ours.ended, await theirs.ended, theirs.got

    ours, theirs, got = run(story)

    assert ours is None
    assert isinstance(theirs, ConnectionResetError)
    assert got == b""


def test_paused_side_gets_everything_later():
    """Who does not read loses nothing."""

    async def story():
        ours, theirs = await connected()
        theirs.transport.pause_reading()
        ours.transport.write(b"one")
        ours.transport.write(b"two")
        await asyncio.sleep(1)
        before = theirs.got
        theirs.transport.resume_reading()
        await asyncio.sleep(1)
        return before, theirs.got

    assert run(story) == (b"", b"onetwo")


def test_dialler_says_what_it_says_of_sockets():
    """Nobody listens, a private place and TLS are the same errors as with TCP."""

    async def story():
        said = []
        for options in ({}, {"only_public": True}):
            with pytest.raises(HostError) as refused:
                await dial(URL, None, None, 1.0, **options)
            said.append(str(refused.value))
        await connected()
        with pytest.raises(ConnectionResetError):
            await connect_tcp(Noting, "127.0.0.1", PORT, tls=ssl.create_default_context())
        return said, await speaks_tls(URL, 1.0), await speaks_http(URL, 1.0)

    said, is_tls, is_web = run(story)

    assert "nobody listens" in said[0]
    assert "not on the open internet" in said[1]
    assert not is_tls
    assert not is_web
