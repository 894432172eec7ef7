"""Laws of ``waystation lprp`` as people call it."""

import base64
import json
import os
import signal
import subprocess
import sys

import pytest

from tests.cli.build import caller, in_a_thread
from tests.sdk.lprp.build import HOST, NOBODY, HostServer
from waystation.core.ids import encode_id52
from waystation.sdk.lprp import LprpState


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run an lprp command in a fresh folder; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    return caller("lprp", capfd)


@pytest.fixture
def host():
    """The real host machine on a loopback port, in a thread of its own."""
    with in_a_thread(HostServer()) as url:
        yield url


class Listening:
    """``waystation lprp listen --json`` in a process of its own."""

    def __init__(self, home, host, *options):
        command = [sys.executable, "-m", "waystation", "lprp", "listen", "--home", str(home), "--host", host]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*command, "--json", *options], stdout=pipe, stderr=pipe, text=True, env=os.environ
        )
        self.first = self.process.stderr.readline()
        self.key = key_of(home)

    def next(self):
        """Return the next message."""
        return json.loads(self.process.stdout.readline())

    def stop(self, number=signal.SIGTERM):
        """Ask it to end and return its exit code."""
        self.process.send_signal(number)
        return self.end()

    def end(self):
        """Wait for its end and return its exit code."""
        self.process.communicate(timeout=30)
        return self.process.returncode


def key_of(home):
    """Return the public key of a home."""
    state = LprpState(home)
    try:
        return state.identity.hex()
    finally:
        state.close()


@pytest.fixture
def alice(tmp_path, host):
    """Somebody who listens."""
    listening = Listening(tmp_path / "alice", host)
    yield listening
    if listening.process.returncode is None:
        assert listening.stop() == 0


def test_messages_arrive_sealed_and_the_host_is_named_once(run, host, alice, tmp_path):
    """Send exits 0 once the message is kept, and knows the host from then on; listen prints each message once."""
    (tmp_path / "note.txt").write_bytes(b"\xff" * 2_000)
    codes = [
        run("send", alice.key, "hello", "--host", host)[0],
        run("send", alice.key, "--file", "note.txt")[0],
        run("send", alice.key, "to all", "--raw")[0],
    ]
    text, file, raw = (alice.next() for _ in range(3))

    assert codes == [0, 0, 0]
    assert alice.first == f"listening as {alice.key} at {host}\n"
    assert (text["text"], text["sealed"], text["host"]) == ("hello", True, host)
    assert text["sender"] == key_of(tmp_path / "lprp-me")
    assert (file["sealed"], "text" in file, len(file["data_base64"])) == (True, False, 2_668)
    assert (raw["text"], raw["sealed"]) == ("to all", False)


def test_whitelist_beside_a_listener_lets_a_friend_through_without_work(run, host, alice, tmp_path):
    """A key that is added while somebody listens needs no work, once it is removed it does again."""
    refused = run("send", alice.key, "x", "--no-work", "--host", host)
    friend = key_of(tmp_path / "lprp-me")
    before = json.loads(run("whitelist", "--home", "alice", "--json")[1])
    added = json.loads(run("whitelist", "add", friend, "--home", "alice", "--json")[1])
    free = json.loads(run("send", alice.key, "free", "--no-work", "--json")[1])
    cleared = json.loads(run("whitelist", "clear", "--home", "alice", "--json")[1])
    again = json.loads(run("send", alice.key, "x", "--no-work", "--json")[1])

    assert (refused[0], refused[1]) == (1, "")
    assert "wants work" in refused[2] and "whitelist" in refused[2]
    assert (before["keys"], added["keys"], cleared["keys"]) == ([], [friend], [])
    assert added["agreed"] and cleared["agreed"]
    assert (free["outcome"], free["hashes"], again["outcome"]) == ("accepted", 0, "work_failed")
    assert alice.next()["text"] == "free"


def test_lease_is_got_shown_and_renewed(run, host, tmp_path):
    """Get works for a lease, show asks nobody, renew makes it longer; mail then waits for who is away."""
    LprpState(tmp_path / "alice").close()
    before = json.loads(run("lease", "show", "--home", "alice", "--host", host, "--json")[1])
    got = json.loads(run("lease", "--home", "alice", "--host", host, "--json")[1])
    renewed = json.loads(run("lease", "renew", "--home", "alice", "--json")[1])
    text = run("lease", "show", "--home", "alice")[1]
    sent = run("send", got["public_key"], "for later", "--host", host)
    listening = Listening(tmp_path / "alice", host, "--count", "1")
    message = listening.next()

    assert (before["active"], before["until_ms"]) == (False, None)
    assert (got["active"], got["host"], got["left_s"] > 500_000) == (True, host, True)
    assert renewed["until_ms"] > got["until_ms"]
    assert [line.split()[0] for line in text.splitlines()] == ["key", "host", "lease"]
    assert sent[0] == 0 and "accepted for" in sent[1]
    assert (message["text"], listening.end()) == ("for later", 0)


def test_id_shows_the_key_before_there_is_a_lease(run, tmp_path):
    """An operator can list a key that no host knows yet; it stays the same."""
    code, out, _ = run("id", "--home", "alice")
    document = json.loads(run("id", "--home", "alice", "--json")[1])

    assert (code, out.strip()) == (0, key_of(tmp_path / "alice"))
    assert document == {"public_key": out.strip(), "id52": encode_id52(bytes.fromhex(out.strip()))}


@pytest.mark.parametrize("command", ["lease", "whitelist"])
def test_show_makes_nothing(run, tmp_path, command):
    """A mistyped home is told, and is not there afterwards."""
    code, out, err = run(command, "show", "--home", "typo", "--host", str(NOBODY))

    assert (code, out) == (2, "")
    assert "typo is no home of anybody yet" in err
    assert not (tmp_path / "typo").exists()


def test_lease_beside_a_listener_is_shown(run, host, alice):
    """Who asks for a lease while a program keeps it gets it shown; to renew it needs the home for itself."""
    code, out, err = run("lease", "--home", "alice", "--host", host, "--json")
    renew = run("lease", "renew", "--home", "alice", "--host", host)

    assert (code, json.loads(out)["active"]) == (0, True)
    assert "a program listens with alice" in err
    assert renew[0] == 1 and "another program listens" in renew[2]


def test_host_that_never_answered_replaces_none_that_did(run, host):
    """A mistyped address is not what the home uses from then on."""
    run("lease", "--home", "alice", "--host", host)
    run("send", HOST.public.hex(), "x", "--home", "alice", "--host", str(NOBODY), "--timeout", "0.2")
    shown = json.loads(run("lease", "show", "--home", "alice", "--json")[1])

    assert shown["host"] == host


def test_what_the_address_says_of_leases_holds_and_is_remembered(run, host):
    """A lease of an hour is shown as one, also when the host is not named any more."""
    said = json.loads(run("lease", "--home", "alice", "--host", f"{host}?lease_ms=3600000", "--json")[1])
    again = json.loads(run("lease", "show", "--home", "alice", "--json")[1])

    assert said["host"] == again["host"] == f"{host}?lease_ms=3600000"
    assert 3_500 < again["left_s"] <= 3_600


def test_whitelist_without_a_listener_tells_the_host_itself(run, host):
    """The command gets a lease when there is none, and returns once the host knows."""
    key = "11" * 32
    added = run("whitelist", "add", key, "--home", "alice", "--host", host)
    removed = run("whitelist", "remove", key, "--home", "alice")

    assert (added[0], added[1]) == (0, f"{key}\n")
    assert (removed[0], removed[1]) == (0, "")
    assert "nobody may write without work" in removed[2]


def test_refused_message_is_a_failure_with_what_to_do(run, host):
    """A recipient without a lease: exit code 1, what happened, what to do, and how to send the same again."""
    code, out, err = run("send", key_of_nobody(), "x", "--host", host)
    as_json = run("send", key_of_nobody(), "x", "--json")
    document = json.loads(as_json[1])

    assert (code, out) == (1, "")
    assert "refused: the recipient has no lease at this host" in err and "--id " in err
    assert (as_json[0], document["outcome"], document["accepted"]) == (1, "refused", False)


def key_of_nobody():
    """Return a key that things can be sealed for, and that holds no lease."""
    return HOST.public.hex()


def test_same_id_arrives_once(run, host, alice):
    """A message that is sent again with its id comes once."""
    first = json.loads(run("send", alice.key, "once", "--host", host, "--json")[1])
    run("send", alice.key, "once", "--id", first["message_id"])
    run("send", alice.key, "end")

    assert [alice.next()["text"] for _ in range(2)] == ["once", "end"]


def test_stdin_is_a_message(run, host, alice):
    """A dash reads what is piped in."""
    command = [sys.executable, "-m", "waystation", "lprp", "send", alice.key, "-", "--host", host]
    sent = subprocess.run(command, input=b"piped\n\xff", capture_output=True, check=False, timeout=60)

    assert sent.returncode == 0, sent.stderr
    assert base64.b64decode(alice.next()["data_base64"]) == b"piped\n\xff"


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
def test_interrupted_send_is_a_failure_that_says_how_to_go_on(tmp_path, number, exit_code):
    """Ctrl-C and SIGTERM stop a send that waits, and no script takes it for one that was accepted."""
    command = [sys.executable, "-m", "waystation", "lprp", "send", HOST.public.hex(), "x", "--host", str(NOBODY)]
    home = tmp_path / "bob"
    with subprocess.Popen(
        [*command, "--home", str(home)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as sending:
        while not (home / "lprp.db").exists() or not used_clock(home):
            assert sending.poll() is None, sending.communicate()
        sending.send_signal(number)
        out, err = sending.communicate(timeout=30)

    assert (sending.returncode, out) == (exit_code, "")
    assert "interrupted, the host has accepted 0" in err and "--id " in err


def used_clock(home):
    """Return whether a program has begun to send with a home."""
    state = LprpState(home)
    try:
        return state.clock_ms()
    finally:
        state.close()


def test_nobody_there_is_told(run):
    """An address at which nobody listens ends with 1; when the network says so, that is passed on."""
    code, out, err = run("send", HOST.public.hex(), "x", "--host", str(NOBODY), "--timeout", "0.3")

    assert (code, out) == (1, "")
    assert "no answer" in err
    assert "nobody listens at udp://127.0.0.1:9" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_listen_ends_on_a_signal(alice, number):
    """SIGTERM ends with 0, Ctrl-C as shells expect."""
    assert alice.stop(number) == (0 if number == signal.SIGTERM else 130)


def test_listen_gives_up_after_a_timeout(run, host):
    """With --count a timeout is a failure, without it is the end."""
    too_few = run("listen", "--host", host, "--count", "1", "--timeout", "0.2")
    enough = run("listen", "--host", host, "--timeout", "0.2")

    assert (too_few[0], enough[0]) == (1, 0)


def test_second_listener_of_a_home_is_refused(run, host, alice):
    """One program listens with an identity, and the sentence says what works beside it."""
    code, _, err = run("listen", "--home", "alice", "--host", host)

    assert code == 1
    assert "another program listens with the identity" in err


def test_node_of_this_folder_is_the_default_host(run, tmp_path):
    """Without any address the node whose home lies here is meant."""
    (tmp_path / "waystation").mkdir()
    LprpState(tmp_path / "lprp-me").close()
    (tmp_path / "waystation" / "node.key").write_text(HOST.seed.hex() + "\n")
    shown = json.loads(run("lease", "show", "--json")[1])

    assert shown["host"] == f"lprp://{encode_id52(HOST.public)}@127.0.0.1:4810"


@pytest.mark.parametrize(
    "words",
    [
        ("send", "abc", "x"),
        ("send", "11" * 32),
        ("send", "11" * 32, "x", "--file", "absent"),
        ("send", "11" * 32, "--file", "absent"),
        ("send", "11" * 32, "x"),
        ("send", "11" * 32, "x", "--id", "zz"),
        ("send", "11" * 32, "x", "--raw", "--id", "11" * 16, "--host", str(NOBODY)),
        ("listen", "--host", f"{NOBODY}?lease_ms=1"),
        ("send", "11" * 32, "x", "--host", "relay.example"),
        ("lease",),
        ("listen",),
        ("listen", "--host", "http://a"),
        ("listen", "--host", str(NOBODY), "--byte-order", "middle"),
        ("whitelist", "add", "--host", str(NOBODY)),
        ("whitelist", "show", "11" * 32, "--host", str(NOBODY)),
        ("whitelist", "add", "abc", "--host", str(NOBODY)),
    ],
)
def test_impossible_requests_are_usage_errors(run, words):
    """Exit code 2 and one sentence on stderr."""
    code, out, err = run(*words)

    assert code == 2
    assert out == ""
    assert err.splitlines()[-1].startswith("waystation: ")


def test_too_large_a_file_is_refused(run, tmp_path):
    """More than a message holds is told before anything is sent."""
    (tmp_path / "big").write_bytes(bytes(65_537))
    code, _, err = run("send", "11" * 32, "--file", "big", "--host", str(NOBODY))

    assert code == 2
    assert "65536 bytes" in err


@pytest.mark.parametrize("command", ["lease", "listen", "send", "whitelist"])
def test_help_has_an_example(run, command):
    """Every command shows how it is called."""
    code, out, _ = run(command, "--help")

    assert code == 0
    assert "Example: waystation lprp" in out
