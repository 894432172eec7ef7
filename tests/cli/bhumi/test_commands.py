import asyncio
import base64
import datetime
import hashlib
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.camera import codes_of_terminal
from tests.cli.build import caller, in_a_thread
from tests.sdk.build import LoopbackRelay
from waystation.core.ids import decode_id52
from waystation.crypto.certificates import make_local_certificates
from waystation.crypto.signing import KeyPair
from waystation.examples.demo.run import Demo
from waystation.protocols.bhumi.payload.invite import Invite, decode_invite, encode_invite
from waystation.sdk.bhumi import BhumiState
from waystation.sdk.bhumi.state import HandshakeFacts

NOWHERE = "tcp://127.0.0.1:1"


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run a bhumi command in a fresh folder; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    return caller("bhumi", capfd)


@pytest.fixture
def relay():
    """The real relay machine on a loopback port, in a thread of its own."""
    with in_a_thread(LoopbackRelay()) as url:
        yield url


class Listening:
    """``waystation bhumi listen`` in a process of its own."""

    def __init__(self, home, relay, *options):
        command = [sys.executable, "-m", "waystation", "bhumi", "listen", "--home", home, "--relay", relay, "--json"]
        self.process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True, env=os.environ)
        self.first = self.next()

    def next(self):
        """Return the next event."""
        return json.loads(self.process.stdout.readline())

    def stop(self):
        """Ask it to end and return its exit code."""
        self.process.terminate()
        return self.end()

    def end(self):
        """Wait for its end and return its exit code."""
        code = self.process.wait(5)
        self.process.stdout.close()
        return code


def test_a_whole_conversation(run, relay):
    """Invite, accept, send and peers, with a listener in another process that echoes and ends on SIGTERM with 0."""
    _, out, _ = run("invite", "--home", "alice", "--alias", "bob", "--json")
    invited = json.loads(out)
    listener = Listening("alice", relay, "--echo")
    accepted = run("accept", invited["token"], "--home", "bob", "--alias", "alice", "--relay", relay, "--json")
    joined = listener.next()
    sent = run("send", "alice", "grüezi", "--home", "bob", "--relay", relay, "--json")
    request = listener.next()
    plain = run("send", invited["id52"], "hi", "--home", "bob", "--relay", relay)
    listener.next()
    command = run("send", "alice", "--command", '{"cmd":"led","args":1}', "--home", "bob", "--relay", relay, "--json")
    listed = run("peers", "--home", "bob", "--json")
    code = listener.stop()
    offline = run("send", "alice", "hi", "--home", "bob", "--relay", relay, "--json")

    assert listener.first == {"event": "listening", "relay": relay, "id52": invited["id52"], "confirmed": True}
    assert accepted[0] == 0 and json.loads(accepted[1])["alias"] == "alice"
    assert (joined["event"], joined["alias"]) == ("joined", "bob")
    reply = json.loads(sent[1])
    assert (reply["status"], reply["reply"], reply["tries"]) == ("ok", "grüezi", 1)
    assert reply["latency_ms"] > 0
    assert (request["event"], request["content"], request["content_type"]) == ("request", "grüezi", "text")
    assert plain == (0, "hi\n", "")
    assert json.loads(json.loads(command[1])["reply"]) == {"ok": True, "data": {"cmd": "led", "args": 1}}
    assert json.loads(listed[1])["rights"] == 3
    assert code == 0
    assert offline[0] == 1 and json.loads(offline[1])["kind"] == "OfflineError"


@pytest.mark.parametrize("e2e", ["suite-1", "suite-2"])
def test_suite_is_remembered_from_accepting_on(run, relay, e2e):
    """With a legacy token a listener is met in a suite, which `peers` shows and `send` uses without being told."""
    token = run("invite", "--home", "alice", "--alias", "bob", "--legacy")[1].strip()
    listener = Listening("alice", relay, "--echo")
    accepted = run("accept", token, "--home", "bob", "--alias", "alice", "--relay", relay, "--e2e", e2e)
    sent = run("send", "alice", "hi", "--home", "bob", "--relay", relay)
    other = {"suite-1": "suite-2", "suite-2": "suite-1"}[e2e]
    told = run("send", "alice", "told", "--home", "bob", "--relay", relay, "--e2e", other)
    shown = [json.loads(run("peers", "--home", home, "--json")[1])["e2e"] for home in ("alice", "bob")]
    text = run("peers", "--home", "bob")[1]

    assert (accepted[0], sent, told) == (0, (0, "hi\n", ""), (0, "told\n", ""))
    assert shown == [e2e, e2e]
    assert f"  {e2e} " in text and "legacy" in text
    assert "this token has no secret" in accepted[2]
    assert listener.stop() == 0


def test_suite_that_a_listener_insists_on(run, relay):
    """A listener that was told a suite takes no legacy handshake in another form, and says so."""
    token = run("invite", "--home", "alice", "--alias", "bob", "--legacy")[1].strip()
    listener = Listening("alice", relay, "--e2e", "suite-2")
    refused = run("accept", token, "--home", "bob", "--relay", relay)

    assert refused[0] == 1
    assert "could not be opened" in listener.next()["reason"]
    assert listener.stop() == 0


@pytest.mark.parametrize("command", [["listen"], ["accept", "x" * 86], ["send", "alice", "hi"]])
def test_unknown_suite_is_refused_by_name(run, command):
    """An --e2e that does not exist is refused with those that do."""
    code, _, err = run(*command, "--e2e", "suite-9")

    assert code == 2
    assert all(name in err for name in ("suite-9", "suite-3", "bhumi-v1", "suite-1", "suite-2", "none"))


def test_exec_and_count(run, relay, tmp_path):
    """--exec answers with what a program prints, a failing program is the peer's error, --count ends by itself."""
    program = tmp_path / "answer.py"
    program.write_text(
        "import os, sys\ntext = sys.stdin.read()\nprint(os.environ['BHUMI_ALIAS'], text[::-1], end='')\n"
        "sys.exit(text == 'fail')\n"
    )
    token = run("invite", "--home", "alice", "--alias", "bob")[1].strip()
    listener = Listening("alice", relay, "--exec", f"{sys.executable} '{program}'", "--count", "2")
    run("accept", token, "--home", "bob", "--alias", "alice", "--relay", relay)
    answered = run("send", "alice", "abc", "--home", "bob", "--relay", relay)
    failed = run("send", "alice", "fail", "--home", "bob", "--relay", relay, "--json")
    code = listener.end()

    assert answered == (0, "bob cba\n", "")
    assert failed[0] == 1 and json.loads(failed[1])["status"] == "refused"
    assert code == 0


def test_invite_prints_only_the_token(run):
    """Stdout holds the token alone; who it is for and what to run stand on stderr."""
    code, out, err = run("invite", "--relay", "relay.example", "--qr")

    invite = decode_invite(out.strip())
    state = BhumiState(Path("bhumi-me"))
    assert (code, invite.identity, state.grant_of(invite.preimage).peer) == (0, state.identity, None)
    assert invite.relays == ("tls://relay.example:8443",)
    assert f"waystation bhumi accept {out.strip()}\n" in err
    assert codes_of_terminal(err, is_dark=True) == [out.strip()]
    state.close()


def test_invite_names_the_relay_of_the_last_listen(run, relay):
    """Whoever listens elsewhere than where the default is needs no --relay to invite."""
    listening = Listening("bhumi-me", relay)
    document = json.loads(run("invite", "--json")[1])

    assert listening.stop() == 0
    assert decode_invite(document["token"]).relays == (relay,)
    assert document["relays"] == [relay]


def test_invite_as_json(run):
    """--json gives token, identity, alias and the line for the other side."""
    code, out, err = run("invite", "--alias", "bob", "--json")

    document = json.loads(out)
    assert (code, err, document["alias"]) == (0, "", "bob")
    assert decode_invite(document["token"]).identity == decode_id52(document["id52"])
    assert document["accept"] == f"waystation bhumi accept {document['token']}"
    assert (document["relays"], document["legacy"], document["allow"]) == (["tls://127.0.0.1:8443"], False, None)
    assert 6 * 86_400 < document["expires"] - time.time() <= 7 * 86_400


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("accept", "tooshort"), "86 characters"),
        (("send", "zoe", "hi", "--relay", NOWHERE, "--home", "nobody"), "there is no identity in nobody"),
        (("peers", "--home", "nobody"), "there is no identity in nobody"),
        (("send", "zoe"), "say what to send"),
        (("send", "zoe", "hi", "--command", "x"), "only one content"),
        (("send", "zoe", "hi", "--file", "f"), "only one content"),
        (("send", "zoe", "--command", "{nonsense"), "--command"),
        (("send", "zoe", "--file", "nowhere"), "cannot read nowhere"),
        (("listen", "--echo", "--exec", "cat"), "exclude each other"),
        (("listen", "--exec", "'"), "cannot be split"),
        (("listen", "--exec", ""), "names no program"),
        (("invite", "--relay", "http://x"), "not a relay address"),
        (("listen", "--relay", "ftp://x"), "not a relay address"),
    ],
)
def test_impossible_wishes_are_usage(run, words, says):
    """What cannot be done is said in a sentence on stderr, with exit code 2."""
    code, out, err = run(*words)

    assert (code, out) == (2, "")
    assert says in err
    assert not Path("nobody").exists()


def test_unknown_peer_is_named(run):
    """Sending to somebody unknown says whom nobody is called."""
    run("invite", "--home", "me")

    code, _, err = run("send", "zoe", "hi", "--home", "me", "--relay", NOWHERE)

    assert (code, "no peer is called 'zoe'" in err) == (2, True)


def test_relay_that_is_not_there(run):
    """A relay nobody runs is a failure with a sentence, and a JSON error with --json."""
    state = BhumiState(Path("me"))
    state.finish(bytes([1]) * 32, KeyPair.from_seed(bytes(32)).public, [bytes(32)], HandshakeFacts("alice", ""))
    state.close()

    code, out, err = run("send", "alice", "hi", "--home", "me", "--relay", NOWHERE)
    as_json = run("send", "alice", "hi", "--home", "me", "--relay", NOWHERE, "--json")

    assert (code, out) == (1, "")
    assert "nobody listens on tcp://127.0.0.1:1" in err
    assert json.loads(as_json[1])["kind"] == "RelayUnreachableError"


def test_no_peers_yet(run):
    """An empty list says on stderr how to get a peer."""
    run("invite")

    code, out, err = run("peers")

    assert (code, out) == (0, "")
    assert "waystation bhumi invite" in err


def test_binary_answers_in_json(run, relay, tmp_path):
    """Content that is no UTF-8 travels whole, and stands in base64 in JSON."""
    (tmp_path / "photo").write_bytes(b"\xff\x00\xfe")
    token = run("invite", "--home", "alice")[1].strip()
    listener = Listening("alice", relay, "--echo", "--count", "1")
    run("accept", token, "--home", "bob", "--alias", "alice", "--relay", relay)
    listener.next()
    code, out, _ = run("send", "alice", "--file", "photo", "--home", "bob", "--relay", relay, "--json")
    request = listener.next()

    assert (code, base64.b64decode(json.loads(out)["reply_base64"])) == (0, b"\xff\x00\xfe")
    assert base64.b64decode(request["content_base64"]) == b"\xff\x00\xfe"
    assert listener.end() == 0


def test_missing_authority(run):
    """A CA file that is not there is named."""
    code, _, err = run("listen", "--ca", "nowhere.pem", "--count", "1")

    assert code == 1
    assert "nowhere.pem" in err


def test_folder_is_not_shared_by_accident(run):
    """Two homes are two identities."""
    first = json.loads(run("invite", "--home", "one", "--json")[1])["id52"]
    second = json.loads(run("invite", "--home", "two", "--json")[1])["id52"]

    assert first != second


def test_terminals_are_not_steered_by_peers(run, relay):
    """Control characters in what peers say are shown, not obeyed, where people read it."""
    token = run("invite", "--home", "alice", "--alias", "bob")[1].strip()
    command = [
        sys.executable,
        "-m",
        "waystation",
        "bhumi",
        "listen",
        "--home",
        "alice",
        "--relay",
        relay,
        "--count",
        "1",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stderr.readline()
    run("accept", token, "--home", "bob", "--alias", "alice", "--relay", relay)
    run("send", "alice", "red \x1b[31m\x07 alert\nnext", "--home", "bob", "--relay", relay)
    shown, _ = process.communicate(timeout=30)

    assert shown == "bob: red \\x1b[31m\\x07 alert\nnext\n"


def test_demo_leaves_no_node_behind(tmp_path, monkeypatch):
    """The demo kills a node that does not heed SIGTERM, and counts that as a failure."""
    monkeypatch.setattr("waystation.examples.demo.run._STOP_TIMEOUT_S", 0.01)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"

    async def scenario():
        show = Demo(tmp_path, stay=False, report=False)
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", deaf, stdout=subprocess.PIPE)
        await process.stdout.readline()
        await show.stop(process)
        return process.returncode, show._failures

    code, failures = asyncio.run(scenario())

    assert code == -signal.SIGKILL
    assert failures == ["the node did not stop within 0.01 s and was killed"]


@pytest.mark.parametrize("place", [0, 2])
def test_token_may_begin_with_a_dash(run, place):
    """A token that looks like an option is taken as the token, before and behind the options."""
    identity = next(key for n in range(999) if (key := KeyPair.from_seed(n.to_bytes(32)).public)[0] >> 2 == 62)
    token = encode_invite(Invite(identity, bytes(32)))
    words = ["--home", "bob", "--relay", NOWHERE]
    words.insert(place, token)

    code, _, err = run("accept", *words)

    assert token.startswith("-")
    assert (code, "nobody listens" in err) == (1, True)


def test_second_accept_says_already_paired(run, relay):
    """Accepting the same token again sends nothing and says so; rights stay as they are."""
    token = run("invite", "--home", "alice")[1].strip()
    listener = Listening("alice", relay, "--echo")
    words = ("accept", token, "--home", "bob", "--alias", "alice", "--relay", relay)
    run(*words)
    listener.stop()

    code, out, _ = run(*words)

    assert (code, out.startswith("already paired with alice")) == (0, True)
    assert json.loads(run("peers", "--home", "bob", "--json")[1])["rights"] == 3


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signal_ends_a_listener_that_waits_to_reconnect(tmp_path, number, code):
    """A listener without a relay ends within a second of a signal."""
    listener = Listening(str(tmp_path / "alice"), NOWHERE)
    listener.process.send_signal(number)
    ended = listener.process.wait(1.5)
    listener.process.stdout.close()

    assert (listener.first["event"], ended) == ("disconnected", code)


def test_invite_names_the_authority_and_the_program_as_called(run, monkeypatch):
    """The token has the authority's fingerprint, and the line for the other side the program as it was called."""
    monkeypatch.setattr(sys, "argv", [".venv/bin/waystation"])
    made = make_local_certificates(["relay"], datetime.datetime.now(datetime.UTC))
    Path("my ca.pem").write_bytes(made.ca_pem)
    Path("both.pem").write_bytes(
        made.ca_pem + make_local_certificates(["other"], datetime.datetime.now(datetime.UTC)).ca_pem
    )

    document = json.loads(run("invite", "--ca", "my ca.pem", "--json")[1])
    legacy = json.loads(run("invite", "--ca", "my ca.pem", "--legacy", "--json")[1])
    _, both, said = run("invite", "--ca", "both.pem")

    fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(made.ca_pem.decode())).digest()
    assert document["accept"] == f".venv/bin/waystation bhumi accept {document['token']}"
    assert decode_invite(document["token"]).authority == fingerprint
    assert legacy["accept"].endswith(" --relay tls://127.0.0.1:8443 --ca 'my ca.pem'")
    assert decode_invite(both.strip()).authority == b"" and "does not have exactly one authority" in said
