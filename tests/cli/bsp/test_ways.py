"""Laws of ``waystation bsp sync``, ``listen``, ``export`` and ``import``: real processes, sockets and files."""

import json
import signal

import pytest

from tests.cli.bsp.build import Running, key_of, make_homes
from tests.cli.build import caller


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run a bsp command in a folder with the homes alice and bob; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    make_homes(tmp_path)
    return caller("bsp", capfd)


def add(run, home, text):
    """Add a message, and return its identifier."""
    return run("add", "--group", "talk", "--body", text, "--after", "heads", "--home", home)[1].strip()


def ids_of(run, home):
    """Return the identifiers of a home in the order of delivery."""
    lines = run("list", "--group", "talk", "--home", home, "--json")[1].splitlines()
    return [json.loads(line)["id"] for line in lines]


def test_sync_exchanges_what_is_missing_and_ends(run, tmp_path):
    """Both sides hold the same behind a sync; what is added beside a running device goes out with the next one."""
    mine = add(run, "bob", "from bob")
    alice = Running(tmp_path, "listen", "0", "--home", "alice", "--json")
    url = alice.told().removeprefix("listening at ").strip()
    run("peers", "add", url, "--home", "bob")
    first = json.loads(run("sync", "--home", "bob", "--json")[1])
    heard = alice.line()
    theirs = add(run, "alice", "beside the listener")
    beside = alice.line()
    second = run("sync", "alice", "--home", "bob")
    ended = alice.end(signal.SIGTERM)

    assert (first["complete"], first["connected"], first["confirmed"]) == (True, [key_of(tmp_path / "alice")], 1)
    assert (heard["id"], beside["id"], beside["delivery_order"]) == (mine, theirs, 2)
    assert (second[0], second[1]) == (0, "received 1, confirmed 0\n")
    assert ids_of(run, "alice") == ids_of(run, "bob") == [mine, theirs]
    assert ended == 0


def test_sync_with_nobody_there_fails_and_says_why(run, tmp_path):
    """A peer that cannot be reached is named with the reason, and the exit code is 1."""
    run("peers", "add", f"bsp+tls://{key_of(tmp_path / 'alice')}@127.0.0.1:1", "--home", "bob")
    code, out, err = run("sync", "--home", "bob", "--json")
    result = json.loads(out)

    assert (code, result["complete"], result["connected"]) == (1, False, [])
    assert "nobody listens" in result["failed"][key_of(tmp_path / "alice")]
    assert "alice: nobody listens" in err


def test_sync_needs_somebody(run):
    """Without an address to dial and without --listen there is nothing to do."""
    code, _, err = run("sync", "--home", "alice")

    assert code == 2
    assert "nobody to connect with" in err


@pytest.mark.slow
def test_listen_ends_after_so_many_messages(run, tmp_path):
    """--count ends a listener with exit code 0, --timeout before it with 1."""
    add(run, "bob", "one")
    late = Running(tmp_path, "listen", "0", "--home", "alice", "--count", "1", "--timeout", "0.3")
    late_code = late.end()
    alice = Running(tmp_path, "listen", "0", "--home", "alice", "--count", "1")
    url = alice.told().removeprefix("listening at ").strip()
    run("peers", "add", url, "--home", "bob")
    run("sync", "--home", "bob")

    assert (late_code, alice.end()) == (1, 0)


def test_listen_keeps_groups_for_its_owners(run, tmp_path):
    """With --owner a listener is a mailbox: what one leaves another gets, and nothing of it is printed."""
    run("group", "new", "own", "--home", "keeper")
    keeper_key, alice_key, bob_key = (key_of(tmp_path / name) for name in ("keeper", "alice", "bob"))
    keeper = Running(tmp_path, "listen", "0", "--owner", alice_key, "--home", "keeper")
    url = keeper.told().removeprefix("listening at ").strip()
    for name in ("alice", "bob"):
        run("peers", "add", url, "--name", "keeper", "--home", name)
        run("share", "talk", "keeper", "--home", name)
    hosted = run("mailbox", "host", "--group", "talk", "--mailbox", "keeper", "--member", bob_key, "--home", "alice")
    refused = run("mailbox", "status", "--mailbox", "keeper", "--timeout", "0.3", "--home", "bob")
    mine = add(run, "alice", "for bob")
    for name in ("alice", "bob"):
        run("sync", "keeper", "--home", name)
    keeper.process.send_signal(signal.SIGTERM)
    printed, _ = keeper.process.communicate(timeout=20)
    wrong = run("listen", "0", "--owner", "nobody", "--home", "keeper")
    own = run("listen", "0", "--owner", keeper_key, "--home", "keeper")

    assert (hosted[0], refused[0] != 0) == (0, True)
    assert ids_of(run, "bob") == [mine]
    assert (keeper.process.returncode, printed) == (0, "")
    assert [wrong[0], own[0]] == [2, 2]


def test_file_is_carried_and_read_twice_harmlessly(run, tmp_path):
    """What is exported arrives, once, and the acknowledgement comes back by a file too."""
    mine = add(run, "alice", "hello")
    out = json.loads(run("export", "bob", "out.bsp", "--home", "alice", "--json")[1])
    read = run("import", "out.bsp", "out.bsp", "--home", "bob", "--json")
    back = run("export", "alice", "back.bsp", "--home", "bob")
    acked = run("import", "back.bsp", "--home", "alice")
    nothing = run("export", "bob", "more.bsp", "--home", "alice")

    assert (out["path"], out["messages_count"], out["complete"]) == ("out.bsp", 1, True)
    assert [json.loads(line)["new_count"] for line in read[1].splitlines()] == [1, 0]
    assert ids_of(run, "bob") == [mine]
    assert "0 messages and 1 acknowledgement" in back[1]
    assert "from bob: 0 messages, 0 new, 1 acknowledgement" in acked[1]
    assert (nothing[0], nothing[1]) == (0, "nothing is due for bob; no file was written\n")


def test_lost_file_is_written_again(run, tmp_path):
    """--again puts in what an earlier file had; a file of the name stays unless --force."""
    add(run, "alice", "hello")
    run("export", "bob", "out.bsp", "--home", "alice")
    kept = run("export", "bob", "out.bsp", "--again", "--home", "alice")
    forced = run("export", "bob", "out.bsp", "--again", "--force", "--home", "alice")

    assert (kept[0], "there already" in kept[2]) == (2, True)
    assert (forced[0], "1 message and" in forced[1]) == (0, True)


def test_bad_file_is_refused_and_the_others_are_read(run, tmp_path):
    """A damaged file says why it is refused, with exit code 1, and harms neither the home nor the other files."""
    mine = add(run, "alice", "hello")
    run("export", "bob", "out.bsp", "--home", "alice")
    (tmp_path / "bad.bsp").write_bytes((tmp_path / "out.bsp").read_bytes()[:-1])
    code, out, err = run("import", "bad.bsp", "out.bsp", "--home", "bob")
    as_json = run("import", "bad.bsp", "--home", "bob", "--json")

    assert code == 1
    assert "bad.bsp is refused: file_signature" in err
    assert "1 new" in out
    assert ids_of(run, "bob") == [mine]
    assert json.loads(as_json[1])["kind"] == "MalformedError"


def test_missing_file_and_stranger_are_told(run):
    """A file that is not there, and a peer that nobody knows, are told with their names."""
    missing = run("import", "missing.bsp", "--home", "bob")
    stranger = run("export", "mallory", "out.bsp", "--home", "alice")

    assert (missing[0], "cannot read missing.bsp" in missing[2]) == (4, True)
    assert (stranger[0], "no peer 'mallory'" in stranger[2]) == (2, True)


def test_home_in_use_is_told(run, tmp_path):
    """Beside a listener of the same home nothing that needs it alone is done, and the sentence says so."""
    alice = Running(tmp_path, "listen", "0", "--home", "alice")
    alice.told()
    code, _, err = run("export", "bob", "out.bsp", "--home", "alice")
    alice.end(signal.SIGTERM)

    assert code == 1
    assert "another program works with alice" in err


def test_group_that_is_joined_beside_us_is_listened_to(run, tmp_path):
    """A message of a group that another program made meanwhile is printed as well, and nothing breaks."""
    listening = Running(tmp_path, "listen", "0", "--count", "1", "--home", "alice")
    listening.told()
    run("group", "new", "fresh", "--home", "alice")
    added = run("add", "--group", "fresh", "--body", "hello", "--home", "alice")[1].strip()
    printed = listening.process.stdout.readline()

    assert (listening.end(), added[:8] in printed, printed.rstrip().endswith("hello")) == (0, True, True)
