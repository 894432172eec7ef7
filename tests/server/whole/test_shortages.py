"""NODE-GUARD on a whole node: out of files or memory it lives, goes on with what it has, and its log is short."""

import contextlib
import json
import resource
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from soak.faults.memory import Crowd
from tests.server.build import Client, NodeProcess, key_pair, until
from waystation.protocols.bhumi import messages

SPARE_FILES = 8
SPARE_BYTES = 4 << 20

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


def test_without_memory_the_node_lives(node):
    """One line says so, whatever failed; afterwards everybody is served as before."""
    size = int(Path(f"/proc/{node.pid}/statm").read_text().split()[0]) * resource.getpagesize()
    with limited(node, resource.RLIMIT_AS, size + SPARE_BYTES):
        crowd = Crowd(node, 20)
        until(lambda: lines(node, "memory.exhausted"), "the line")
        crowd.close()
    with Client(node.url()) as client:
        assert answers(client)

    errors = [line["event"] for line in map(json.loads, node.log().splitlines()) if line["level"] == "error"]
    assert errors == ["memory.exhausted"]
    assert node.stop() == 0
