"""The whole node as people run it: ``python -m waystation serve`` in a process of its own."""

import contextlib
import datetime
import json
import signal
import socket
import ssl
import time
from urllib.parse import urlsplit

import pytest

from tests.server.build import PREIMAGE, NodeProcess, exchange, key_pair, run_serve, until
from waystation.core.dids import encode_did
from waystation.core.ids import encode_id52
from waystation.crypto.certificates import make_local_certificates
from waystation.crypto.signing import KeyPair
from waystation.protocols.bhumi import messages
from waystation.server.home import Home
from waystation.store.sqlite import SqliteStore
from waystation.transport.tls import client_context
from waystation.version import __version__


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """One node for the laws that leave it running."""
    running = NodeProcess(tmp_path_factory.mktemp("node") / "home").start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def own_node(tmp_path):
    """A node that the test may end as it likes."""
    running = NodeProcess(tmp_path / "home").start()
    yield running
    if running.process.poll() is None:
        running.kill()


def port_of(url):
    """Return the port of a listener's address."""
    return urlsplit(url).port


def test_ready_line_names_everything(node):
    """The line has exactly the documented keys; key, names and home are the node's own, ports are real."""
    pair = KeyPair.from_seed(bytes.fromhex((node.home / "node.key").read_text().strip()))
    listeners = node.ready["listeners"]

    assert set(node.ready) == {"event", "pid", "version", "node", "listeners", "home"}
    assert node.ready["event"] == "ready"
    assert node.ready["pid"] == node.process.pid
    assert node.ready["version"] == __version__
    assert node.ready["home"] == str(node.home.resolve())
    assert node.ready["node"] == {
        "public_key": pair.public.hex(),
        "id52": encode_id52(pair.public),
        "did": encode_did(pair.public),
    }
    assert {name: urlsplit(url).scheme for name, url in listeners.items()} == {
        "bhumi": "tls",
        "bhumi_plain": "tcp",
        "bsp": "tls",
        "lprp": "udp",
        "merk": "ws",
        "strata": "ws",
        "admin": "http",
    }
    assert all(port_of(url) > 0 for url in listeners.values())


def test_every_listener_of_the_line_answers(node):
    """What the ready line names is bound by then: TLS, plain and HTTP."""
    with node.client("bhumi") as tls, node.client("bhumi_plain") as plain:
        assert tls.hello.max_payload_bytes == plain.hello.max_payload_bytes == 65_536
    assert node.ask("GET", "/healthz") == (200, {"ok": True})


def test_exchange_between_tls_and_plain(node):
    """A device on TLS 1.2 answers a sender on the plain port; the next SEND with that preimage is not delivered."""
    context = client_context(node.home / "tls/ca.pem")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with node.client("bhumi", context) as device, node.client() as sender:
        device.identify(key_pair(), PREIMAGE)
        result = exchange(device, sender, key_pair(), PREIMAGE)
        sender.say(messages.Send(key_pair().public, PREIMAGE, b"again"))
        cached = sender.result()

    assert (result.status, result.payload) == (0, b"re: ping")
    assert (cached.status, cached.payload) == (0, b"re: ping")


def test_nobody_there_is_status_1(node):
    """A SEND to an identity that is not connected gets its outcome at once."""
    with node.client() as sender:
        sender.say(messages.Send(key_pair(99).public, PREIMAGE, b"hello"))

        assert sender.result().status == messages.Status.NOT_CONNECTED


def test_sigterm_finishes_what_is_in_flight(own_node):
    """After SIGTERM nobody new comes in, the exchange under way gets its answer, and the node exits 0."""
    node = own_node
    with node.client() as device, node.client() as sender:
        device.identify(key_pair(), PREIMAGE)
        sender.say(messages.Send(key_pair().public, PREIMAGE, b"ping"))
        delivered = device.deliver()
        node.signal(signal.SIGTERM)
        until(lambda: refuses_connections(port_of(node.url())), "the end of listening")
        device.say(messages.Ack(delivered.message_id, b"just in time"))
        result = sender.result()
        rest = sender.rest(), device.rest()

    assert (result.status, result.payload) == (0, b"just in time")
    assert rest == (b"", b"")
    assert node.wait() == 0
    assert {line["kind"] for line in node.journal()} >= {"node_started", "delivery_finished", "node_stopped"}


def refuses_connections(port):
    """Return whether nobody listens on a port any more."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return True
    return False


def test_sigterm_does_not_wait_for_ever(tmp_path):
    """An exchange that nobody answers ends with the drain limit, and its sender is closed, not left hanging."""
    node = NodeProcess(tmp_path / "home", node__drain_ms="100").start()
    with node.client() as device, node.client() as sender:
        device.identify(key_pair(), PREIMAGE)
        sender.say(messages.Send(key_pair().public, PREIMAGE, b"ping"))
        device.deliver()
        began = time.monotonic()
        code = node.stop()
        took_s = time.monotonic() - began
        frames = sender.rest()

    assert code == 0
    assert took_s < 20
    assert frames in (b"", messages_result(messages.Status.GONE))


def messages_result(status):
    """Return a SEND_RESULT without payload as it stands on the wire."""
    return b"\x00\x07\x00\x00\x00\x05" + bytes([status]) + b"\x00\x00\x00\x00"


def test_second_sigterm_ends_at_once(tmp_path):
    """Who asks twice does not wait for the drain: exit code 1, a line in the log, and a ban that is still kept."""
    node = NodeProcess(tmp_path / "home", node__drain_ms="600000").start()
    body = {"subject": "192.0.2.1", "reason": "floods"}
    assert node.ask("POST", "/admin/v1/bans", body, node.token)[0] == 201
    with node.client() as device, node.client() as sender:
        device.identify(key_pair(), PREIMAGE)
        sender.say(messages.Send(key_pair().public, PREIMAGE, b"ping"))
        device.deliver()
        node.signal(signal.SIGTERM)
        until(lambda: "node.draining" in node.log(), "the drain")
        code = node.stop()
    with contextlib.closing(SqliteStore(node.home / "store.sqlite")) as store:
        kept = [key for key, _ in store.scan("bans")]

    assert code == 1
    assert "node.cut" in node.log()
    assert kept == [b"address:192.0.2.1"]


def test_sighup_changes_the_certificate_and_drops_nobody(own_node):
    """After SIGHUP newcomers see the new certificate, and a connection from before goes on with its exchange."""
    node = own_node
    fresh = make_local_certificates(["localhost", "127.0.0.1"], datetime.datetime.now(datetime.UTC))
    with node.client("bhumi") as device:
        device.identify(key_pair(), PREIMAGE)
        for name, pem in (("ca", fresh.ca_pem), ("cert", fresh.cert_pem), ("key", fresh.key_pem)):
            (node.home / "tls" / f"{name}.pem").write_bytes(pem)
        node.signal(signal.SIGHUP)
        until(lambda: trusts(node, fresh.ca_pem), "the new certificate")
        with node.client("bhumi") as sender:
            result = exchange(device, sender, key_pair(), PREIMAGE)

    assert (result.status, result.payload) == (0, b"re: ping")
    assert node.stop() == 0


def trusts(node, authority):
    """Return whether a newcomer that trusts only ``authority`` gets through the handshake."""
    context = ssl.create_default_context(cadata=authority.decode())
    try:
        node.client("bhumi", context).close()
    except ssl.SSLCertVerificationError:
        return False
    return True


def test_bad_reload_changes_nothing(own_node):
    """A certificate that cannot be used is logged, and the old one stays in force."""
    node = own_node
    (node.home / "tls" / "cert.pem").write_text("no certificate")
    node.signal(signal.SIGHUP)
    until(lambda: "reload.refused" in node.log(), "a line in the log")
    with node.client("bhumi") as client:
        assert client.hello.protocol_version == 1
    assert node.stop() == 0


def test_kill_and_restart_on_the_same_home(own_node):
    """``kill -9`` loses neither the node's name nor a ban, and the journal of the dead node is still readable."""
    node = own_node
    before = node.ready["node"]
    subject = key_pair(7).public.hex()
    assert node.ask("POST", "/admin/v1/bans", {"subject": subject, "reason": "floods"}, node.token)[0] == 201
    until(node.journal, "the first rows of the journal")
    node.kill()
    node.start()
    bans = node.ask("GET", "/admin/v1/bans")[1]["bans"]

    assert node.ready["node"] == before
    assert [ban["subject"] for ban in bans] == [f"id:{subject}"]
    assert node.stop() == 0
    assert [line["kind"] for line in node.journal()].count("node_started") == 2


def test_two_nodes_run_side_by_side(node, own_node):
    """Two homes are two nodes: other names, other ports, and a device of one is unknown to the other."""
    ports = [port_of(url) for one in (node, own_node) for url in one.ready["listeners"].values()]
    with node.client() as device, own_node.client() as sender:
        device.identify(key_pair(5), PREIMAGE)
        sender.say(messages.Send(key_pair(5).public, PREIMAGE, b"hello"))
        status = sender.result().status

    assert status == messages.Status.NOT_CONNECTED
    assert node.ready["node"] != own_node.ready["node"]
    assert len(set(ports)) == 14


def test_same_home_twice_is_refused(node):
    """A second node on a home ends with one sentence that names the first."""
    second = run_serve(node.home, {"bhumi.tls": "127.0.0.1:0", "admin.listen": ""})

    assert second.returncode == 1
    assert f"another node (process {node.process.pid}) runs on the home" in second.stderr
    assert second.stdout == ""


@pytest.mark.parametrize(("listener", "setting"), [("bhumi_plain", "bhumi.tls"), ("admin", "admin.listen")])
def test_taken_port_is_one_sentence_and_exit_4(node, tmp_path, listener, setting):
    """A port that somebody has ends the start with exit code 4 and one plain sentence; nothing was announced."""
    taken = urlsplit(node.url(listener)).netloc
    off = dict.fromkeys(("bsp.tls", "lprp.udp", "merk.ws", "strata.ws", "admin.listen"), "")
    settings = {"bhumi.tls": "127.0.0.1:0"} | off | {setting: taken}
    refused = run_serve(tmp_path / "home", settings, "--log-level", "error")

    assert refused.returncode == 4
    assert refused.stdout == ""
    (sentence,) = refused.stderr.splitlines()
    assert sentence.startswith(f"waystation: cannot listen on {taken}: ")


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("ack_timeout_ms = 5", "from 10 to 600000"),
        ('deliver_layout = "fancy"', '"seed", "preimage"'),
        ("ack_timeout = 5", "ack_timeout_ms"),
        ('peers_ca = "nowhere.pem"', "there is no such file"),
        ('cert = "nowhere.pem"\nkey = "nowhere.pem"', "there is no such file"),
    ],
)
def test_bad_setting_names_file_line_and_what_is_allowed(tmp_path, line, allowed):
    """A bad configuration ends the start with exit code 3, before a key or a folder is made."""
    config = tmp_path / "node.toml"
    config.write_text(f"[node]\nname = 'x'\n\n[bhumi]\n{line}\n")
    refused = run_serve(tmp_path / "home", {}, "--config", str(config))

    assert refused.returncode == 3
    assert refused.stderr.startswith(f"waystation: {config}:5: ")
    assert allowed in refused.stderr
    assert not (tmp_path / "home").exists()


def test_stdout_has_the_ready_line_and_nothing_else(tmp_path):
    """Programs that read stdout get one line of JSON, however the node ends."""
    node = NodeProcess(tmp_path / "home", admin__listen="").start()
    node.signal(signal.SIGINT)
    rest = node.process.stdout.read()

    assert node.wait() == 0
    assert rest == ""
    assert "admin" not in node.ready["listeners"]
    assert json.loads(json.dumps(node.ready)) == node.ready


def test_node_that_is_named_as_its_own_owner_is_exit_3(tmp_path):
    """What only the node's key can tell is one sentence too, with file and line."""
    home = Home(tmp_path / "home")
    home.ensure()
    config = tmp_path / "node.toml"
    config.write_text(f"[bsp]\ntls = ''\nowners = ['{home.key_pair().public.hex()}']\n")
    refused = run_serve(tmp_path / "home", {}, "--config", str(config), "--log-level", "error")

    assert (refused.returncode, refused.stdout) == (3, "")
    (sentence,) = refused.stderr.splitlines()
    assert sentence.startswith(f"waystation: {config}:3: bsp.owners has the key of this node")
