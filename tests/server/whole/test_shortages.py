"""NODE-GUARD on a whole node: out of files new connections wait, those that stand go on, the log is short."""

import contextlib
import json
import resource
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.server.build import Client, NodeProcess, key_pair, until
from waystation.protocols.bhumi import messages

SPARE_FILES = 8

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


def answers(client):
    """Say whether the node still answers a client that stands: what is for nobody gets its result."""
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
                waiting.enter_context(socket.create_connection((place.hostname, place.port), timeout=20))
                for _ in range(4 * SPARE_FILES)
            ]
            until(lambda: lines(node, "files.exhausted"), "the line")
            served = answers(standing)
        greeted = [each.recv(2) for each in crowd]
        with Client(node.url()) as client:
            assert client.hello

    assert served
    assert len(greeted) == 4 * SPARE_FILES and all(greeted)
    assert len(lines(node, "files.exhausted")) == 1
    assert lines(node, "loop.failed") == []
