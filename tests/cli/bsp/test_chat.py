"""Laws of ``waystation bsp chat`` as people use it: two terminals, and a file between them."""

import json
import signal

import pytest

from tests.cli.bsp.build import Running, key_of
from tests.cli.build import caller


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run a bsp command in a fresh folder; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    return caller("bsp", capfd)


def test_two_terminals_talk_after_one_pasted_line(tmp_path):
    """Who pastes the invitation is let in, both read what is said, and an answer names what it answers to."""
    alice = Running(tmp_path, "chat", "--home", "alice", "--nick", "alice", "--listen", "0", "--json")
    invitation = alice.event("ready")["invitation"]
    bob = Running(tmp_path, "chat", invitation, "--home", "bob", "--nick", "bob", "--json")
    newcomer = alice.event("newcomer")
    alice.type("hello bob")
    hello = bob.event("message")
    bob.type("hello alice")
    answer = [alice.event("message"), alice.event("message")][1]
    bob.type("/peers")
    peer = bob.event("peer")
    bob.type("/quit")
    codes = bob.end(), alice.end(signal.SIGTERM)

    assert (newcomer["nick"], newcomer["key"]) == ("bob", key_of(tmp_path / "bob"))
    assert (hello["nick"], hello["text"], hello["answers"]) == ("alice", "hello bob", [])
    assert (answer["nick"], answer["text"], answer["answers"]) == ("bob", "hello alice", [hello["id"]])
    assert (peer["key"], peer["name"], peer["link"]) == (key_of(tmp_path / "alice"), "alice", "tls")
    assert codes == (0, 0)


def test_chat_goes_on_by_a_file(run, tmp_path):
    """Two who never connect talk by a file: by commands inside, and by export and import outside."""
    alice, bob = (json.loads(run("id", "--home", name, "--json")[1])["key"] for name in ("alice", "bob"))
    first = Running(tmp_path, "chat", "--home", "alice", "--nick", "alice", "--peer", bob, "--json")
    line = first.event("ready")["join"]
    first.type("said offline")
    first.event("message")
    first.type("/export out.bsp")
    exported = first.event("exported")
    first.type("/quit")
    first.end()
    run("group", "join", line, "--name", "chat", "--home", "bob")
    second = Running(tmp_path, "chat", "--home", "bob", "--nick", "bob", "--peer", alice, "--json")
    second.type("/import out.bsp")
    imported = sorted((second.line() for _ in range(3)), key=lambda event: event["event"])
    second.type("/import missing.bsp")
    error = second.event("error")
    second.type("answered offline")
    second.event("message")
    second.end()
    run("export", alice, "back.bsp", "--home", "bob")
    back = run("import", "back.bsp", "--home", "alice")
    history = run("list", "--group", "chat", "--home", "alice", "--bodies")

    assert exported["messages_count"] == 1
    assert [event["event"] for event in imported] == ["imported", "message", "ready"]
    assert (imported[0]["new_count"], imported[1]["text"]) == (1, "said offline")
    assert "cannot read missing.bsp" in error["error"]
    assert back[0] == 0
    assert [line.rpartition('"text": ')[2] for line in history[1].splitlines()] == [
        '"said offline"}',
        '"answered offline"}',
    ]


def test_script_says_its_lines_and_ends(run, tmp_path, monkeypatch):
    """Lines of stdin are said, printed as JSON and kept; --after goes on from an order; --count ends at once."""
    (tmp_path / "lines").write_text("one\n\ntwo\n/nonsense\n")
    with (tmp_path / "lines").open() as lines:
        monkeypatch.setattr("sys.stdin", lines)
        said = run("chat", "--home", "alice", "--json")
    with (tmp_path / "lines").open() as lines:
        monkeypatch.setattr("sys.stdin", lines)
        again = run("chat", "--home", "alice", "--json", "--after", "1", "--count", "1")
    events = [json.loads(line) for line in said[1].splitlines()]

    assert [event.get("text") for event in events] == [None, "one", "two"]
    assert (events[1]["order"], events[2]["answers"]) == (1, [events[1]["id"]])
    assert "there is no /nonsense" in said[2]
    assert "/export PATH" in said[2]
    assert [json.loads(line).get("text") for line in again[1].splitlines()] == [None, "two"]
    assert (said[0], again[0]) == (0, 0)


def test_people_read_names_and_times(run, tmp_path, monkeypatch):
    """For people a message is a line with its time and nickname, and control characters are shown as what they are."""
    (tmp_path / "lines").write_bytes(b"hi \x1b[2J\n")
    with (tmp_path / "lines").open() as lines:
        monkeypatch.setattr("sys.stdin", lines)
        code, out, err = run("chat", "--home", "alice", "--nick", "alice")

    assert code == 0
    assert out.endswith("alice: hi \\x1b[2J\n")
    assert "you are alice" in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("bsp+tls://nowhere",), "not an invitation"),
        (("--nick", "x" * 33), "a nickname has"),
        (("--peer", "short"), "a key has"),
        (("--listen", "https://x"), "nobody can listen at"),
    ],
)
def test_impossible_chat_is_told(run, monkeypatch, tmp_path, words, why):
    """What cannot be is told in one sentence with exit code 2."""
    (tmp_path / "lines").write_text("hello\n")
    with (tmp_path / "lines").open() as lines:
        monkeypatch.setattr("sys.stdin", lines)
        code, _, err = run("chat", *words, "--home", "alice")

    assert code == 2
    assert why in err


def test_several_chats_need_a_name(run, monkeypatch, tmp_path):
    """With more than one chat in a home --group says which; a new name begins another one."""
    (tmp_path / "lines").write_text("")
    codes = []
    for words in (("--group", "work"), ("--group", "home"), (), ("--group", "work")):
        with (tmp_path / "lines").open() as lines:
            monkeypatch.setattr("sys.stdin", lines)
            codes.append(run("chat", *words, "--home", "alice")[0])
    names = [json.loads(line)["name"] for line in run("group", "list", "--home", "alice", "--json")[1].splitlines()]

    assert codes == [0, 0, 2, 0]
    assert sorted(set(names) - {"invitation"}) == ["home", "work"]


def test_nickname_is_remembered(run, monkeypatch, tmp_path):
    """Who was called something is called so the next time as well, until it says otherwise."""
    (tmp_path / "lines").write_text("hi\n")
    nicks = []
    for words in (("--nick", "zoë"), (), ("--nick", "carol"), ()):
        with (tmp_path / "lines").open() as lines:
            monkeypatch.setattr("sys.stdin", lines)
            out = run("chat", *words, "--home", "alice", "--json")[1]
            nicks.append(json.loads(out.splitlines()[-1])["nick"])

    assert nicks == ["zoë", "zoë", "carol", "carol"]
