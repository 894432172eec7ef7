"""Laws of ``waystation mcu``: what people type, and what they are told."""

import hashlib
import json
import shlex
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.build import caller
from tests.sdk.bhumi.test_with_node import Node
from waystation.cli.mcu.folder import take_lock
from waystation.protocols.bhumi.payload.invite import decode_invite
from waystation.server.home import Home
from waystation.transport.tls import authority_der


@pytest.fixture
def mcu(capfd, tmp_path, monkeypatch):
    """Calls ``waystation mcu`` in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return caller("mcu", capfd)


@pytest.fixture
def local_node(tmp_path):
    """A node's home where the commands look for it."""
    home = Home(tmp_path / "waystation")
    home.ensure()
    return home


def test_new_takes_the_node_of_this_folder(mcu, local_node):
    """Without options the device is for the node here; the command for the other side is complete."""
    code, out, error = mcu("new", "demo")

    words = shlex.split(out.splitlines()[-1])
    assert code == 0 and local_node.ca_path.exists()
    assert words[:3] == ["waystation", "bhumi", "accept"] and words[4:] == ["--alias", "demo"]
    invite = decode_invite(words[3])
    authority = hashlib.sha256(authority_der(local_node.ca_path)).digest()
    assert (invite.relays, invite.authority, invite.suite) == (("tls://localhost:8443",), authority, 4)
    assert 0 < invite.expires_s - time.time() <= 7 * 86_400
    assert "waystation mcu run demo" in out and "this machine only" in error


def test_new_as_json(mcu, local_node):
    """With --json the same facts come as one object."""
    code, out, _ = mcu("new", "demo", "--json", "--relay", "tls://relay.example:1", "--ca", str(local_node.ca_path))

    document = json.loads(out)
    assert code == 0 and (document["folder"], document["compiled"]) == ("demo", True)
    assert document["token"] in document["accept"]
    assert decode_invite(document["token"]).relays == ("tls://relay.example:1",)
    assert document["expires_s"] == decode_invite(document["token"]).expires_s


def test_legacy_invite(mcu, local_node):
    """For programs without suites 3 and 4 the token is the old one, and the line says all that it lacks."""
    _, out, _ = mcu("new", "demo", "--legacy")
    words = shlex.split(out.splitlines()[-1])

    assert local_node.ca_path.exists() and len(words[3]) == 86
    assert words[4:] == shlex.split(
        "--relay tls://localhost:8443 --ca waystation/tls/ca.pem --e2e suite-2 --alias demo"
    )


def test_new_with_several_relays(mcu, local_node):
    """One authority serves all relays, or each has its own; those without TLS need none."""
    ca = str(local_node.ca_path)
    one = mcu("new", "one", "--relay", "tls://a:1", "--relay", "tcp://b:2", "--relay", "tls://c:3", "--ca", ca)
    two = mcu("new", "two", "--relay", "tls://a:1", "--relay", "tls://c:3", "--ca", ca, "--ca", ca)
    bad = mcu("new", "bad", "--relay", "tls://a:1", "--ca", ca, "--ca", ca)
    plain = mcu("new", "plain", "--relay", "tcp://b:2", "--sources")

    assert (one[0], two[0], plain[0], bad[0]) == (0, 0, 0, 2)
    assert "2 times --ca for 1 relays" in bad[2]


def test_loopback_relay_is_named(mcu):
    """Of several relays the one that no board can reach is the one that is told."""
    _, _, error = mcu("new", "one", "--relay", "tcp://relay.example:1", "--relay", "tcp://127.0.0.1:2")

    assert "tcp://127.0.0.1:2 is this machine only" in error


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["x", "--relay", 'tcp://a"b:1'], "not an address that a board can read"),
        (["there"], "there exists already"),
        (["x"], "there is no ./waystation/tls/ca.pem"),
        (["x", "--relay", "http://relay"], "not a relay address"),
        (["x", "--relay", "8443"], "not a relay address"),
        (["x", "--relay", "tls://8443"], "not a relay address"),
        (["x", "--relay", "tls://a:b"], "not a relay address"),
        (["x", "--ca", "missing.pem"], "cannot read missing.pem"),
        (["x", "--ca", "two.pem"], "two.pem holds 2 certificates"),
        (["x", "--ca", "none.pem"], "none.pem holds no certificate"),
        (["x", "--relay", "tcp://a:1", "--alias", "x" * 33], "at most 32 bytes"),
        (["x", "--relay", "tcp://a:1", "--expires", "soon"], "--expires is a time such as"),
    ],
)
def test_new_refuses(mcu, tmp_path, words, sentence):
    """What cannot be is one sentence, and leaves no folder."""
    other = Home(tmp_path / "other")
    other.ensure()
    (tmp_path / "there").mkdir()
    (tmp_path / "two.pem").write_bytes(other.ca_path.read_bytes() * 2)
    (tmp_path / "none.pem").write_text("nothing")

    code, _, error = mcu("new", *words)

    assert code in (1, 2) and sentence in error and error.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_invite(mcu, local_node, tmp_path):
    """More invites can be made as long as the device does not run."""
    mcu("new", "demo")
    code, out, _ = mcu("invite", "demo", "--alias", "carol", "--expires", "never")
    words = shlex.split(out.splitlines()[-1])
    as_json = mcu("invite", "demo", "--json")
    with open(take_lock(tmp_path / "demo")):  # noqa: PTH123 - a descriptor
        busy = mcu("invite", "demo")

    assert local_node.ca_path.exists()
    assert code == 0 and words[:3] == ["waystation", "bhumi", "accept"] and words[3] in out.splitlines()[2]
    assert words[4:] == ["--alias", "demo"] and decode_invite(words[3]).expires_s == 0
    document = json.loads(as_json[1])
    assert decode_invite(document["token"]).secret and document["token"] in document["accept"]
    assert busy[0] == 1 and "is running already" in busy[2]


def test_run_without_a_folder(mcu):
    """A folder that is none is one sentence."""
    code, _, error = mcu("run", "nothing")

    assert code == 2 and "waystation mcu new nothing" in error


@pytest.mark.micropython
def test_as_a_new_user(tmp_path):
    """new, run, the accept command as printed, a request: the device is for the node of this folder, on any port."""
    node = Node(tmp_path / "waystation").start()
    url = node.url
    program = [sys.executable, "-m", "waystation"]
    made = subprocess.run(
        [*program, "mcu", "new", "demo", "--json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    accept = shlex.split(json.loads(made.stdout)["accept"])
    device = subprocess.Popen([*program, "mcu", "run", "demo"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    with device:
        connecting, listening = device.stdout.readline(), device.stdout.readline()
        paired = subprocess.run(accept, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        words = ["bhumi", "send", "demo", "warm?"]
        sent = subprocess.run(
            [*program, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        device.send_signal(signal.SIGINT)
        printed, _ = device.communicate(timeout=120)
    node.stop()

    assert connecting == f"connecting to {url}\n"
    assert listening.startswith(f"listening on {url} as ")
    assert (paired.returncode, sent.returncode, device.returncode) == (0, 0, 0), paired.stderr + sent.stderr
    assert sent.stdout.startswith("hello ") and "warm?" in sent.stdout
    assert "joined " in printed and "answered " in printed and "Traceback" not in printed
