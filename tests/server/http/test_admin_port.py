"""Laws of server.http.admin_port, in this loop and asked of a node in a process of its own."""

import asyncio
import http.client
import json
import socket
import types

import pytest

from tests.server.build import NodeProcess
from waystation.core.errors import HostError, LocalError
from waystation.server.config.settings import Address, AdminSettings, NodeSettings
from waystation.server.home import Home
from waystation.server.http.admin_port import AdminPort
from waystation.server.proxies.rules import ProxyRules

LOOPBACK = "127.0.0.1"
OPERATIONS = types.SimpleNamespace(viewed=list, identity={"public_key": "ab" * 32})


def port_of(home, **settings):
    """Return an admin port that is not open yet."""
    chosen = AdminSettings(**({"listen": None, "socket": ""} | settings))
    return AdminPort(OPERATIONS, Home(home), chosen, ProxyRules(NodeSettings()))


def over_socket(path, target="/healthz"):
    """Ask at a unix socket; return status and document."""
    carrier = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    carrier.settimeout(8)
    carrier.connect(str(path))
    connection = http.client.HTTPConnection("localhost")
    connection.sock = carrier
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_taken_port_reads_like_the_listeners(tmp_path):
    """Whoever has the port, the sentence is the one of every other listener, with exit code 4."""
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HostError) as caught:
            asyncio.run(port_of(tmp_path, listen=Address(LOOPBACK, port)).open())

    assert str(caught.value) == (
        f"cannot listen on {LOOPBACK}:{port}: the port is taken; is another program listening there?"
    )
    assert caught.value.exit_code == 4


def test_socket_answers_and_is_gone_afterwards(tmp_path):
    """Only its owner may open it, it needs the token as the port does (NODE-SOCKET), and the end removes it."""

    async def scenario():
        port = port_of(tmp_path, socket="admin.sock")
        await port.open()
        reply = await asyncio.to_thread(over_socket, port.socket)
        without_token, _ = await asyncio.to_thread(over_socket, port.socket, "/admin/v1/bans")
        mode = (tmp_path / "admin.sock").stat().st_mode & 0o777
        await port.close()
        return port.url, reply, without_token, mode

    url, reply, without_token, mode = asyncio.run(scenario())

    assert (url, reply, without_token, mode) == ("", (200, {"ok": True}), 401, 0o600)
    assert not (tmp_path / "admin.sock").exists()


def test_path_that_is_too_long(tmp_path):
    """A path that the operator chose is refused with its length; where only the default's is, the node has none."""
    home = tmp_path / ("x" * 100)
    home.mkdir()

    async def opened(name):
        port = port_of(home, socket=name)
        await port.open()
        await port.close()
        return port.socket

    with pytest.raises(LocalError, match=r"bytes, and the path of a unix socket has at most 107; name a shorter path"):
        asyncio.run(opened("mine.sock"))

    assert asyncio.run(opened("admin.sock")) == ""


def test_node_without_the_port_still_has_the_socket(tmp_path):
    """With admin.listen off, the operator asks over the socket; an ended node leaves neither socket nor file."""
    with NodeProcess(tmp_path / "home", admin__listen="").start() as node:
        listeners = node.ready["listeners"]
        reply = over_socket(tmp_path / "home" / "admin.sock")
        code = node.stop()

    assert "admin" not in listeners
    assert (reply, code) == ((200, {"ok": True}), 0)
    assert not (tmp_path / "home" / "admin.sock").exists() and not (tmp_path / "home" / "running.json").exists()


def test_socket_of_a_killed_node_is_replaced(tmp_path):
    """The file that kill -9 leaves behind does not keep the next start from listening."""
    node = NodeProcess(tmp_path / "home", admin__listen="").start()
    node.kill()
    left = (tmp_path / "home" / "admin.sock").is_socket()
    with node.start():
        reply = over_socket(tmp_path / "home" / "admin.sock")

    assert left and reply == (200, {"ok": True})
