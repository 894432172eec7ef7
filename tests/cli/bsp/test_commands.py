"""Laws of ``waystation bsp`` as people call it: messages, sharing, and how a device stands."""

import io
import json
import signal

import pytest

from tests.cli.bsp.build import Running, key_of, make_homes
from tests.cli.build import caller
from waystation.core.instant import Instant
from waystation.protocols.bsp.device.sync import BspDevice
from waystation.protocols.bsp.messages import Message
from waystation.sdk.bsp import BspHome, deps_v1_body

CLIENT_ID = b"\x07" * 32


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run a bsp command in a folder with the homes alice and bob; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    make_homes(tmp_path)
    return caller("bsp", capfd)


def rows_of(run, home="alice", *more):
    """Return what ``list --json`` prints."""
    return [
        json.loads(line) for line in run("list", "--group", "talk", "--home", home, "--json", *more)[1].splitlines()
    ]


def test_message_is_added_and_listed_with_its_place(run, tmp_path):
    """The identifier that ``add`` prints is listed at once, delivered, in the order of adding."""
    (tmp_path / "body").write_bytes(deps_v1_body([], b"first"))
    first = run("add", "--group", "talk", "--file", "body", "--home", "alice")
    second = json.loads(
        run("add", "--group", "talk", "--body", "second", "--after", "heads", "--home", "alice", "--json")[1]
    )
    rows = rows_of(run)

    assert first[0] == 0
    assert [row["id"] for row in rows] == [first[1].strip(), second["id"]]
    assert [row["delivery_order"] for row in rows] == [1, 2]
    assert rows[1] == {
        "id": second["id"],
        "state": "delivered",
        "delivery_order": 2,
        "body_present": True,
        "timestamp": second["timestamp"],
        "size_bytes": 3 + 32 + 6,
    }


def test_body_comes_from_stdin_when_nothing_is_said(run, monkeypatch):
    """Without --body and --file stdin is the body; --after names messages by their first digits."""
    run("add", "--group", "talk", "--body", "root", "--after", "heads", "--home", "alice")
    (root,) = rows_of(run)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"typed")))
    code, _, _ = run("add", "--group", "talk", "--after", root["id"][:8], "--home", "alice")
    typed = rows_of(run, "alice", "--bodies")[1]

    assert code == 0
    assert (typed["dependencies"], bytes.fromhex(typed["body_hex"])[-5:]) == ([root["id"]], b"typed")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--group", "nowhere", "--body", "x"), "no group 'nowhere'"),
        (("--group", "talk", "--body", "x"), "not of format deps_v1"),
        (("--group", "talk", "--body", "x", "--after", "abcd"), "no message 'abcd'"),
        (("--group", "talk", "--body", "x", "--file", "y"), "one of --body, --file"),
        (("--group", "talk", "--file", "missing"), "cannot read missing"),
        (("--group", "talk", "--body", "x" * 32_769), "too large"),
        (("--group", "talk", "--config", "node.toml", "--body", "x"), "name one of them"),
    ],
)
def test_impossible_message_is_told(run, words, why):
    """What cannot be added is told in one sentence with exit code 2, and nothing is left."""
    code, out, err = run("add", *words, "--home", "alice")

    assert (code, out) == (2, "")
    assert why in err
    assert rows_of(run) == []


def test_dependency_must_be_delivered_here(run, tmp_path):
    """A body that names a message which is not here is refused before anything is written."""
    (tmp_path / "body").write_bytes(deps_v1_body([bytes(32)], b"orphan"))
    code, _, err = run("add", "--group", "talk", "--file", "body", "--home", "alice")

    assert code == 2
    assert "depends on 0000" in err


def test_deleted_message_keeps_its_place(run):
    """After ``delete`` the body is gone and the place is not."""
    run("add", "--group", "talk", "--body", "secret", "--after", "heads", "--home", "alice")
    (row,) = rows_of(run)
    code, out, _ = run("delete", row["id"][:10], "--group", "talk", "--home", "alice")
    (after,) = rows_of(run, "alice", "--bodies")
    text = run("list", "--group", "talk", "--home", "alice")[1]

    assert (code, out) == (0, f"deleted {row['id'][:8]}\n")
    assert (after["body_present"], after["body_hex"], after["delivery_order"]) == (False, None, 1)
    assert "(deleted)" in text


def test_list_shows_what_people_want_to_see(run):
    """For people a line has a short identifier, and with --bodies the content without what it depends on."""
    run("add", "--group", "talk", "--body", "line one\nline two", "--after", "heads", "--home", "alice")
    (row,) = rows_of(run)
    text = run("list", "--group", "talk", "--home", "alice", "--bodies")[1]

    assert row["id"] not in text
    assert row["id"][:8] in text
    assert text.rstrip("\n").endswith(r"line one\nline two")


def test_status_and_why_say_what_a_peer_lacks(run, tmp_path):
    """Both name the peer, and the message that it is not known to hold, though nothing runs."""
    run("add", "--group", "talk", "--body", "x", "--after", "heads", "--home", "alice")
    (row,) = rows_of(run)
    status = json.loads(run("status", "--home", "alice", "--json")[1])
    why = json.loads(run("why", row["id"][:8], "--home", "alice", "--json")[1])
    text = run("why", row["id"][:8], "--home", "alice")[1]

    assert status["key"] == key_of(tmp_path / "alice")
    assert [(peer["name"], peer["owed"]) for peer in status["peers"]] == [("bob", 1)]
    assert (status["groups"][0]["delivered"], list(status["groups"][0]["shared_with"].values())) == (1, ["shared"])
    assert (why["id"], why["state"], why["peers"][0]["holds"]) == (row["id"], "delivered", False)
    assert "bob: is not known to hold it" in text
    assert "lacks 1 message of ours" in run("status", "--home", "alice")[1]


def test_why_of_a_message_that_never_came(run):
    """A whole identifier may be of a message that is not here; a beginning must be of one that is."""
    never = run("why", "ab" * 32, "--home", "alice")
    short = run("why", "abab", "--home", "alice")

    assert (never[0], "it has not come here" in never[1]) == (0, True)
    assert (short[0], "needs its whole identifier" in short[2]) == (2, True)


def test_share_and_stop(run, tmp_path):
    """``share --stop`` takes a group away from a peer, and ``share`` gives it back; both say so."""
    stopped = json.loads(run("share", "talk", "bob", "--stop", "--home", "alice", "--json")[1])
    without = json.loads(run("group", "list", "--home", "alice", "--json")[1])
    again = run("share", "talk", key_of(tmp_path / "bob")[:6], "--home", "alice")
    with_bob = json.loads(run("group", "list", "--home", "alice", "--json")[1])

    assert (stopped["visibility"], without["shared_with"]) == ("invisible", [])
    assert "talk is shared with" in again[1]
    assert with_bob["shared_with"] == [key_of(tmp_path / "bob")]


def test_id_makes_a_home_and_others_do_not(run, tmp_path):
    """``id`` makes a home where there is none; a mistyped home elsewhere is told, and not made."""
    made = json.loads(run("id", "--home", "carol", "--json")[1])
    code, _, err = run("status", "--home", "typo")

    assert made["key"] == key_of(tmp_path / "carol") == run("id", "--home", "carol")[1].strip()
    assert (code, "is no home" in err, (tmp_path / "typo").exists()) == (2, True, False)


def test_body_without_dependencies_is_told_how_to_have_some(run):
    """In a group of deps_v1 a bare body is refused with what would make it one; the example of the help works."""
    bare = run("add", "--group", "talk", "--body", "hello", "--home", "alice")
    headed = run("add", "--group", "talk", "--body", "hello", "--after", "heads", "--home", "alice")

    assert (bare[0], "--after heads" in bare[2]) == (2, True)
    assert headed[0] == 0


def test_status_and_why_admit_what_they_cannot_see(run, tmp_path):
    """Beside a program that runs with the home both say that it alone knows who is connected."""
    run("add", "--group", "talk", "--body", "x", "--after", "heads", "--home", "alice")
    (row,) = rows_of(run)
    apart = run("status", "--home", "alice")
    running = Running(tmp_path, "listen", "0", "--home", "alice")
    running.told()
    beside, told = run("status", "--home", "alice"), run("status", "--home", "alice", "--json")
    why = run("why", row["id"][:8], "--home", "alice")
    why_told = run("why", row["id"][:8], "--home", "alice", "--json")
    running.end(signal.SIGTERM)

    assert ("not connected" in apart[1], "another program" in apart[2]) == (True, False)
    assert ("not connected" in beside[1], "who is connected" in beside[2]) == (False, True)
    assert (json.loads(told[1])["running"], json.loads(why_told[1])["running"]) == (True, True)
    assert "who is connected" in why[2]


def test_group_of_another_application_is_left_out(run, tmp_path):
    """A home with a group that only another program can read is shown all the same, and says which it is."""
    home = BspHome(tmp_path / "alice")
    foreign = home.profile.group(CLIENT_ID, b"", "chess_v1")
    home.commit([home.put_group("chess", foreign)])
    home.close()
    told = json.loads(run("status", "--home", "alice", "--json")[1])
    text = run("status", "--home", "alice")
    why = run("why", "ab" * 32, "--group", "chess", "--home", "alice")

    assert [group["name"] for group in told["groups"]] == ["talk"]
    assert [(group["name"], group["id"]) for group in told["left_out"]] == [("chess", foreign.group_id.hex())]
    assert "left out: no format 'chess_v1'" in text[1]
    assert (why[0], "only the application that has it" in why[2]) == (2, True)


def test_why_of_an_invalid_message_does_not_say_that_it_waits(run, tmp_path):
    """What depends on an invalid message is invalid; neither waits for anything."""
    home = BspHome(tmp_path / "alice")
    group = home.group("talk").group
    bad, worse = b"\x00", deps_v1_body([home.profile.message_id(group.group_id, 1, b"\x00")], b"x")
    device = BspDevice(home.profile, home.store)
    device.join(group, Instant(0))
    (bob,) = [peer.key for peer in home.peers()]
    device.meet(bob)
    device.share(group.group_id, bob, Instant(0))
    for timestamp, body in ((1, bad), (2, worse)):
        device.receive(bob, Message(group.group_id, timestamp, body), Instant(0))
    home.commit(device.changes())
    worse_id = home.profile.message_id(group.group_id, 2, worse)
    home.close()
    text = run("why", worse_id.hex(), "--home", "alice")[1]

    assert "it is invalid" in text
    assert "waits" not in text
