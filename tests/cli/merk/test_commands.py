"""Laws of ``waystation merk`` as people call it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.build import caller, in_a_thread
from tests.sdk.merk.build import BOB, CAROL, NOWHERE, RelayServer
from waystation.sdk.merk import load_keys


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run a merk command in a fresh folder; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    return caller("merk", capfd)


@pytest.fixture
def relay():
    """The real relay machine on a loopback port, in a thread of its own."""
    with in_a_thread(RelayServer()) as url:
        yield url


class Listening:
    """``waystation merk listen --json`` in a process of its own."""

    def __init__(self, home, relay, *options):
        command = [sys.executable, "-m", "waystation", "merk", "listen", "--home", str(home), "--relay", relay]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*command, "--json", *options], stdout=pipe, stderr=pipe, text=True, env=os.environ
        )
        self.first = self.process.stderr.readline()
        self.key = load_keys(home).signing.public.hex()

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


@pytest.fixture
def alice(tmp_path, relay):
    """Somebody who listens and keeps files."""
    listening = Listening(tmp_path / "alice", relay, "--save", str(tmp_path / "inbox"))
    yield listening
    if listening.process.returncode is None:
        assert listening.stop() == 0


def test_text_json_and_file_arrive_encrypted(run, relay, alice, tmp_path):
    """Send exits 0 once the message was delivered; listen prints one line for each, and files are in the folder."""
    (tmp_path / "note.txt").write_text("a file")
    codes = [
        run("send", alice.key, "hello", "--relay", relay)[0],
        run("send", alice.key, "--content", '{"n":1}', "--mode", "signed", "--relay", relay)[0],
        run("send", alice.key, "--file", "note.txt", "--relay", relay)[0],
    ]
    text, value, file = (alice.next() for _ in range(3))

    assert codes == [0, 0, 0]
    assert alice.first == f"listening as {alice.key} at {relay}\n"
    assert (text["kind"], text["text"], text["mode"], text["auth"]) == ("text", "hello", "encrypted", "bound")
    assert text["sender"] == load_keys(tmp_path / "merk-me").signing.public.hex()
    assert (value["kind"], value["json"], value["mode"]) == ("json", {"n": 1}, "signed")
    assert (file["kind"], file["name"], file["bytes"]) == ("file", "note.txt", 6)
    assert (tmp_path / "inbox" / "note.txt").read_text() == "a file"


def test_send_waits_for_the_reader(run, relay, alice):
    """With --wait-read the exit code says whether the recipient's program took it; both sides show one id."""
    code, out, _ = run("send", alice.key, "hello", "--relay", relay, "--wait-read", "10", "--json")
    plain = run("send", alice.key, "never", "--mode", "signed", "--relay", relay, "--wait-read", "0.2")
    sent, received = json.loads(out), alice.next()

    assert (code, sent["outcome"], sent["delivered"]) == (0, "read", True)
    assert sent["message_id"] == received["message_id"]
    assert (plain[0], plain[1].startswith("accepted")) == (1, True)


def test_large_file_and_a_name_that_is_taken(run, relay, alice, tmp_path):
    """A file of many parts is whole, and nothing is overwritten."""
    data = os.urandom(1_000_000)
    (tmp_path / "big.bin").write_bytes(data)
    for _ in range(2):
        assert run("send", alice.key, "--file", "big.bin", "--relay", relay)[0] == 0
    saved = [alice.next()["saved"] for _ in range(2)]

    assert [Path(path).name for path in saved] == ["big.bin", "big-1.bin"]
    assert all((tmp_path / "inbox" / name).read_bytes() == data for name in ("big.bin", "big-1.bin"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_listen_ends_on_a_signal(alice, number):
    """SIGTERM ends with 0, Ctrl-C as shells expect."""
    assert alice.stop(number) == (0 if number == signal.SIGTERM else 130)


def test_listen_ends_after_count(run, relay, tmp_path):
    """With --count it ends by itself."""
    listening = Listening(tmp_path / "bob", relay, "--count", "1")
    run("send", listening.key, "hello", "--relay", relay)

    assert listening.end() == 0


def test_nobody_there_is_a_failure_with_a_sentence(run, relay):
    """A recipient that is nowhere: exit code 1, what happened and what to do."""
    code, out, err = run("send", CAROL.signing.public.hex(), "x", "--mode", "signed", "--relay", relay)
    as_json = run("send", CAROL.signing.public.hex(), "x", "--mode", "signed", "--relay", relay, "--json")

    assert (code, out) == (1, "")
    assert "not accepted: no node linked with yours has the recipient" in err
    document = json.loads(as_json[1])
    assert (as_json[0], document["outcome"], document["delivered"]) == (1, "unknown_target", False)
    assert document["retry_safe"] is True


def test_unknown_agreement_key_is_a_failure_and_a_given_one_is_used(run, relay):
    """Nothing can be encrypted for who published no key; with --key it can, and is pinned."""
    target = CAROL.signing.public.hex()
    code, _, err = run("send", target, "x", "--relay", relay)
    run("send", target, "x", "--relay", relay, "--key", CAROL.agreement_public.hex())
    pinned = json.loads(run("keys", "recipients", "--json")[1])

    assert code == 1
    assert "nobody knows the agreement key" in err
    assert "--key" in err and "--mode signed" in err
    assert pinned == {"public_key": target, "agreement_key": CAROL.agreement_public.hex(), "by_hand": True}


def test_changed_agreement_key_warns_and_sends_nothing(run, relay, alice):
    """A pinned key that differs from the recipient's advert stops the message until it is accepted."""
    run("keys", "trust", alice.key, BOB.agreement_public.hex())
    refused = run("send", alice.key, "secret", "--relay", relay)
    accepted = run("send", alice.key, "open", "--relay", relay, "--accept-new-key")

    assert (refused[0], accepted[0]) == (1, 0)
    assert "differs from the one its owner has published" in refused[2]
    assert alice.next()["text"] == "open"


@pytest.mark.parametrize("known", [False, True], ids=["first contact", "pinned before"])
def test_wrong_key_is_not_pinned_and_not_blamed_on_the_recipient(run, relay, alice, known):
    """A key given by hand that is not the recipient's sends nothing and leaves nothing behind; the way out is named."""
    if known:
        run("send", alice.key, "first", "--relay", relay)
    before = run("keys", "recipients")[1]
    wrong = run("send", alice.key, "secret", "--relay", relay, "--key", BOB.agreement_public.hex())
    after = run("keys", "recipients")[1]
    right = run("send", alice.key, "x", "--relay", relay, "--key", BOB.agreement_public.hex(), "--accept-new-key")
    later = run("send", alice.key, "y", "--relay", relay)

    assert (wrong[0], right[0], later[0]) == (1, 0, 0)
    assert "the key given with --key differs from the one its owner has published" in wrong[2]
    assert "--accept-new-key" in wrong[2]
    assert after == before
    assert [alice.next()["text"] for _ in range(2 + known)][-2:] == ["x", "y"]


def test_relay_out_of_reach_is_a_failure(run):
    """Send does not wait for a relay that is not there."""
    code, out, err = run("send", BOB.signing.public.hex(), "x", "--relay", NOWHERE)

    assert (code, out) == (1, "")
    assert "nobody listens on" in err


def test_second_program_with_the_same_home_is_refused(run, relay, alice, tmp_path):
    """A key is connected once; the second program says so instead of kicking the first one out."""
    code, _, err = run("send", BOB.signing.public.hex(), "x", "--relay", relay, "--home", str(tmp_path / "alice"))

    assert code == 1
    assert "another program is connected with the identity" in err


def test_keys_are_made_shown_exported_and_imported(run, tmp_path):
    """The exported file is the identity; both public keys are shown as hex and id52, and the file is private."""
    created = json.loads(run("keys", "create", "--json")[1])
    shown = json.loads(run("keys", "--json")[1])
    exported = run("keys", "export")
    (tmp_path / "out.json").write_text(exported[1])
    imported = json.loads(run("keys", "import", "out.json", "--home", "other", "--json")[1])

    assert created == shown == imported
    assert set(created) == {"public_key", "id52", "agreement_key", "agreement_id52"}
    assert set(json.loads(exported[1])) == {
        "publicKey",
        "privateKey",
        "encryptionPublicKey",
        "encryptionPrivateKey",
    }
    assert "whoever has this is you" in exported[2]
    assert (tmp_path / "merk-me" / "merk.key").stat().st_mode & 0o777 == 0o600


def test_servers_are_listed_added_selected_and_removed(run):
    """The selected server stands first; what is not there cannot be removed."""
    run("servers", "add", "ws://one:1/merk")
    run("servers", "add", "wss://two/merk")
    listed = [json.loads(line) for line in run("servers", "select", "wss://two/merk", "--json")[1].splitlines()]
    text = run("servers")[1].splitlines()
    run("servers", "remove", "wss://two/merk")

    assert [(each["address"], each["selected"]) for each in listed] == [
        ("wss://two/merk", True),
        ("ws://one:1/merk", False),
    ]
    assert text == [
        "  from  address          key that it has proved",
        "* user  wss://two/merk   not proved yet",
        "  user  ws://one:1/merk  not proved yet",
    ]
    assert run("servers", "remove", "wss://two/merk")[0] == 2


@pytest.mark.parametrize(
    "words",
    [
        ("send", "abc", "x"),
        ("send", "11" * 32),
        ("send", "11" * 32, "x", "--content", "{}"),
        ("send", "11" * 32, "--content", "{"),
        ("send", "11" * 32, "--file", "absent"),
        ("send", "11" * 32, "x", "--relay", "http://a"),
        ("keys",),
        ("keys", "import"),
        ("keys", "import", "absent.json"),
        ("keys", "trust", "11" * 32),
        ("keys", "forget", "11" * 32),
        ("servers", "add"),
        ("servers", "add", "http://a"),
        ("servers", "remove", "ws://a"),
    ],
)
def test_impossible_requests_are_usage_errors(run, words):
    """Exit code 2 and one sentence on stderr."""
    code, out, err = run(*words)

    assert code == 2
    assert out == ""
    assert err.splitlines()[-1].startswith("waystation: ")


@pytest.mark.parametrize("command", ["listen", "send", "keys", "servers"])
def test_help_has_an_example(run, command):
    """Every command shows how it is called."""
    code, out, _ = run(command, "--help")

    assert code == 0
    assert "Example: waystation merk" in out
    assert all(line.lstrip().startswith("Example:") for line in out.splitlines() if "Example:" in line)


def test_file_that_cannot_be_saved_does_not_end_listening(run, relay, tmp_path):
    """A full or wrong folder is told, and the next message is shown."""
    (tmp_path / "inbox").write_text("")
    (tmp_path / "a.txt").write_text("x")
    listening = Listening(tmp_path / "carol", relay, "--save", str(tmp_path / "inbox"))
    run("send", listening.key, "--file", "a.txt", "--relay", relay)
    run("send", listening.key, "still here", "--relay", relay)
    file, text = listening.next(), listening.next()

    assert (file["saved"], text["text"]) == (None, "still here")
    assert listening.stop() == 0
