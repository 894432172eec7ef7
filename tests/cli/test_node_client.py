"""Laws of cli.node_client, against nodes in processes of their own."""

import os
import socket
import threading

import pytest

from tests.server.build import NodeProcess
from waystation.cli import node_client
from waystation.cli.node_client import NodeClient, NodeRefusedError, existing_home, home_of, rotate_token
from waystation.core.errors import ConfigError, HostError
from waystation.server.home import Home
from waystation.server.http.running import Running, read_running, write_running
from waystation.version import __version__


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node for the module, with address and socket."""
    running = NodeProcess(tmp_path_factory.mktemp("client") / "home").start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def held(tmp_path):
    """A home that this process holds, as a node does."""
    home = Home(tmp_path / "home")
    home.ensure()
    home.admin_token()
    with home.lock():
        yield home


def described(home, **changed):
    """Write what a node on ``home`` would write, with changes, and return the client."""
    running = Running(os.getpid(), __version__, {}, "")._replace(**changed)
    write_running(home, running)
    return NodeClient.of(home)


@pytest.mark.parametrize("way", ["socket", "address"])
def test_node_is_found_and_asked(node, way):
    """Over the unix socket, and over the address, with the token of the home."""
    client = NodeClient.find(str(node.home))
    place = {"socket": {"urls": {}}, "address": {"socket": ""}}[way]
    asked = NodeClient(client.home, client.running._replace(**place))

    assert asked.get("/admin/v1/status")["node"] == node.ready["node"]
    assert "waystation_uptime_seconds" in asked.text("GET", "/metrics")
    assert asked.ask("POST", "/admin/v1/bans", {"subject": "192.0.2.1", "reason": "x"}) == {"ok": True}
    assert asked.ask("DELETE", "/admin/v1/bans/192.0.2.1") == {"ok": True}


def test_socket_that_is_gone_leaves_the_address(node):
    """A client that cannot open the socket takes the address."""
    client = NodeClient.find(str(node.home))

    assert NodeClient(client.home, client.running._replace(socket="/none")).get("/healthz") == {"ok": True}


def test_refusal_has_the_nodes_own_sentence(node):
    """What the node refuses carries its status, its words and the exit code that fits."""
    client = NodeClient.find(str(node.home))
    with pytest.raises(NodeRefusedError, match="neither an IP address") as malformed:
        client.ask("POST", "/admin/v1/bans", {"subject": "nobody", "reason": "x"})
    with pytest.raises(NodeRefusedError, match="there is no such ban") as missing:
        client.ask("DELETE", "/admin/v1/bans/192.0.2.9")

    assert (malformed.value.status, malformed.value.exit_code) == (400, 2)
    assert (missing.value.status, missing.value.exit_code) == (404, 1)


def test_home_comes_from_option_config_environment_or_this_folder(tmp_path):
    """The first of them that names one wins."""
    config = tmp_path / "node.toml"
    config.write_text('[node]\nhome = "of-config"\n')
    environ = {"WAYSTATION_NODE__HOME": "of-environment"}

    assert str(home_of("given", str(config), environ).path) == "given"
    assert str(home_of(None, None, environ).path) == "of-environment"
    assert str(home_of(None, str(config), {}).path) == "of-config"
    assert str(home_of(None, None, {}).path) == "waystation"
    with pytest.raises(ConfigError):
        home_of(None, str(tmp_path / "none.toml"), {})


def test_no_home_and_no_node_are_different_sentences(tmp_path):
    """Both name the home and two ways out."""
    with pytest.raises(
        HostError, match=r"there is no home of a node at .*none; name .* --home, or run: waystation serve"
    ):
        NodeClient.of(Home(tmp_path / "none"))
    Home(tmp_path / "home").ensure()
    with pytest.raises(HostError, match=r"no node runs on .*home; name the home of one with --home"):
        NodeClient.of(Home(tmp_path / "home"))


def test_file_of_a_killed_node_does_not_count(tmp_path):
    """A kill leaves running.json behind, and nobody takes that for a node."""
    node = NodeProcess(tmp_path / "home").start()
    before = NodeClient.of(Home(node.home)).running.pid
    node.kill()

    assert read_running(Home(node.home)).pid == before == node.ready["pid"]
    with pytest.raises(HostError, match="no node runs on"):
        NodeClient.of(Home(node.home))


def test_node_that_is_not_ready_is_named(held):
    """A home that is held without a file, or with that of an earlier process, asks for a moment."""
    with pytest.raises(HostError, match=rf"process {os.getpid()}\) is not ready"):
        NodeClient.of(held)
    with pytest.raises(HostError, match="is not ready"):
        described(held, pid=1, socket="/s")


def test_node_without_an_admin_port_is_named(held):
    """The sentence names both settings."""
    with pytest.raises(HostError, match=r"set admin.socket or admin.listen and restart"):
        described(held)


def test_node_that_does_not_answer_is_named(held, monkeypatch):
    """Nobody at the address, a silent program, and one that closes: each is a sentence with the address."""
    monkeypatch.setattr(node_client, "TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        client = described(held, urls={"admin": f"http://127.0.0.1:{port}"})
        with pytest.raises(HostError, match=rf"does not answer at http://127.0.0.1:{port}: it took too long"):
            client.get("/healthz")
    with pytest.raises(HostError, match=r"does not answer at .*refused"):
        client.get("/healthz")


@pytest.fixture
def answering(held):
    """Return a client of a program that answers each request with these bytes."""
    servers = []

    def client(answer, **changed):
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)
        threading.Thread(target=_answer_once, args=(server, answer), daemon=True).start()
        return described(held, urls={"admin": f"http://127.0.0.1:{server.getsockname()[1]}"}, **changed)

    yield client
    for server in servers:
        server.close()


def _answer_once(server, answer):
    accepted, _ = server.accept()
    with accepted:
        accepted.recv(65_536)
        accepted.sendall(answer)


def reply(status, body):
    """Return the bytes of an answer."""
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"junk\r\n\r\n", "does not answer at"),
        (b"", "does not answer at"),
        (reply(200, b"no json"), "with what is no JSON"),
        (reply(200, b"[]"), "with what is no JSON object"),
        (reply(500, b"oops"), "refuses /x with status 500"),
        (reply(503, b'{"error": 7}'), "refuses /x with status 503"),
        (reply(503, b'{"error": "the disk is full"}'), "the disk is full"),
    ],
)
def test_whatever_answers_becomes_one_sentence(answering, answer, says):
    """No answer, of whatever program, is more than an error with words."""
    with pytest.raises(HostError, match=says):
        answering(answer).get("/x")


@pytest.mark.parametrize("answer", [reply(404, b'{"error": "there is nothing here"}'), reply(200, b"old")])
def test_another_version_is_named_where_it_explains(answering, answer):
    """What this program asks and an older node does not know, ends with both versions and what to do."""
    with pytest.raises(
        HostError, match=rf"the node has version 0.0.1 and this program {__version__}: restart the node"
    ):
        answering(answer, version="0.0.1").get("/x")


def test_answer_has_a_longest_length(answering, monkeypatch):
    """A program that sends without end is cut off."""
    monkeypatch.setattr(node_client, "ANSWER_BYTES_MAX", 10)
    with pytest.raises(HostError, match="longer than 10 bytes"):
        answering(reply(200, b"x" * 11)).get("/x")


def test_token_that_is_missing_names_the_way_out(held):
    """Nothing is asked without a token."""
    client = described(held, urls={"admin": "http://127.0.0.1:9"})
    held.token_path.unlink()
    with pytest.raises(HostError, match=rf"admin.token is missing.* kill -HUP {os.getpid()}"):
        client.get("/x")


def test_token_that_others_may_read_is_refused(held):
    """The sentence is that of every secret file."""
    client = described(held, urls={"admin": "http://127.0.0.1:9"})
    held.token_path.chmod(0o644)
    with pytest.raises(HostError, match="chmod 600"):
        client.get("/x")


@pytest.fixture
def of_another_user(held):
    """The home of another user: for its owner alone, and this process is not its owner for one test."""
    user = os.geteuid()
    held.path.chmod(0o700 if user == 0 else 0)
    if user == 0:
        os.seteuid(65_534)
    yield held
    os.seteuid(user)
    held.path.chmod(0o700)


@pytest.mark.parametrize("way", [NodeClient.of, rotate_token, lambda home: existing_home(str(home.path))])
def test_home_of_another_user_is_named(of_another_user, way):
    """The sentence says as whom to run the command."""
    with pytest.raises(HostError, match=r"this user may not read the home .*sudo -u") as caught:
        way(of_another_user)

    assert caught.value.exit_code == 4
