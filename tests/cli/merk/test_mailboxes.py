"""Laws of ``waystation merk mailbox``: what it says of the mailbox, and what is kept meanwhile."""

import json

import pytest

from tests.cli.build import caller, in_a_thread
from tests.sdk.merk.build import RelayServer
from waystation.cli.merk.mailboxes import describe
from waystation.sdk.merk import create_keys, load_keys


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


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("refused", "ws://r gives this identity no mailbox"),
        ("closed", "ws://r keeps no mail for this identity"),
        ("open", "ws://r keeps mail for this identity until 2023-11-14: 2 waiting, 300 bytes"),
    ],
)
def test_a_mailbox_is_one_sentence(state, sentence):
    """With what waits in it where it is open."""
    document = {"relay": "ws://r", "state": state, "messages": 2, "bytes": 300, "until_ms": 1_700_000_000_000}

    assert describe(document) == sentence


def test_a_mailbox_from_the_command_line(run, relay, tmp_path):
    """Opened, filled while nobody listens, shown without fetching anything, printed by listen, and closed."""
    create_keys(tmp_path / "erin")
    erin = load_keys(tmp_path / "erin").signing.public.hex()
    opened = run("mailbox", "open", "--home", "erin", "--relay", relay, "--json")
    sent = run("send", erin, "for later", "--home", "frank", "--relay", relay, "--json")
    shown = [run("mailbox", "--home", "erin", "--relay", relay, "--json") for _ in range(2)]
    listened = run("listen", "--home", "erin", "--relay", relay, "--count", "1", "--json")
    closed = run("mailbox", "close", "--home", "erin", "--relay", relay)

    assert json.loads(opened[1])["state"] == "open"
    assert json.loads(sent[1])["outcome"] == "stored"
    assert [json.loads(each[1])["messages"] for each in shown] == [1, 1]
    assert json.loads(listened[1])["text"] == "for later"
    assert (closed[0], "keeps no mail" in closed[1]) == (0, True)


def test_a_relay_without_mailboxes_is_said(run):
    """With an exit code that a script sees."""
    with in_a_thread(RelayServer(mailbox=False)) as url:
        code, out, _ = run("mailbox", "open", "--home", "erin", "--relay", url)

    assert (code, "gives this identity no mailbox" in out) == (1, True)
