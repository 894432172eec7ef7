"""Laws of transport.connect: every address of a name is tried, IPv6 first, and one refusal is one sentence."""

import asyncio
import socket
from pathlib import Path

import pytest

from tests.transport.datagrams.build_udp import HAS_IPV6
from tests.transport.resolver import BOTH, free_port, resolving
from tests.transport.test_listen import Door
from waystation.core.errors import HostError
from waystation.transport import connect
from waystation.transport.connect import connect_tcp
from waystation.transport.dial import dial
from waystation.transport.listen import Listener
from waystation.transport.websocket.dial import WebSocketDialler

FAMILIES = ["127.0.0.1", "::1", "*"] if HAS_IPV6 else ["127.0.0.1"]
SILENT = "192.0.2.254"


def dialled_by(url):
    """Return the sentence for a dial of this address on a loop where localhost has both families."""

    async def story():
        with resolving():
            if url.startswith("ws"):
                await WebSocketDialler(message_bytes_max=1_000).dial(url, Door(), timeout_s=5)
            else:
                await dial(url, Door(), None, 5)

    with pytest.raises(HostError) as caught:
        asyncio.run(story())
    return str(caught.value)


@pytest.mark.parametrize("listening", FAMILIES)
def test_name_leads_to_whichever_family_listens(listening):
    """NODE-DUAL: a client that dials localhost reaches a listener on either family, and on both over IPv6."""

    async def story():
        door = Door()
        listener = Listener(door, door.admit, door.release, None)
        await listener.open(listening, 0)
        with resolving():
            pipe = await dial(f"tcp://localhost:{listener.port}", Door(), None, 5)
        await door.until(lambda: door.asked)
        pipe.abort()
        listener.close()
        return door.asked

    assert asyncio.run(story()) == ["::1" if listening == "*" else listening]


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_nobody_on_either_family_is_one_sentence(scheme):
    """Two refusals, one of each family, read as one."""
    if HAS_IPV6:
        assert "nobody listens on" in dialled_by(f"{scheme}://localhost:{free_port()}")


def test_silent_address_holds_nobody_up():
    """While the first address says nothing the second is tried, and its connection is the one."""

    async def story():
        with socket.create_server(("127.0.0.1", 0)) as there:
            with resolving((SILENT, "127.0.0.1")):
                made = connect_tcp(asyncio.Protocol, "localhost", there.getsockname()[1])
                transport, protocol = await asyncio.wait_for(made, 20)
            peer = transport.get_extra_info("peername")[0]
            transport.abort()
            return peer, isinstance(protocol, asyncio.Protocol)

    assert asyncio.run(story()) == ("127.0.0.1", True)


def descriptors():
    """Return how many files and sockets this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("places", [(SILENT,), (SILENT, "192.0.2.253"), (SILENT, "127.0.0.1")])
def test_cancelled_attempts_leave_nothing(places):
    """Neither a task nor a socket, however many addresses were under way."""

    async def story():
        before = descriptors()
        with socket.create_server(("127.0.0.1", 0)) as there, resolving(places):
            dialling = asyncio.create_task(connect_tcp(asyncio.Protocol, "localhost", there.getsockname()[1]))
            await asyncio.wait([dialling], timeout=0.01)
            dialling.cancel()
            await asyncio.gather(dialling, return_exceptions=True)
        return asyncio.all_tasks() == {asyncio.current_task()}, descriptors() - before

    assert asyncio.run(story()) == (True, 0)


def test_winner_is_closed_when_the_caller_is_cancelled_at_the_end(monkeypatch):
    """Its socket is the caller's only once it is returned."""
    close_all, closing = connect._close_all, asyncio.Event()

    async def closed_slowly(attempts):
        if attempts and not closing.is_set():
            closing.set()
            await asyncio.Event().wait()
        await close_all(attempts)

    monkeypatch.setattr(connect, "_close_all", closed_slowly)

    async def story():
        before = descriptors()
        with socket.create_server(("127.0.0.1", 0)) as there, resolving((SILENT, "127.0.0.1")):
            dialling = asyncio.create_task(connect_tcp(asyncio.Protocol, "localhost", there.getsockname()[1]))
            await asyncio.wait_for(closing.wait(), 20)
            dialling.cancel()
            await asyncio.gather(dialling, return_exceptions=True)
        return asyncio.all_tasks() == {asyncio.current_task()}, descriptors() - before

    assert asyncio.run(story()) == (True, 0)


def test_resolver_of_these_tests_has_both_families():
    """What the tests above rest on."""

    async def story():
        with resolving():
            found = await asyncio.get_running_loop().getaddrinfo("localhost", 7, type=socket.SOCK_STREAM)
        return tuple(place[0] for *_, place in found)

    assert asyncio.run(story()) == BOTH
