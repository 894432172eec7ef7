"""NODE-GUARD on a whole node: out of files new connections wait, those that stand go on, the log is short."""

import asyncio
import contextlib
import json
import resource
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.server.build import Client, NodeProcess, key_pair, until
from waystation.protocols.bhumi import messages
from waystation.transport.tls import client_context

SPARE_FILES = 8
SPARE_MEMORY = 64 << 20
CROWD = 300
LOG_BYTES_MAX = 64 << 10
"""The fault was 11.9 MB in 20 s."""

pytestmark = pytest.mark.slow


@pytest.fixture
def node(tmp_path):
    """Return a node without limits per address."""
    with NodeProcess(tmp_path / "home", limits__enabled="false", node__log_format="json").start() as running:
        yield running


def lines(node, event):
    """Return the log lines of an event."""
    found = [json.loads(line) for line in node.log().splitlines() if line.startswith("{")]
    return [line for line in found if line["event"] == event]


def identified(client):
    """Say whether the node still answers a client that stands: it sends nothing to nobody, and hears so."""
    client.say(messages.Send(key_pair(9).public, bytes(32), b"anybody?"))
    return client.frame()[0] == messages.FrameType.SEND_RESULT


@contextlib.contextmanager
def limited(node, which, value):
    """Let the process have no more than this of a resource, as its soft limit."""
    before = resource.prlimit(node.pid, which)
    resource.prlimit(node.pid, which, (value, before[1]))
    try:
        yield
    finally:
        resource.prlimit(node.pid, which, before)


def test_without_files_new_connections_wait(node):
    """One line says so; a connection that stands is served, and who waited is served when files are there again."""
    place = urlsplit(node.url())
    files = len(list(Path(f"/proc/{node.pid}/fd").iterdir()))
    with Client(node.url()) as standing, contextlib.ExitStack() as waiting:
        with limited(node, resource.RLIMIT_NOFILE, files + 1 + SPARE_FILES):
            crowd = [
                waiting.enter_context(socket.create_connection((place.hostname, place.port), timeout=8))
                for _ in range(4 * SPARE_FILES)
            ]
            until(lambda: lines(node, "files.exhausted"), "the line")
            served = identified(standing)
        greeted = [each.recv(2) for each in crowd]
        with Client(node.url()) as client:
            assert client.hello

    assert served
    assert len(greeted) == 4 * SPARE_FILES and all(greeted)
    assert len(lines(node, "files.exhausted")) == 1
    assert lines(node, "loop.failed") == []


def test_without_memory_the_log_stays_short(node):
    """Handshakes fail, each failure is a line a minute, and with memory the next client is served."""
    size = int(Path(f"/proc/{node.pid}/statm").read_text().split()[0]) * resource.getpagesize()
    place = urlsplit(node.url("bhumi"))
    context = client_context(node.home / "tls/ca.pem")

    async def knock(stack):
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(3):
                _, writer = await asyncio.open_connection(
                    place.hostname, place.port, ssl=context, server_hostname="localhost"
                )
                stack.callback(writer.transport.abort)

    async def crowd():
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                await asyncio.gather(*(knock(stack) for _ in range(CROWD)))

    with limited(node, resource.RLIMIT_AS, size + SPARE_MEMORY):
        asyncio.run(crowd())
    assert node.running, node.log()[-4_000:]

    def is_back():
        with contextlib.suppress(OSError), Client(node.url("bhumi"), context) as client:
            return client.hello

    until(is_back, "a client that is served")
    assert len(node.log()) < LOG_BYTES_MAX
